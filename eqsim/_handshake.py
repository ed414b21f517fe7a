"""Compatibility of plugins with this version of eqsim."""

import inspect
import re
import sys
import warnings
from typing import Any, NamedTuple

import entrypoints

from ._discovery import Plugin, PluginWarning, Unfit


API_VERSION = "1.0"
"""Version of the plugin API: the abstract classes, the arguments and results of their
methods, the entry point groups, and `eqsim.testing`. The first number changes with
incompatible changes, the second one with additions."""


class Kind(NamedTuple):
    """Kind of object in a group: a word with its article, and the base class. The base
    class is written as in an entry point, because it is defined in a higher layer."""

    word: str
    base: str


KINDS = {
    "eqsim.envs": Kind("an environment", "eqsim:AbstractEnv"),
    "eqsim.pipelines": Kind("a pipeline", "eqsim:AbstractPipeline"),
    "eqsim.agents": Kind("an agent", "eqsim:AbstractAgent"),
}


def load(group: str, plugin: Plugin) -> Any:
    """Import a plugin and check that it can be used.

    **Raises:** `Unfit` with the reason if its target is malformed, if it was written
    for another API version, or if it has the wrong kind; and any exception of its
    import.
    """
    point = plugin.point()
    value = point.load()
    _check_api(plugin, value, vars(sys.modules[point.module_name]))
    check_kind(group, value)
    return value


def check_kind(group: str, value: Any) -> None:
    """Raise `Unfit` unless a value is of the group's kind: a class derived from the
    base class, or a factory, whose return type is not checked."""
    if group not in KINDS:
        return
    word, base = KINDS[group]
    wanted = (
        f"A class derived from `{base.replace(':', '.')}`, or a function that makes"
    )
    if inspect.isclass(value):
        if issubclass(value, _find(base)):
            return
        kinds = (k.word for k in KINDS.values() if issubclass(value, _find(k.base)))
        found = f"the class `{value.__name__}`, {next(kinds, 'of none of our kinds')}"
    elif not callable(value):
        found = f"an object of type `{type(value).__name__}`"
    else:
        return
    raise Unfit(f"it is {found}, and not {word}. {wanted} one, is expected")


def _find(base: str) -> Any:
    return entrypoints.EntryPoint.from_string(base, base).load()


def _check_api(plugin: Plugin, value: Any, module: dict[str, Any]) -> None:
    """Compare `__eqsim_api__` of an object, or else of its module, with the installed
    API version."""
    declared = module.get("__eqsim_api__")
    declared = inspect.getattr_static(value, "__eqsim_api__", declared)
    if declared is None:
        return
    if not isinstance(declared, str) or not re.fullmatch(r"\d+(\.\d+)?", declared):
        raise Unfit(
            f"its `__eqsim_api__` is {declared!r}, where a string such as '1' or '1.0' is "
            "expected"
        )
    major, minor = map(int, f"{declared}.0".split(".")[:2])
    ours = tuple(map(int, API_VERSION.split(".")))
    if major != ours[0]:
        older = "eqsim" if major > ours[0] else plugin.package
        raise Unfit(
            f"it was written for version {declared} of eqsim's API, and this is version "
            f"{API_VERSION}. Upgrade {older}"
        )
    if minor > ours[1]:
        warnings.warn(
            f"{plugin.name!r} of {plugin.package} {plugin.version} was written for version "
            f"{declared} of eqsim's API, and this is version {API_VERSION}: something that "
            "it uses may be missing. Upgrade eqsim.",
            PluginWarning,
            stacklevel=5,
        )
