"""What the README shows runs as it stands."""

import pathlib
import re

import pytest


README = pathlib.Path(__file__).parents[1] / "README.md"


@pytest.mark.usefixtures("lenient")
@pytest.mark.filterwarnings("ignore")
def test_examples():
    namespace = {}
    for block in re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL):
        if "from brax" in block:
            pytest.importorskip("brax", reason="needs the extra brax")
        exec(compile(block, README.name, "exec"), namespace)
