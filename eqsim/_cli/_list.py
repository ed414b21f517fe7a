"""`eqsim list`"""

import re
import sys

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..plugins import AGENTS, ENVS, PIPELINES, PluginError, Registry
from ..randomize import presets
from ._source import source_docstring
from ._tables import paragraph, plain_table


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
    text = text.split(". ")[0].rstrip(".").replace("`", "")
    return text[:1].upper() + text[1:]
