"""What eqsim-zoo uses of eqsim."""

import ast
import pathlib

import eqsim_zoo


FOLDER = pathlib.Path(eqsim_zoo.__file__).parent


def test_nothing_private_is_used():
    found = []
    for file in FOLDER.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = []
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.Attribute):
                names = [ast.unparse(node)]
            ours = (name.split(".") for name in names if name.startswith("eqsim"))
            found += [
                f"{file.name}:{node.lineno}: {'.'.join(parts)}"
                for parts in ours
                if any(part.startswith("_") for part in parts)
            ]
    assert not found, "\n".join(found)
