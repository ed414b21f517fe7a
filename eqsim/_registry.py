"""Names for things that live elsewhere: environments, pipelines and what plugins add.

A package publishes a name by an entry point in its `pyproject.toml`, and nothing else:

    [project.entry-points."eqsim.envs"]
    cartpole = "eqsim_example:Cartpole"

What is built in is published in the same way. Nothing is imported before it is asked
for, and a plugin that is broken never hides another.
"""

import configparser
import dataclasses
import difflib
import importlib
import importlib.metadata
import operator
import os
import re
import sys
import warnings
from collections.abc import Iterable
from typing import Any

import entrypoints


# Among packages that publish the same name these come first; the others by alphabet.
_FIRST_PARTY = ("eqsim", "eqsim-zoo")


class PluginWarning(UserWarning):
    """A plugin was found that can only be used in part, or not at all."""


class PluginError(ImportError):
    """A plugin was asked for by name, and could not be imported."""


@dataclasses.dataclass(frozen=True)
class Plugin:
    """One published name.

    **Arguments:**

    - `name`: as users write it.
    - `target`: what it stands for, `module:object`.
    - `package`: the distribution that publishes it, and its `version`.
    """

    name: str
    target: str
    package: str = "unknown"
    version: str = "unknown"

    def load(self) -> Any:
        """Imports the module and returns the object."""
        name, _, path = self.target.partition(":")
        module = importlib.import_module(name.strip())
        path = path.split("[")[0].strip()
        return operator.attrgetter(path)(module) if path else module


class Registry:
    """The objects that are published under the entry points of one group.

    Plugins are discovered at the first question, not when the registry is made; each
    one is imported when it is first asked for.

    **Arguments:**

    - `group`: name of the entry-point group, for instance `eqsim.envs`.
    - `path`: folders to search instead of `sys.path`.
    """

    def __init__(self, group: str, path: Iterable[str | os.PathLike] | None = None):
        self.group = group
        self._path = None if path is None else [str(folder) for folder in path]
        self._registered: dict[str, Any] = {}
        self._plugins: dict[str, Plugin] | None = None
        self._loaded: dict[str, Any] = {}
        self._errors: dict[str, PluginError] = {}

    def names(self) -> tuple[str, ...]:
        """All names, sorted. Imports nothing."""
        unique = (name for name in self.plugins() if ":" not in name)
        return tuple(sorted({*self._registered, *unique}))

    def plugins(self) -> dict[str, Plugin]:
        """What was discovered, by name and by `package:name`. Imports nothing."""
        if self._plugins is None:
            self._plugins = _by_name(self.group, _discover(self.group, self._path))
        return self._plugins

    def errors(self) -> dict[str, PluginError]:
        """The plugins that were asked for and could not be imported."""
        return dict(self._errors)

    def get(self, name: str) -> Any:
        """The object of that name; imported at the first call.

        `package:name` chooses between packages that publish the same name.
        """
        if name in self._registered:
            return self._registered[name]
        if name not in self.plugins():
            raise ValueError(self._unknown(name))
        if name not in self._loaded:
            self._loaded[name] = self._load(name, self.plugins()[name])
        return self._loaded[name]

    def register(self, name: str, value: Any, *, replace: bool = False) -> None:
        """Adds a name for as long as Python runs, as in a notebook.

        **Arguments:**

        - `name`: must be new, unless `replace` is set.
        - `value`: what `get` returns.
        - `replace`: whether a name that is already taken may change its meaning.
        """
        if ":" in name or not name:
            raise ValueError(
                f"{name!r} is no name: it must have a letter and no colon."
            )
        if name in self.names() and not replace:
            raise ValueError(
                f"{name!r} is already taken in {self.group!r}. Choose another name, or "
                "pass `replace=True`."
            )
        self._registered[name] = value

    def refresh(self) -> None:
        """Forgets what was discovered, to find what was installed since."""
        importlib.invalidate_caches()
        self._plugins = None
        self._loaded.clear()
        self._errors.clear()

    def _load(self, name: str, plugin: Plugin) -> Any:
        try:
            value = plugin.load()
        except Exception as error:
            message = (
                f"{name!r} in {self.group!r} comes from {plugin.package} "
                f"{plugin.version} ({plugin.target}), and could not be imported: "
                f"{type(error).__name__}: {error}. Reinstall or repair that package; "
                "all other names keep working."
            )
            self._errors[name] = PluginError(message)
            raise self._errors[name] from error
        self._errors.pop(name, None)
        return value

    def _unknown(self, name: str) -> str:
        close = difflib.get_close_matches(name, self.names(), n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        known = ", ".join(self.names()) or "nothing; is the package installed?"
        return f"No {name!r} in {self.group!r}.{hint} Known: {known}."


def _discover(group: str, path: list[str] | None) -> list[Plugin]:
    # One malformed file of an unrelated package makes `entrypoints` give up.
    folders = [str(folder) for folder in (sys.path if path is None else path)]
    try:
        found = entrypoints.get_group_all(group, path=folders)
    except (configparser.Error, UnicodeDecodeError) as error:
        warnings.warn(
            f"The package `entrypoints` could not read all plugins: {error}. They were "
            "looked up with `importlib.metadata` instead.",
            PluginWarning,
            stacklevel=4,
        )
        return _discover_standard(group, folders)
    return [
        Plugin(
            point.name,
            f"{point.module_name}:{point.object_name or ''}",
            _normalize(point.distro.name) if point.distro else "unknown",
            point.distro.version if point.distro else "unknown",
        )
        for point in found
    ]


def _discover_standard(group: str, folders: list[str]) -> list[Plugin]:
    found = []
    for package in importlib.metadata.distributions(path=folders):
        try:
            points = list(package.entry_points)
        except Exception as error:  # Whatever a broken file of another package raises.
            warnings.warn(
                f"The plugins of {package.name!r} could not be read: {error}.",
                PluginWarning,
                stacklevel=5,
            )
            continue
        found += [
            Plugin(point.name, point.value, _normalize(package.name), package.version)
            for point in points
            if point.group == group
        ]
    return found


def _by_name(group: str, plugins: list[Plugin]) -> dict[str, Plugin]:
    """Orders the plugins: a choice between two must not depend on the disk."""

    def rank(plugin: Plugin) -> tuple:
        first = plugin.package in _FIRST_PARTY
        return (plugin.name, not first, plugin.package, plugin.target)

    chosen: dict[str, Plugin] = {}
    for plugin in sorted(plugins, key=rank):
        first = chosen.setdefault(plugin.name, plugin)
        chosen.setdefault(f"{plugin.package}:{plugin.name}", plugin)
        if first.package != plugin.package:
            warnings.warn(
                f"{plugin.name!r} in {group!r} is published by {first.package} and by "
                f"{plugin.package}. The name stands for the first; write "
                f"'{plugin.package}:{plugin.name}' for the second.",
                PluginWarning,
                stacklevel=4,
            )
    return chosen


def _normalize(package: str) -> str:
    return re.sub(r"[-_.]+", "-", package).lower()


ENVS = Registry("eqsim.envs")
PIPELINES = Registry("eqsim.pipelines")
AGENTS = Registry("eqsim.agents")
