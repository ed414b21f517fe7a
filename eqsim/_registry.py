"""Names for things that live elsewhere: environments, pipelines, agents, and what plugins
add.

A package publishes a name by an entry point in its `pyproject.toml`, and nothing else:

    [project.entry-points."eqsim.envs"]
    cartpole = "eqsim_example:Cartpole"

What is built in is published in the same way. Nothing is imported before it is asked
for, and a plugin that is broken never hides another.
"""

import difflib
import importlib
import os
from collections.abc import Iterable
from typing import Any

from ._discovery import by_name, discover, Plugin, Unfit
from ._handshake import check_kind, KINDS, load


class PluginError(ImportError):
    """A plugin was asked for by name, and cannot be used: its import fails, it is no
    environment, pipeline or agent, it was written for another version, or the environment
    variables `EQSIM_PLUGINS` and `EQSIM_PLUGINS_DENY` hide it."""


class Registry:
    """The objects that are published under the entry points of one group.

    Plugins are discovered at the first question, not when the registry is made; each
    one is imported when it is first asked for.

    If the environment variable `EQSIM_PLUGINS` is set, only the packages that it lists,
    separated by commas, are used beside eqsim's own; those that `EQSIM_PLUGINS_DENY`
    lists are not. Both are read when plugins are discovered.

    **Arguments:**

    - `group`: name of the entry-point group, for instance `eqsim.envs`.
    - `path`: folders to search instead of `sys.path`.
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
        """All names, sorted. Imports nothing."""
        unique = (name for name in self.plugins() if ":" not in name)
        return tuple(sorted({*self._registered, *unique}))

    def plugins(self) -> dict[str, Plugin]:
        """What was discovered, by name and by `package:name`. Imports nothing."""
        if self._plugins is None:
            found = discover(self.group, self._path)
            hidden = [plugin for plugin in found if plugin.hidden]
            keys = lambda plugin: (plugin.name, plugin.qualified)
            self._hidden = {key: plugin for plugin in hidden for key in keys(plugin)}
            usable = [plugin for plugin in found if not plugin.hidden]
            self._plugins = by_name(self.group, usable)
        return self._plugins

    def registered(self) -> dict[str, Any]:
        """What `register` added, by name."""
        return dict(self._registered)

    def hidden(self) -> dict[str, Plugin]:
        """What the environment variables hide, by name and by `package:name`. Imports
        nothing."""
        self.plugins()
        return dict(self._hidden)

    def errors(self) -> dict[str, PluginError]:
        """The plugins that were asked for and could not be used."""
        return dict(self._errors)

    def get(self, name: str) -> Any:
        """The object of that name; imported at the first call.

        `package:name` chooses between packages that publish the same name.

        **Raises:** `ValueError` if nothing has that name; `PluginError` if what has it
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
        """Adds a name for as long as Python runs, as in a notebook.

        **Arguments:**

        - `name`: must be new, unless `replace` is set.
        - `value`: what `get` returns.
        - `replace`: whether a name that is already taken may change its meaning.

        **Raises:** `ValueError` if the name is taken or no name; `TypeError` if the value
        is not of the kind that this registry holds.
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
        try:
            check_kind(self.group, value)
        except Unfit as error:
            raise TypeError(
                f"{name!r} cannot be registered in {self.group!r}: {error}."
            ) from error
        self._registered[name] = value

    def refresh(self) -> None:
        """Forgets what was discovered, to find what was installed since."""
        importlib.invalidate_caches()
        self._plugins = None
        self._loaded.clear()
        self._errors.clear()

    def _load(self, name: str, plugin: Plugin) -> Any:
        try:
            value = load(self.group, plugin)
        except Unfit as error:
            raise self._failed(name, plugin, f"cannot be used: {error}") from error
        except (Exception, SystemExit) as error:
            reason = f"could not be imported: {type(error).__name__}: {error}"
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
            f"is hidden: {plugin.hidden}. Change that, and call `refresh()` or start "
            "Python anew."
        )

    def _unknown(self, name: str) -> str:
        close = difflib.get_close_matches(name, self.names(), n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        for other in REGISTRIES:
            if other is not self and self in REGISTRIES and name in other.names():
                hint = f" That is the name of {KINDS[other.group].word}."
        known = ", ".join(self.names()) or "nothing; is the package installed?"
        return f"No {name!r} in {self.group!r}.{hint} Known: {known}."


ENVS = Registry("eqsim.envs")
PIPELINES = Registry("eqsim.pipelines")
AGENTS = Registry("eqsim.agents")
REGISTRIES = (ENVS, PIPELINES, AGENTS)
# Of the command line: functions, or dictionaries of them.
COMMANDS = Registry("eqsim.commands")
# Functions that read the folder of a trained policy: `folder -> (env, policy)`, with
# `FileNotFoundError` for a folder of another kind.
RUNS = Registry("eqsim.runs")
