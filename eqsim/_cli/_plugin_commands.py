"""`eqsim plugins`: list, show, check and create plugins.

`list --check` imports plugins in separate processes, because an import may print, hang,
crash or exit. Such a process runs this module, see the end of the file.
"""

import contextlib
import importlib.metadata
import importlib.resources
import importlib.util
import inspect
import itertools
import json
import keyword
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from string import Template
from typing import Any, Literal, NamedTuple

from rich.text import Text

from ..envs import is_import_path, make
from ..plugins import (
    AGENTS,
    API_VERSION,
    CommandError,
    ENVS,
    normalized,
    PIPELINES,
    Plugin,
    Registry,
)
from ..testing.conformance import checks_of, outcomes
from ._inventory import check_known, console, paragraph, plain_table


Kind = Literal["env", "pipeline", "agent"]


REGISTRIES: dict[Kind, Registry] = {"env": ENVS, "pipeline": PIPELINES, "agent": AGENTS}


# --- List and show ---


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
        known = {n for k in kinds for n in REGISTRIES[k].names()}
        check_known("plugin" if kind is None else kind, name, known)
    # Output of the import is not part of the result.
    with contextlib.redirect_stdout(sys.stderr):
        return [(k, REGISTRIES[k].get(name)) for k in found]


# --- Check ---


_STYLES = {"passed": "green", "failed": "bold red", "expected failure": "yellow"}


def check_plugin(name: str, kind: Kind | None) -> None:
    """Run the conformance kit; print one line per check.

    **Raises:** `CommandError` if a check failed.
    """
    failed = total = 0
    own = kind in (None, "env") and is_import_path(name)
    kinds: list[tuple[Kind, Any]] = [("env", make)] if own else find(name, kind)
    for found, maker in kinds:
        total += 1
        try:
            value = make(name) if found == "env" else maker()
            checks = checks_of(value)
        except Exception as error:
            failed += 1
            text = f"{type(error).__name__}: {error}"
            _say("failed", f"{found} is made without options", text)
            continue
        _say("passed", f"{found} is made without options")
        for check, status, reason in outcomes(value, checks):
            total, failed = total + 1, failed + (status == "failed")
            _say(status, f"{found} {check.name}", reason)
    if failed:
        raise CommandError(f"{failed} of {total} checks of {name!r} failed.", 1)


def _say(status: str, what: str, reason: str = "") -> None:
    line = Text(f"{status:16} ", style=_STYLES.get(status, ""))
    line.append(what, style="")
    if reason:
        line.append(": " + reason.strip().replace("\n", "\n" + 17 * " "), style="")
    console().print(line, soft_wrap=True)


# --- New ---


_FILES = {
    "pyproject.toml": "pyproject.toml",
    "README.md": "README.md",
    "src/$module/__init__.py": "$kind.py",
    "src/$module/py.typed": "",
    "tests/test_$module.py": "test_$kind.py",
}
"""Files to write, with their templates."""


_USAGE = {
    "env": '`eqsim.make("$module")` makes it, `eqsim rollout $module` runs it.',
    "pipeline": '`eqsim.make("ant", pipeline="$module")` uses it.',
    "agent": "`eqsim train $module point_mass` trains it, `eqsim eval` evaluates the run.",
}


_PACKAGES = {"env": ("eqsim",), "pipeline": ("eqsim",), "agent": ("eqsim", "eqsim-zoo")}
"""Distributions that the templates import."""


_ARTICLES = {"env": "an environment", "pipeline": "a pipeline", "agent": "an agent"}


_USED = ("any", "array", "batch", "bool", "float", "int", "solved", "state")
"""Modules whose class would have the name of one that a template imports."""


_GROUPS = {kind: registry.group for kind, registry in REGISTRIES.items()}


def new_plugin(name: str, kind: Kind, out: str) -> None:
    """Write a package that publishes one object, and print the next steps.

    **Raises:** `CommandError` if the name is invalid; `FileExistsError` if the folder
    exists.
    """
    module = _module(name, kind)
    folder = pathlib.Path(out, name)
    if folder.exists():
        raise FileExistsError(
            f"{folder} exists already, and nothing in it was changed. Choose another name "
            "or another `--out`."
        )
    values = {
        "name": name,
        "module": module,
        "title": "".join(part.capitalize() for part in module.split("_")),
        "kind": kind,
        "What": _ARTICLES[kind].capitalize(),
        "usage": Template(_USAGE[kind]).substitute(module=module),
        "group": _GROUPS[kind],
        "api": API_VERSION.partition(".")[0],
        "dependencies": ", ".join(map(_requirement, _PACKAGES[kind])),
    }
    for target, source in _FILES.items():
        path = folder / Template(target).substitute(values)
        path.parent.mkdir(parents=True, exist_ok=True)
        text = _template(Template(source).substitute(values)) if source else ""
        path.write_text(Template(text).substitute(values), encoding="utf-8")
    print(
        f"wrote {folder}. Next:\n\n  pip install -e '{folder}[test]'\n"
        f"  pytest {folder}\n  eqsim plugins check {module}"
    )


def _requirement(package: str) -> str:
    """Return a requirement of `pyproject.toml`: at least the installed version; any
    version of a package that is not installed."""
    try:
        return f'"{package}>={importlib.metadata.version(package)}"'
    except importlib.metadata.PackageNotFoundError:
        return f'"{package}"'


def _template(name: str) -> str:
    folder = importlib.resources.files("eqsim._cli") / "_templates"
    return (folder / f"{name}.template").read_text(encoding="utf-8")


def _module(name: str, kind: Kind) -> str:
    """Return the module name of a package, which is also the name of the plugin.

    **Raises:** `CommandError` with advice if the name is invalid.
    """
    reason = _objection(name, kind)
    if reason:
        plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "robot"
        plain = plain if plain.startswith("my-") else f"my-{plain}"
        numbered = (f"{plain}-{number}" for number in itertools.count(2))
        others = itertools.chain([plain], numbered)
        advice = next(other for other in others if not _objection(other, kind))
        raise CommandError(f"{name!r} is not accepted: {reason}. Try {advice!r}.")
    return normalized(name).replace("-", "_")


def _objection(name: str, kind: Kind) -> str:
    """Return the reason why a name of a package is not accepted; empty if it is."""
    module = normalized(name).replace("-", "_")
    if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?", name):
        reason = (
            "names of packages consist of ASCII letters and digits, with '-', '_' or '.' "
            "between them"
        )
    elif module[0].isdigit():
        reason = f"{module!r} is not a valid module name"
    elif keyword.iskeyword(module) or keyword.issoftkeyword(module):
        reason = f"{module!r} is a Python keyword"
    elif module in sys.stdlib_module_names or module in ("eqsim", "test", "tests"):
        reason = f"it would hide another module {module!r}"
    elif module in _USED:
        reason = "its class would hide another one that it uses"
    elif module in REGISTRIES[kind].names():
        reason = f"there already is {_ARTICLES[kind]} {module!r} (`eqsim plugins list`)"
    elif importlib.util.find_spec(module) is not None:
        reason = f"a module {module!r} is already installed"
    else:
        reason = ""
    return reason


# --- Imports in separate processes ---


_START = 120.0
"""Timeout for starting Python and eqsim, s."""


def probe(
    registry: Registry, plugins: Mapping[str, Plugin], timeout: float
) -> dict[str, str]:
    """Return the reason why each plugin cannot be used, by name; empty if it can.

    One process imports all plugins of a package. If it hangs or exits, another process
    continues after the plugin that caused it.

    **Arguments:**

    - `timeout`: time limit of an import, s.
    """
    out: dict[str, str] = {}
    package = lambda name: plugins[name].package
    for _, names in itertools.groupby(sorted(plugins, key=package), package):
        rest = list(names)
        while rest:
            reasons, end = _import_all(registry.group, rest, timeout)
            out |= zip(rest, reasons)
            rest = rest[len(reasons) :]
            if rest:
                out[rest.pop(0)] = end
    return out


def _import_all(group: str, names: list[str], timeout: float) -> tuple[list[str], str]:
    """Return the reasons of the first plugins, and the outcome of the next one."""
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder, "report")
        report.touch()
        command = [
            sys.executable,
            "-P",
            "-m",
            "eqsim._cli._plugin_commands",
            str(report),
            group,
        ]
        path = os.pathsep.join(str(folder) for folder in sys.path)
        process = subprocess.Popen(
            [*command, *names],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"PYTHONPATH": path},
        )
        try:
            end = _wait(process, report, timeout)
        finally:
            process.kill()
            process.wait()
        lines = report.read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines[1:]], end


def _wait(process: subprocess.Popen, report: pathlib.Path, timeout: float) -> str:
    """Wait for the end, or until nothing was reported for too long; return which of the
    two."""
    size, limit, since = 0, _START, time.monotonic()
    while process.poll() is None:
        if report.stat().st_size != size:
            size, limit, since = report.stat().st_size, timeout, time.monotonic()
        if time.monotonic() - since > limit:
            return f"hangs: its import did not end within {limit:g} s"
        time.sleep(0.02)
    return f"crashes: its import ended Python with status {process.returncode}"


def _main() -> None:
    """Run the process: print a line after the start, and one for each plugin."""
    from ..plugins import PluginError, REGISTRIES

    report, group, *names = sys.argv[1:]
    registry = next(registry for registry in REGISTRIES if registry.group == group)
    with open(report, "a", encoding="utf-8", buffering=1) as file:
        file.write("\n")
        for name in names:
            try:
                registry.get(name)
                reason = ""
            except PluginError as error:
                reason = str(error)
            file.write(json.dumps(reason) + "\n")


if __name__ == "__main__":
    _main()
