"""Registries of names: environments, pipelines, agents and commands, built-in and from
plugins.

A package publishes a name by an entry point in its `pyproject.toml`:

    [project.entry-points."eqsim.envs"]
    cartpole = "eqsim_example:Cartpole"

Built-in objects are published in the same way. Objects are imported on first use, and a
broken plugin does not affect others.
"""

import dataclasses
import difflib
import importlib
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ._discovery import by_name, discover, Plugin, Unfit
from ._handshake import check_kind, KINDS, load


class PluginError(ImportError):
    """A plugin that was requested by name cannot be used: its import fails, it has the
    wrong kind, it was written for another API version, or `EQSIM_PLUGINS` or
    `EQSIM_PLUGINS_DENY` excludes it."""


@dataclasses.dataclass(frozen=True)
class DynamicCommand:
    """A command of `eqsim` whose options depend on its arguments, such as those of an agent
    that the first argument names.

    **Arguments:**

    - `summary`: description of the command in `eqsim --help`.
    - `build`: function that takes the arguments of the command and returns the function
        whose signature and docstring define its options and help.
    """

    summary: str
    build: Callable[[Sequence[str]], Callable[..., None]]


class Registry:
    """The objects published under one group of entry points.

    Plugins are discovered when the registry is first used. Each one is imported when it
    is first requested.

    The environment variable `EQSIM_PLUGINS` restricts plugins to the listed packages
    (comma-separated), besides eqsim's own. `EQSIM_PLUGINS_DENY` excludes packages. Both
    are read when plugins are discovered.

    **Arguments:**

    - `group`: name of the entry-point group, for instance `eqsim.envs`.
    - `path`: folders to search; by default `sys.path`.
    """

    def __init__(self, group: str, path: Iterable[str | os.PathLike] | None = None):
        self.group = group
        self._path = None if path is None else list(path)
        self._registered: dict[str, Any] = {}
        self._plugins: dict[str, Plugin] | None = None
        self._hidden: dict[str, Plugin] = {}
        self._loaded: dict[str, Any] = {}
        self._errors: dict[str, PluginError] = {}

    def names(self) -> tuple[str, ...]:
        """Return all names, sorted, without importing anything."""
        unique = (name for name in self.plugins() if ":" not in name)
        return tuple(sorted({*self._registered, *unique}))

    def plugins(self) -> dict[str, Plugin]:
        """Return the discovered plugins by name and by `package:name`, without
        importing anything."""
        if self._plugins is None:
            found = discover(self.group, self._path)
            hidden = [plugin for plugin in found if plugin.hidden]
            keys = lambda plugin: (plugin.name, plugin.qualified)
            self._hidden = {key: plugin for plugin in hidden for key in keys(plugin)}
            usable = [plugin for plugin in found if not plugin.hidden]
            self._plugins = by_name(self.group, usable)
        return self._plugins

    def registered(self) -> dict[str, Any]:
        """Return the objects added with `register`, by name."""
        return dict(self._registered)

    def hidden(self) -> dict[str, Plugin]:
        """Return the excluded plugins by name and by `package:name`, without importing
        anything."""
        self.plugins()
        return dict(self._hidden)

    def errors(self) -> dict[str, PluginError]:
        """Return the errors of plugins that were requested and could not be used."""
        return dict(self._errors)

    def get(self, name: str) -> Any:
        """Return the object with the given name, importing it on the first call.

        `package:name` selects one of several packages that publish the same name.

        **Raises:** `ValueError` if the name is unknown; `PluginError` if the plugin
        cannot be used.
        """
        if name in self._registered:
            return self._registered[name]
        if name not in self.plugins():
            if name in self._hidden:
                raise PluginError(self._hiding(name, self._hidden[name]))
            raise ValueError(self._unknown(name))
        if name not in self._loaded:
            self._loaded[name] = self._load(name, self.plugins()[name])
        return self._loaded[name]

    def register(self, name: str, value: Any, *, replace: bool = False) -> None:
        """Add a name for the current process, for example in a notebook.

        **Arguments:**

        - `name`: new name, or a name that exists if `replace` is True.
        - `value`: object that `get` returns.
        - `replace`: True to replace an existing name.

        **Raises:** `ValueError` if the name is taken or is not a valid name;
        `TypeError` if the value has the wrong kind for this registry.
        """
        if ":" in name or not name:
            raise ValueError(
                f"{name!r} is not a valid name: it must contain a letter and no colon."
            )
        if name in self.names() and not replace:
            raise ValueError(
                f"{name!r} is already taken in {self.group!r}. Choose another name, or "
                "pass `replace=True`."
            )
        try:
            check_kind(self.group, value)
        except Unfit as error:
            raise TypeError(
                f"{name!r} cannot be registered in {self.group!r}: {error}."
            ) from error
        self._registered[name] = value

    def refresh(self) -> None:
        """Discover plugins again, to find packages installed in the meantime."""
        importlib.invalidate_caches()
        self._plugins = None
        self._loaded.clear()
        self._errors.clear()

    def _load(self, name: str, plugin: Plugin) -> Any:
        try:
            value = load(self.group, plugin)
        except Unfit as error:
            raise self._failed(name, plugin, f"cannot be used: {error}") from error
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # `SystemExit`, and those of test frameworks.
            reason = f"could not be imported: {type(error).__name__}: {_text(error)}"
            raise self._failed(name, plugin, reason) from error
        self._errors.pop(name, None)
        return value

    def _failed(self, name: str, plugin: Plugin, reason: str) -> PluginError:
        self._errors[name] = PluginError(
            f"{name!r} in {self.group!r} comes from {plugin.package} {plugin.version} "
            f"({plugin.target}), and {reason}. Reinstall or repair that package; all "
            "other names keep working."
        )
        return self._errors[name]

    def _hiding(self, name: str, plugin: Plugin) -> str:
        return (
            f"{name!r} in {self.group!r} comes from {plugin.package} {plugin.version}, and "
            f"is hidden: {plugin.hidden}. Change that, and call `refresh()` or restart "
            "Python."
        )

    def _unknown(self, name: str) -> str:
        close = difflib.get_close_matches(name, self.names(), n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        for other in REGISTRIES:
            if other is not self and self in REGISTRIES and name in other.names():
                hint = f" That is the name of {KINDS[other.group].word}."
        known = ", ".join(self.names()) or "nothing; is the package installed?"
        return f"No {name!r} in {self.group!r}.{hint} Known: {known}."


def _text(error: BaseException) -> str:
    """Return the message of a plugin's exception, which may be of any length, or fail."""
    try:
        text = str(error)
    except Exception:
        return "(its message cannot be read)"
    return text if len(text) <= 2000 else text[:2000] + " ..."


ENVS = Registry("eqsim.envs")
PIPELINES = Registry("eqsim.pipelines")
AGENTS = Registry("eqsim.agents")
REGISTRIES = (ENVS, PIPELINES, AGENTS)
# Commands: functions, or dictionaries of functions.
COMMANDS = Registry("eqsim.commands")
# Functions that read the folder of a trained policy: `folder -> (env, policy)`, where
# the policy is a function `(obs, key) -> action` or an `AbstractController`, with
# `FileNotFoundError` for a folder of another kind. The keyword `env` is passed if the user
# names the environment, in the form that `eqsim.make` takes.
RUNS = Registry("eqsim.runs")
