"""What the README shows runs as it stands."""

import pathlib
import re

from _installed import needs_models


README = pathlib.Path(__file__).parents[1] / "README.md"


@needs_models
def test_examples():
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert len(blocks) >= 3
    for block in blocks:
        exec(compile(block, README.name, "exec"), {})
