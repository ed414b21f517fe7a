"""What installed packages publish, found without importing any of them.

`importlib.metadata` finds the packages, through whatever finders Python has, and knows
their true names and versions; `entrypoints` reads what each of them publishes. Its own
search is not used: it drops packages, and one malformed file ends it for all.
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


# Among packages that publish the same name these come first; the others by alphabet.
_FIRST_PARTY = ("eqsim", "eqsim-zoo")
_ALLOW, _DENY = "EQSIM_PLUGINS", "EQSIM_PLUGINS_DENY"


class PluginWarning(UserWarning):
    """A plugin was found that can only be used in part, or not at all."""


class Unfit(ValueError):
    """Why a plugin cannot be used, other than that its import fails."""


@dataclasses.dataclass(frozen=True)
class Plugin:
    """One published name.

    **Arguments:**

    - `name`: as users write it.
    - `target`: what it stands for, `module:object`.
    - `package`: the distribution that publishes it, its `version`, and its `summary`.
    - `hidden`: why it must not be used here; empty if it may be.
    """

    name: str
    target: str
    package: str = "unknown"
    version: str = "unknown"
    summary: str = ""
    hidden: str = ""

    @property
    def qualified(self) -> str:
        """`package:name`, which no other package can take."""
        return f"{self.package}:{self.name}"

    def point(self) -> entrypoints.EntryPoint:
        """What `entrypoints` makes of the target.

        **Raises:** `Unfit` if it makes nothing of it.
        """
        try:
            return entrypoints.EntryPoint.from_string(self.target, self.name)
        except entrypoints.BadEntryPoint as error:
            raise Unfit(
                f"its target {self.target!r} is not of the form `module:object`"
            ) from error

    def malformed(self) -> str:
        """Why the target can not be read; empty if it can be."""
        try:
            self.point()
        except Unfit as error:
            return str(error)
        return ""


def discover(group: str, path: Iterable[str | os.PathLike] | None) -> list[Plugin]:
    """All that is published under a group, also what is hidden and what is broken.

    **Arguments:**

    - `path`: folders to search instead of `sys.path`.
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
    """By name and by `package:name`: a choice between two must not depend on the disk.

    It warns of every name that two packages publish.
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
                f"{plugin.package}. The name stands for the first; write "
                f"{plugin.qualified!r} for the second.",
                PluginWarning,
                stacklevel=4,
            )
    return chosen


def _comes_first(package: Any, text: str, folders: list[str]) -> bool:
    """Whether Python would import this package, and not another of the same name that
    stands earlier on the path. The same text twice does no harm."""
    name = _about(package)["package"]
    namesakes = importlib.metadata.distributions(name=name, path=folders)
    first = next(iter(namesakes), None)
    return first is None or first.read_text("entry_points.txt") == text


def _about(package: Any) -> dict[str, str]:
    """Name, version and summary, as the package states them."""
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
        _warn(package, "name something twice. The last one counts.")
        return _read_sections(group, _sections(text, False), about)
    except configparser.Error as error:
        _warn(package, f"could not be read: {error}. Ask its authors to repair it.")
        return []
    return _read_sections(group, sections, about)


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
    """Why a package is not to be used; empty if it may be."""
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
    """A name of a distribution, as package indices compare them."""
    return re.sub(r"[-_.]+", "-", package).lower()


def _warn(package: str, problem: str) -> None:
    message = f"The entry points of the package {package!r} {problem}"
    warnings.warn(message, PluginWarning, stacklevel=5)
