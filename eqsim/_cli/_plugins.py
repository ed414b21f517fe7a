"""`eqsim plugins list` and `eqsim plugins show`"""

import contextlib
import difflib
import inspect
import json
import sys
from typing import Any, Literal, NamedTuple

from rich.text import Text

from ..plugins import AGENTS, CommandError, ENVS, PIPELINES, Plugin, Registry
from ._probe import probe
from ._tables import console, paragraph, plain_table


Kind = Literal["env", "pipeline", "agent"]
REGISTRIES: dict[Kind, Registry] = {"env": ENVS, "pipeline": PIPELINES, "agent": AGENTS}


class Row(NamedTuple):
    """Row of the plugin table; the keys of `eqsim plugins list --json`.

    - `name`: name of the plugin: `package:name` if the name alone refers to another
        plugin.
    - `status`: `available`, `broken` or `hidden`; `reason`: reason, empty if available.
    """

    name: str
    kind: Kind
    package: str
    version: str
    target: str
    status: str
    reason: str


def list_plugins(as_json: bool, check: bool, timeout: float) -> None:
    """Print all plugins. Without `check`, nothing is imported."""
    rows = [row for kind in REGISTRIES for row in _rows(kind, check, timeout)]
    if as_json:
        print(json.dumps([row._asdict() for row in rows], indent=2))
        return
    table = plain_table(*Row._fields[:-1])
    for row in rows:
        table.add_row(*map(Text, row[:-1]))
    out = console()
    out.print(table)
    for row in rows:
        if row.reason:
            out.print(Text(f"{row.status}: {row.name}: {row.reason}"))


def _rows(kind: Kind, check: bool, timeout: float) -> list[Row]:
    registry = REGISTRIES[kind]
    usable = _addresses(registry)
    hidden = [(k, p) for k, p in registry.hidden().items() if k == p.qualified]
    reasons = {name: plugin.malformed() for name, plugin in usable.items()}
    errors = {name: str(error) for name, error in registry.errors().items()}
    reasons |= {name: errors[name] for name in errors if name in usable}
    if check:
        foreign = {k: p for k, p in usable.items() if p.package != "eqsim"}
        reasons |= probe(registry, foreign, timeout)
    status = lambda name: "broken" if reasons[name] else "available"
    rows = [_row(k, kind, p, status(k), reasons[k]) for k, p in usable.items()]
    rows += [_row(name, kind, p, "hidden", p.hidden) for name, p in hidden]
    return sorted(rows)


def _row(name: str, kind: Kind, plugin: Plugin, status: str, reason: str) -> Row:
    about = plugin.package, plugin.version, plugin.target
    return Row(name, kind, *about, status, reason)


def _addresses(registry: Registry) -> dict[str, Plugin]:
    """List each plugin once, with the shortest name that refers to it."""
    plugins = registry.plugins()
    short = lambda p: p.name if plugins[p.name] == p else p.qualified
    return {short(plugin): plugin for plugin in plugins.values()}


def find(name: str, kind: Kind | None) -> list[tuple[Kind, Any]]:
    """Import and return the objects of the given name, with their kinds.

    **Raises:** `CommandError` if there are none; `PluginError` if one cannot be used.
    """
    kinds: list[Kind] = [*REGISTRIES] if kind is None else [kind]
    found: list[Kind] = [
        k for k in kinds if name in {*REGISTRIES[k].names(), *REGISTRIES[k].plugins()}
    ]
    found = found or [k for k in kinds if name in REGISTRIES[k].hidden()]
    if not found:
        known = sorted({n for k in kinds for n in REGISTRIES[k].names()})
        close = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
        hint = f" Did you mean {' or '.join(map(repr, close))}?" if close else ""
        what = "plugin" if kind is None else kind
        raise CommandError(
            f"There is no {what} {name!r}.{hint} Known: {', '.join(known)}."
        )
    # Output of the import is not part of the result.
    with contextlib.redirect_stdout(sys.stderr):
        return [(k, REGISTRIES[k].get(name)) for k in found]


def show_plugin(name: str, kind: Kind | None) -> None:
    """Print package, description and options of a plugin."""
    out = console()
    for number, (found, value) in enumerate(find(name, kind)):
        if number:
            out.print()
        table = plain_table("", "", show_header=False)
        for key, text in _facts(name, found).items():
            table.add_row(Text(key, style="bold"), Text(text))
        out.print(table)
        out.print(Text(f"\n{paragraph(value)}\n"))
        options = plain_table("option", "default")
        for parameter in inspect.signature(value).parameters.values():
            options.add_row(Text(parameter.name), Text(_default(parameter)))
        out.print(options if options.row_count else Text("no options"))


def _facts(name: str, kind: Kind) -> dict[str, str]:
    registry = REGISTRIES[kind]
    if name in registry.registered():
        return {"name": name, "kind": kind, "package": "none: registered by hand"}
    plugin = registry.plugins()[name]
    return {
        "name": name,
        "kind": kind,
        "package": f"{plugin.package} {plugin.version}",
        "target": plugin.target,
    }


def _default(parameter: inspect.Parameter) -> str:
    if parameter.default is parameter.empty:
        return "none: must be given"
    text = repr(parameter.default)
    return text if len(text) <= 60 else text[:57] + "..."
