"""Discovery of plugins: entry points of installed packages, found without importing
them.

`importlib.metadata` finds the packages, with all finders of Python, and their names and
versions; `entrypoints` reads the entry points of each package. `importlib.metadata`
itself is not used for that, because it omits packages and fails for all of them on one
malformed file.
"""

import configparser
import dataclasses
import importlib.metadata
import os
import re
import sys
import warnings
from collections.abc import Iterable
from typing import Any

import entrypoints


# Order of packages that publish the same name: these first, then alphabetically.
_FIRST_PARTY = ("eqsim", "eqsim-zoo")
_ALLOW, _DENY = "EQSIM_PLUGINS", "EQSIM_PLUGINS_DENY"


class PluginWarning(UserWarning):
    """A plugin was found that cannot be used, or only in part."""


class Unfit(ValueError):
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

        **Raises:** `Unfit` if it cannot be parsed.
        """
        try:
            return entrypoints.EntryPoint.from_string(self.target, self.name)
        except entrypoints.BadEntryPoint as error:
            raise Unfit(
                f"its target {self.target!r} is not of the form `module:object`"
            ) from error

    def malformed(self) -> str:
        """Return the reason why the target is malformed; empty if it is not."""
        try:
            self.point()
        except Unfit as error:
            return str(error)
        return ""


def discover(group: str, path: Iterable[str | os.PathLike] | None) -> list[Plugin]:
    """Find all plugins of a group, including hidden and broken ones.

    **Arguments:**

    - `path`: folders to search; by default `sys.path`.
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


def by_name(group: str, plugins: list[Plugin]) -> dict[str, Plugin]:
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
        "package": normalize(name) or "unknown",
        "version": version or "unknown",
        "summary": summary,
    }


def _read(group: str, text: str, about: dict[str, str]) -> list[Plugin]:
    package = about["package"]
    try:
        sections = _sections(text, True)
    except (configparser.DuplicateOptionError, configparser.DuplicateSectionError):
        try:
            sections = _sections(text, False)
        except configparser.Error as error:
            return _unreadable(package, error)
        _warn(package, "name something twice. The last one counts.")
    except configparser.Error as error:
        return _unreadable(package, error)
    return _read_sections(group, sections, about)


def _unreadable(package: str, error: configparser.Error) -> list[Plugin]:
    _warn(package, f"could not be read: {error}. Ask its authors to repair it.")
    return []


def _sections(text: str, strict: bool) -> configparser.ConfigParser:
    sections = entrypoints.CaseSensitiveConfigParser(
        delimiters=("=",), interpolation=None, strict=strict
    )
    sections.read_string(text, "entry_points.txt")
    return sections


def _read_sections(
    group: str, sections: configparser.ConfigParser, about: dict[str, str]
) -> list[Plugin]:
    if group not in sections:
        return []
    found, hidden = [], _why_hidden(about["package"])
    for name, target in sections[group].items():
        if ":" in name:
            _warn(
                about["package"],
                f"have {name!r} in {group!r}: it is left out, as a name has no colon.",
            )
            continue
        found.append(Plugin(name, target, hidden=hidden, **about))
    return found


def _why_hidden(package: str) -> str:
    """Return the reason why a package must not be used; empty if it may be used."""
    allowed, denied = _listed(_ALLOW), _listed(_DENY)
    if package != "eqsim" and denied is not None and package in denied:
        return f"the environment variable `{_DENY}` names {package}"
    if allowed is not None and package not in (*allowed, *_FIRST_PARTY):
        return f"the environment variable `{_ALLOW}` does not name {package}"
    return ""


def _listed(variable: str) -> list[str] | None:
    value = os.environ.get(variable)
    if value is None:
        return None
    return [normalize(name.strip()) for name in value.split(",") if name.strip()]


def normalize(package: str) -> str:
    """Normalize the name of a distribution, as package indices do."""
    return re.sub(r"[-_.]+", "-", package).lower()


def _warn(package: str, problem: str) -> None:
    message = f"The entry points of the package {package!r} {problem}"
    warnings.warn(message, PluginWarning, stacklevel=5)
