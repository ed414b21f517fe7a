"""`eqsim plugins new`"""

import importlib.metadata
import importlib.resources
import importlib.util
import keyword
import pathlib
import re
import sys
from string import Template

from ..plugins import API_VERSION, CommandError, normalized
from ._plugins import Kind, REGISTRIES


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
        return module
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "robot"
    advice = plain if plain.startswith("my-") else f"my-{plain}"
    raise CommandError(f"{name!r} is not accepted: {reason}. Try {advice!r}.")
