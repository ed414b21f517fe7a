"""Look-up of names given by users, tables, `eqsim list` and `eqsim show`."""

import ast
import functools
import inspect
import pathlib
import re
import sys
from collections.abc import Iterable
from importlib.machinery import ModuleSpec
from typing import Any

import equinox as eqx
import jax
import jax.random as jr
import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..envs import AbstractEnv, is_import_path, make
from ..io import load_mjcf, load_urdf
from ..model import System
from ..pipelines import AbstractPipeline
from ..plugins import (
    AGENTS,
    close_names,
    CommandError,
    ENVS,
    PIPELINES,
    Plugin,
    PluginError,
    Registry,
)
from ..randomize import AbstractRandomizer, presets
from ..wrappers import AbstractDescriptor, nested_envs


# --- Names given by users ---


def environment(name: str, pipeline: str | None) -> AbstractEnv:
    """Create an environment with a pipeline, by name or as `module:object`."""
    if not is_import_path(name):
        _known("environment", name, ENVS)
    if pipeline is not None:
        _known("pipeline", pipeline, PIPELINES)
    try:
        return make(name, pipeline=pipeline)
    except (TypeError, ValueError) as error:
        raise CommandError(f"Cannot make {name!r}: {error}") from error


def robot_of(path: pathlib.Path) -> System:
    """Load a robot from an MJCF file, or from a URDF."""
    return load_urdf(path) if path.suffix.lower() == ".urdf" else load_mjcf(path)


def physics(name: str | None) -> AbstractPipeline | None:
    """Return the pipeline with a name; None without a name."""
    if name is None:
        return None
    _known("pipeline", name, PIPELINES)
    return PIPELINES.get(name)()


def preset(env: str, name: str) -> AbstractRandomizer:
    """Return a randomization preset by name."""
    found = presets(plain(env))
    check_known("preset of randomization", name, found)
    return found[name]


def plain(env: str) -> str:
    """Return the name of an environment without the name of its package."""
    return env.rpartition(":")[2]


def at_least_one(option: str, value: int) -> None:
    """Raise `CommandError` unless the number is positive."""
    if value < 1:
        raise CommandError(f"`{option}` must be at least 1, got {value}.")


def _known(what: str, name: str, registry: Registry) -> None:
    if name not in {**registry.plugins(), **registry.hidden()}:
        check_known(what, name, registry.names())


def check_known(what: str, name: str, known: Iterable[str]) -> None:
    """Raise `CommandError` with close names unless a name is known."""
    names = sorted(known)
    if name in names:
        return
    close = close_names(name, names, n=3, cutoff=0.5)
    hint = f" Did you mean {' or '.join(map(repr, close))}?" if close else ""
    raise CommandError(f"There is no {what} {name!r}.{hint} Known: {', '.join(names)}.")


# --- Tables ---


_WIDE = 1000


def console() -> Console:
    """Return a console, for a terminal or a file, that does not cut lines."""
    width = None if sys.stdout.isatty() else _WIDE
    return Console(highlight=False, width=width)


def plain_table(first: str, *others: str, show_header: bool = True) -> Table:
    """Return a table without lines, whose first column is not wrapped."""
    table = Table(
        box=None, pad_edge=False, header_style="bold", show_header=show_header
    )
    table.add_column(first, no_wrap=True)
    for name in others:
        table.add_column(name)
    return table


def paragraph(value: object) -> str:
    """Return the first paragraph of a docstring, on one line."""
    return " ".join((inspect.getdoc(value) or "").split("\n\n")[0].split())


# --- eqsim list ---


def list_all() -> None:
    """Print tables of installed objects, and report broken plugins."""
    console, broken = Console(), []
    titles = (("environment", ENVS), ("pipeline", PIPELINES), ("agent", AGENTS))
    for title, registry in titles:
        if registry.names():
            console.print(_table(title, registry, broken))
            console.print()
    console.print(_presets())
    for message in broken:
        print(f"broken: {message}", file=sys.stderr)


def _table(title: str, registry: Registry, broken: list[str]) -> Table:
    """Return a table of names and descriptions."""
    names, plugins = registry.names(), registry.plugins()
    packages = {name: plugins[name].package for name in names if name in plugins}
    foreign = any(package != "eqsim" for package in packages.values())
    table = plain_table(title, *(["package"] if foreign else []), "what it is")
    for name in names:
        package = packages.get(name, "")
        text = _what(name, registry, broken)
        shown = [] if not foreign else ["" if package == "eqsim" else package]
        table.add_row(*map(Text, (name, *shown, text)))
    return table


def _what(name: str, registry: Registry, broken: list[str]) -> str:
    """Return the first sentence of the docstring of an object. Other packages are not
    imported: their source is read, and if it has no docstring, the package's summary is
    returned."""
    plugin = registry.plugins().get(name)
    if plugin is not None and name not in registry.registered():
        if plugin.package != "eqsim" and not plugin.malformed():
            return _first_sentence(source_docstring(plugin)) or plugin.summary
    try:
        return _first_sentence(paragraph(registry.get(name)))
    except PluginError as error:
        broken.append(str(error))
        return "broken, see below"


def _presets() -> Table:
    """Return a table of presets and the environments that have them."""
    table, general = plain_table("preset", "environments"), presets()
    owners: dict[str, list[str]] = {}
    for env in ENVS.names():
        for name in presets(env):
            owners.setdefault(name, []).append(env)
    for name, envs in sorted(owners.items()):
        everywhere = len(envs) == len(ENVS.names())
        without = [env for env in ENVS.names() if env not in envs]
        text = ", ".join(envs)
        if everywhere:
            text = "all"
        elif name in general and len(without) < len(envs):
            text = f"all but {', '.join(without)}"
        table.add_row(Text(name), Text(text))
    return table


def _first_sentence(docstring: str) -> str:
    text = " ".join(docstring.split("\n\n")[0].split())
    text = re.sub(r" \([^()]*\d{4}\)", "", text)  # The year of a paper.
    text = re.sub(r"^Create (an? )?", "", text)  # What a factory creates.
    # TeX between dollars: names of commands and variables alone.
    plain = lambda match: re.sub(r"[\\{}]", "", match[1])
    text = re.sub(r"\$([^$]*)\$", plain, text)
    text = text.split(". ")[0].rstrip(".").replace("`", "")
    return text[:1].upper() + text[1:]


# --- eqsim show ---


def show(name: str, pipeline: str | None) -> None:
    """Print a description of an environment, without compiling it."""
    env = environment(name, pipeline)
    console = Console(highlight=False)
    print(f"{env.sys}\n")
    console.print(_facts(name, env))
    console.print()
    console.print(_masses(env.sys))


def _facts(name: str, env: AbstractEnv) -> Table:
    _, timestep = eqx.filter_eval_shape(env.reset, jr.key(0))
    rows = {
        "environment": " in ".join(type(x).__name__ for x in [*nested_envs(env)][::-1]),
        "pipeline": type(env.pipeline).__name__,
        "control step": f"{float(env.dt):.4g} s ({1 / float(env.dt):.4g} Hz)",
        "time step": f"{float(env.sys.dt):.4g} s",
        "coordinates": f"nq {env.sys.nq}, nv {env.sys.nv}",
        "observation": _observation(timestep.obs),
        "action": _actions(env),
        "reward": " + ".join(timestep.terms),
    }
    for layer in nested_envs(env):
        if isinstance(layer, AbstractDescriptor):
            span = np.asarray(layer.descriptor_range)
            pairs = zip(layer.descriptor_names, span, strict=True)
            rows["descriptor"] = "\n".join(f"{n} {_interval(*r)}" for n, r in pairs)
    rows["presets"] = ", ".join(presets(plain(name)))
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for key, value in rows.items():
        table.add_row(Text(key), Text(value))
    return table


def _observation(obs: Any) -> str:
    """Return the shape of an observation, and those of the parts of a dictionary."""
    if isinstance(obs, dict):
        width = max(map(len, obs))
        parts = (f"{k:{width}}  {_observation(x)}" for k, x in sorted(obs.items()))
        return "\n".join(parts)
    if not isinstance(obs, jax.ShapeDtypeStruct):
        return repr(obs)
    shape = " x ".join(map(str, obs.shape)) or "one number"
    # A floating-point vector is the usual case.
    usual = len(obs.shape) == 1 and np.issubdtype(obs.dtype, np.floating)
    return shape if usual else f"{shape}, {obs.dtype}"


def _actions(env: AbstractEnv) -> str:
    span, names = np.asarray(env.action_range), env.sys.actuators.ctrl_names
    if not len(names):
        return "none"
    width = max(map(len, names))
    lines = [f"{n:{width}}  {_interval(*row)}" for n, row in zip(names, span)]
    return "\n".join(lines)


def _interval(low: float, high: float) -> str:
    return f"[{low:.4g}, {high:.4g}]"


def _masses(sys: System) -> Table:
    mass = np.asarray(sys.links.mass, float)
    table = Table(box=None, pad_edge=False, header_style="bold", show_footer=True)
    table.add_column("link", footer="total", footer_style="bold")
    total = f"{mass.sum():.4g}"
    table.add_column("mass, kg", footer=total, justify="right", footer_style="bold")
    for name, value in zip(sys.links.names, mass, strict=True):
        table.add_row(Text(name), f"{value:.4g}")
    return table


# --- Docstrings of plugins that are not imported ---


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
