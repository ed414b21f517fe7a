"""Forking an agent means copying few files: its module and what that imports."""

import ast
import pathlib

import pytest

import eqsim_zoo


ROOT = pathlib.Path(eqsim_zoo.__file__).parent


def imported(path):
    """Return the modules of eqsim_zoo that a module imports, without packages."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            folder = path.parents[node.level - 1]
            target = folder.joinpath(*(node.module or "").split("."))
            for name in (target, *(target / each.name for each in node.names)):
                if name.with_suffix(".py").exists():
                    yield name.with_suffix(".py")


def closure(path):
    found, left = set(), [path]
    while left:
        path = left.pop()
        if path not in found:
            found.add(path)
            left.extend(imported(path))
    return found


@pytest.mark.parametrize("name, most", (("sac", 8), ("ppo", 8), ("dads", 12)))
def test_files_to_copy(name, most):
    files = closure(ROOT / "agents" / f"{name}.py")
    shown = sorted(str(path.relative_to(ROOT)) for path in files)
    assert len(files) <= most, shown
    assert not any(name.startswith("vision/") for name in shown)


def test_agents_import_modules_directly():
    """Names of a package would hide which file they come from."""
    for path in (ROOT / "agents").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.level == 2:
                assert "." in (node.module or ""), (path.name, node.module)
