"""Docstrings of plugins, read from their source without importing them."""

import ast
import functools
import inspect
import sys
from importlib.machinery import ModuleSpec

from ..plugins import Plugin


# Re-exports that are followed before the search ends.
_HOPS = 8


def source_docstring(plugin: Plugin) -> str:
    """Return the docstring of the class or function that a plugin refers to.

    Imports of names from other modules (`from ._ppo import PPO`) are followed. No module
    is imported, so a broken or slow plugin does no harm.

    **Returns:** the docstring; empty if there is none, or its source was not found.
    """
    point = plugin.point()
    module, name = point.module_name, point.object_name
    try:
        for _ in range(_HOPS):
            found = _find(module, name) if name else None
            if found is None or isinstance(found, str):
                return found or ""
            module, name = found
    except (ImportError, OSError, SyntaxError, ValueError, AttributeError):
        return ""
    return ""


def _find(module: str, name: str) -> str | tuple[str, str] | None:
    """Return the docstring of a name of a module, or the module and name it comes from."""
    spec = _spec(module)
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return None
    for node in reversed(_parse(spec.origin).body):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and node.name == name:
            return inspect.cleandoc(ast.get_docstring(node) or "")
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return _absolute(module, spec, node), alias.name
    return None


def _absolute(module: str, spec: ModuleSpec, node: ast.ImportFrom) -> str:
    """Return the full name of the module of a `from ... import`."""
    if not node.level:
        return node.module or ""
    parts = module.split(".")
    package = parts if spec.submodule_search_locations is not None else parts[:-1]
    base = package[: len(package) - (node.level - 1)]
    return ".".join([*base, node.module] if node.module else base)


@functools.cache
def _parse(file: str) -> ast.Module:
    with open(file, "rb") as source:
        return ast.parse(source.read())


@functools.cache
def _spec(module: str) -> ModuleSpec | None:
    """Find a module; unlike `importlib.util.find_spec`, do not import its package."""
    parent, _, _ = module.rpartition(".")
    path = None
    if parent:
        package = _spec(parent)
        path = None if package is None else package.submodule_search_locations
        if path is None:
            return None
    for finder in sys.meta_path:
        spec = finder.find_spec(module, path)
        if spec is not None:
            return spec
    return None
