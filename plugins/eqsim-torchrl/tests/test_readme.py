import pathlib
import re

import jax


README = pathlib.Path(__file__).parents[1] / "README.md"


def test_readme_runs():
    """What the README shows runs as it stands, one block after the other."""
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert blocks
    names = {}
    with jax.enable_x64(False):
        for block in blocks:
            exec(compile(block, "README.md", "exec"), names)
