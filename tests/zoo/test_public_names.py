"""What eqsim-zoo uses of eqsim, and what it offers."""

import ast
import inspect
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


def test_docstrings():
    """Of all public names, and of what their classes define."""
    missing = []
    for name, value in vars(eqsim_zoo).items():
        if name.startswith("_") or inspect.ismodule(value):
            continue
        parts = vars(value) if inspect.isclass(value) else {}
        described = (
            {part for base in value.__mro__[1:] for part in vars(base)} if parts else {}
        )
        missing += [] if inspect.getdoc(value) else [name]
        missing += [
            f"{name}.{part}"
            for part, member in parts.items()
            if inspect.isfunction(member) or isinstance(member, property)
            if not part.startswith("_") and part not in described and not member.__doc__
        ]
    assert not missing
