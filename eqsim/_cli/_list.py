"""`eqsim list`"""

import inspect
import re
import sys

from rich.console import Console
from rich.table import Table
from rich.text import Text

from .._registry import ENVS, PIPELINES, PluginError, Registry
from ..randomize import presets


def list_all() -> None:
    """Prints tables of what is installed, and names what is broken."""
    console, broken = Console(), []
    for title, registry in (("environment", ENVS), ("pipeline", PIPELINES)):
        console.print(_table(title, registry, broken))
        console.print()
    console.print(_presets())
    for message in broken:
        print(f"broken: {message}", file=sys.stderr)


def _table(title: str, registry: Registry, broken: list[str]) -> Table:
    """Names, and what they are by the first sentence of their docstring."""
    names, plugins = registry.names(), registry.plugins()
    packages = {name: plugins[name].package for name in names if name in plugins}
    foreign = any(package != "eqsim" for package in packages.values())
    table = _plain_table(title, *(["package"] if foreign else []), "what it is")
    for name in names:
        package = packages.get(name, "")
        try:
            text = _first_sentence(registry.get(name))
        except PluginError as error:
            broken.append(str(error))
            text = "broken, see below"
        shown = [] if not foreign else ["" if package == "eqsim" else package]
        table.add_row(*map(Text, (name, *shown, text)))
    return table


def _presets() -> Table:
    """Presets, and the environments that have them."""
    table, general = _plain_table("preset", "environments"), presets()
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


def _plain_table(first: str, *others: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(first, no_wrap=True)
    for name in others:
        table.add_column(name)
    return table


def _first_sentence(value: object) -> str:
    text = inspect.getdoc(value) or ""
    paragraph = " ".join(text.split("\n\n")[0].split())
    paragraph = re.sub(r" \([^()]*\d{4}\)", "", paragraph)  # Of a paper.
    return paragraph.split(". ")[0].rstrip(".").replace("`", "")
