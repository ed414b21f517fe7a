"""Plugins: environments, pipelines, agents and commands, found by name.

A package publishes a name by an entry point in its `pyproject.toml`:

    [project.entry-points."eqsim.envs"]
    ball_beam = "eqsim_example:BallBeam"

eqsim publishes its own objects in the same way. A `Registry` holds the names of one
group. It reads the metadata of installed packages when it is first used, imports an
object when it is first requested, and keeps the error of a plugin that cannot be used,
so that it does not affect others.

The file reads in this order: errors and types for authors of plugins; the registry;
discovery (`importlib.metadata` finds the packages, and `entrypoints` parses and loads
their entries); compatibility with this version of eqsim; the registries.
"""

import configparser
import dataclasses
import difflib
import importlib
import importlib.metadata
import inspect
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import entrypoints


API_VERSION = "1.0"
"""Version of the plugin API: the abstract classes, the arguments and results of their
methods, the entry point groups, and `eqsim.testing`. The first number changes with
incompatible changes, the second one with additions."""


class PluginError(ImportError):
    """A plugin that was requested by name cannot be used: its import fails, it has the
    wrong kind, it was written for another API version, or `EQSIM_PLUGINS` excludes it."""


class PluginWarning(UserWarning):
    """A plugin was found that cannot be used, or only in part."""


class CommandError(Exception):
    """Error that ends a command of `eqsim` with a message instead of a traceback.

    **Arguments:**

    - `message`: description of the error, and how to fix it.
    - `status`: exit status of the process: 2 for invalid arguments, 1 for other
        failures.
    """

    def __init__(self, message: str, status: int = 2):
        Exception.__init__(self, message)
        self.status = status


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


class _Unfit(ValueError):
    """Reason why a plugin cannot be used, other than a failed import."""


@dataclasses.dataclass(frozen=True)
class Plugin:
    """A published name.

    **Arguments:**

    - `name`: name as written by users.
    - `target`: object that the name refers to, `module:object`.
    - `package`, `version`, `summary`: distribution that publishes the plugin, its
        version and its summary.
    - `hidden`: reason why it must not be used; empty if it may be used.
    """

    name: str
    target: str
    package: str = "unknown"
    version: str = "unknown"
    summary: str = ""
    hidden: str = ""

    @property
    def qualified(self) -> str:
        """The unambiguous name `package:name`."""
        return f"{self.package}:{self.name}"

    def point(self) -> entrypoints.EntryPoint:
        """Return the parsed target.

        **Raises:** `ValueError` if it cannot be parsed.
        """
        try:
            return entrypoints.EntryPoint.from_string(self.target, self.name)
        except entrypoints.BadEntryPoint as error:
            raise _Unfit(
                f"its target {self.target!r} is not of the form `module:object`"
            ) from error

    def malformed(self) -> str:
        """Return the reason why the target is malformed; empty if it is not."""
        try:
            self.point()
        except _Unfit as error:
            return str(error)
        return ""


class Registry:
    """The objects published under one group of entry points.

    The environment variable `EQSIM_PLUGINS` restricts plugins to the listed packages
    (comma-separated), besides eqsim's own. It is read when plugins are discovered.

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
            found = _discover(self.group, self._path)
            hidden = [plugin for plugin in found if plugin.hidden]
            keys = lambda plugin: (plugin.name, plugin.qualified)
            self._hidden = {key: plugin for plugin in hidden for key in keys(plugin)}
            usable = [plugin for plugin in found if not plugin.hidden]
            self._plugins = _by_name(self.group, usable)
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
        if ":" in name or not re.search(r"[^\W\d_]", name):
            raise ValueError(
                f"{name!r} is not a valid name: it must contain a letter and no colon."
            )
        if name in self.names() and not replace:
            raise ValueError(
                f"{name!r} is already taken in {self.group!r}. Choose another name, or "
                "pass `replace=True`."
            )
        try:
            _check_kind(self.group, value)
        except _Unfit as error:
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
            point = plugin.point()
            value = point.load()
            _check_api(plugin, value, vars(sys.modules[point.module_name]))
            _check_kind(self.group, value)
        except _Unfit as error:
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
        close = close_names(name, self.names())
        hint = f" Did you mean {close[0]!r}?" if close else ""
        for other in REGISTRIES:
            if other is not self and self in REGISTRIES and name in other.names():
                hint = f" That is the name of {_KINDS[other.group].word}."
        known = f" Known: {', '.join(self.names())}."
        if not self.names():
            package = _PACKAGES.get(self.group, "a package that has some")
            known = f" No names are known: install {package}."
        return f"No {name!r} in {self.group!r}.{hint}{known}"


def close_names(
    name: str, known: Iterable[str], n: int = 1, cutoff: float = 0.6
) -> list[str]:
    """Return known names similar to a name, without regard to capitals and to a version
    such as that of `Ant-v5`; arguments as for `difflib.get_close_matches`."""
    plain = lambda text: re.sub(r"-v\d+$", "", text.lower())
    names = {plain(x): x for x in known}
    return [names[x] for x in difflib.get_close_matches(plain(name), names, n, cutoff)]


def _text(error: BaseException) -> str:
    """Return the message of a plugin's exception, which may be of any length, or fail."""
    try:
        text = str(error)
    except Exception:
        return "(its message cannot be read)"
    return text if len(text) <= 2000 else text[:2000] + " ..."


# --- Discovery ---

# Packages of groups that eqsim itself has no objects for.
_PACKAGES = {"eqsim.agents": "`eqsim-zoo`"}
# Order of packages that publish the same name: these first, then alphabetically.
_FIRST_PARTY = ("eqsim", "eqsim-zoo")
_ALLOW = "EQSIM_PLUGINS"


def _discover(group: str, path: Iterable[str | os.PathLike] | None) -> list[Plugin]:
    """Find all plugins of a group, including hidden and broken ones, without importing
    them.

    `importlib.metadata.entry_points` is not used: it omits packages, and fails for all
    of them on one malformed file.
    """
    path = sys.path if path is None else path
    folders = [os.fspath(x) for x in path if isinstance(x, str | os.PathLike)]
    found = []
    for package in importlib.metadata.distributions(path=folders):
        try:
            text = package.read_text("entry_points.txt") or ""
        except UnicodeDecodeError as error:
            _warn(_about(package)["package"], f"could not be read: {error}.")
            continue
        if group in text and _comes_first(package, text, folders):
            found += _read(group, text, _about(package))
    return found


def _comes_first(package: Any, text: str, folders: list[str]) -> bool:
    """Check that Python would import this package, and not another package of the
    same name that comes earlier on the path. An identical copy counts as the same
    package."""
    name = _about(package)["package"]
    namesakes = importlib.metadata.distributions(name=name, path=folders)
    first = next(iter(namesakes), None)
    return first is None or first.read_text("entry_points.txt") == text


def _about(package: Any) -> dict[str, str]:
    """Return name, version and summary from the metadata of the package."""
    try:
        metadata = package.metadata
        read = lambda key: str(metadata[key]) if key in metadata else ""
        name, version, summary = map(read, ("Name", "Version", "Summary"))
    except Exception:  # Whatever a finder raises where the file is missing.
        name, version, summary = "", "", ""
    return {
        "package": normalized(name) or "unknown",
        "version": version or "unknown",
        "summary": summary,
    }


def _read(group: str, text: str, about: dict[str, str]) -> list[Plugin]:
    """Parse the entry points of a package; warn about what is left out."""
    package = about["package"]
    twice = configparser.DuplicateOptionError, configparser.DuplicateSectionError
    try:
        try:
            sections = _sections(text, True)
        except twice:
            sections = _sections(text, False)
            _warn(package, "name something twice. The last one counts.")
    except configparser.Error as error:
        _warn(package, f"could not be read: {error}. Ask its authors to repair it.")
        return []
    found, hidden = [], _why_hidden(package)
    for name, target in sections[group].items() if group in sections else ():
        if ":" in name:
            problem = (
                f"have {name!r} in {group!r}: it is left out, as a name has no colon."
            )
            _warn(package, problem)
        else:
            found.append(Plugin(name, target, hidden=hidden, **about))
    return found


def _sections(text: str, strict: bool) -> configparser.ConfigParser:
    sections = entrypoints.CaseSensitiveConfigParser(
        delimiters=("=",), interpolation=None, strict=strict
    )
    sections.read_string(text, "entry_points.txt")
    return sections


def _why_hidden(package: str) -> str:
    """Return the reason why a package must not be used; empty if it may be used."""
    value = os.environ.get(_ALLOW)
    if value is None:
        return ""
    allowed = {normalized(name.strip()) for name in value.split(",")}
    if package in allowed.union(_FIRST_PARTY):
        return ""
    return f"the environment variable `{_ALLOW}` does not name {package}"


def normalized(package: str) -> str:
    """Normalize the name of a distribution, as package indices do."""
    return re.sub(r"[-_.]+", "-", package).lower()


def _warn(package: str, problem: str) -> None:
    message = f"The entry points of the package {package!r} {problem}"
    warnings.warn(message, PluginWarning, stacklevel=5)


def _by_name(group: str, plugins: list[Plugin]) -> dict[str, Plugin]:
    """Index plugins by name and by `package:name`, independently of their order on
    disk.

    Warns about every name that two packages publish.
    """

    def rank(plugin: Plugin) -> tuple:
        first = plugin.package in _FIRST_PARTY
        return (plugin.name, not first, plugin.package, plugin.target)

    chosen: dict[str, Plugin] = {}
    for plugin in sorted(plugins, key=rank):
        first = chosen.setdefault(plugin.name, plugin)
        chosen.setdefault(plugin.qualified, plugin)
        if first.package != plugin.package:
            warnings.warn(
                f"{plugin.name!r} in {group!r} is published by {first.package} and by "
                f"{plugin.package}. The name refers to the first; write "
                f"{plugin.qualified!r} for the second.",
                PluginWarning,
                stacklevel=4,
            )
    return chosen


# --- Compatibility ---


class _Kind(NamedTuple):
    """Kind of object in a group: a word with its article, and the base class. The base
    class is written as in an entry point, because it is defined in a higher layer."""

    word: str
    base: str

    def find(self) -> type:
        """Import the base class."""
        return entrypoints.EntryPoint.from_string(self.base, self.base).load()


_KINDS = {
    "eqsim.envs": _Kind("an environment", "eqsim:AbstractEnv"),
    "eqsim.pipelines": _Kind("a pipeline", "eqsim:AbstractPipeline"),
    "eqsim.agents": _Kind("an agent", "eqsim:AbstractAgent"),
}


def _check_kind(group: str, value: Any) -> None:
    """Raise `_Unfit` unless a value is of the group's kind: a class derived from the
    base class, or a factory, whose return type is not checked."""
    if group not in _KINDS:
        return
    kind = _KINDS[group]
    if inspect.isclass(value):
        if issubclass(value, kind.find()):
            return
        words = (k.word for k in _KINDS.values() if issubclass(value, k.find()))
        found = f"the class `{value.__name__}`, {next(words, 'of none of our kinds')}"
    elif not callable(value):
        found = f"an object of type `{type(value).__name__}`"
    else:
        return
    raise _Unfit(
        f"it is {found}, and not {kind.word}. A class derived from "
        f"`{kind.base.replace(':', '.')}`, or a function that makes one, is expected"
    )


def _check_api(plugin: Plugin, value: Any, module: dict[str, Any]) -> None:
    """Compare `__eqsim_api__` of an object, or else of its module, with the installed
    API version."""
    declared = module.get("__eqsim_api__")
    declared = inspect.getattr_static(value, "__eqsim_api__", declared)
    if declared is None:
        return
    if not isinstance(declared, str) or not re.fullmatch(r"\d+(\.\d+)?", declared):
        raise _Unfit(
            f"its `__eqsim_api__` is {declared!r}, where a string such as '1' or '1.0' is "
            "expected"
        )
    major, minor = map(int, f"{declared}.0".split(".")[:2])
    ours = tuple(map(int, API_VERSION.split(".")))
    if major != ours[0]:
        older = "eqsim" if major > ours[0] else plugin.package
        raise _Unfit(
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
