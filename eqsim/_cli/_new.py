"""`eqsim plugins new`"""

import importlib.metadata
import importlib.resources
import importlib.util
import keyword
import pathlib
import re
import sys
from string import Template

from .._discovery import normalize
from .._handshake import API_VERSION
from ._names import UsageError
from ._plugins import Kind, REGISTRIES


_FILES = {
    "pyproject.toml": "pyproject.toml",
    "README.md": "README.md",
    "src/$module/__init__.py": "$kind.py",
    "src/$module/py.typed": "",
    "tests/test_$module.py": "test_$kind.py",
}
"""What is written, and from which template."""

_USAGE = {
    "env": '`eqsim.make("$module")` makes it, `eqsim rollout $module` runs it.',
    "pipeline": '`eqsim.make("ant", pipeline="$module")` uses it.',
    "agent": '`eqsim.AGENTS.get("$module")()` makes it.',
}
_WORDS = {"env": "environment", "pipeline": "pipeline", "agent": "agent"}
_USED = ("any", "array", "bool", "contacts", "float")
_GROUPS = {kind: registry.group for kind, registry in REGISTRIES.items()}


def new_plugin(name: str, kind: Kind, out: str) -> None:
    """Writes a package that publishes one object of a kind, and says what to do next.

    **Raises:** `UsageError` if the name will not do; `FileExistsError` if the folder
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
        "word": _WORDS[kind],
        "Article": "A" if kind == "pipeline" else "An",
        "usage": Template(_USAGE[kind]).substitute(module=module),
        "group": _GROUPS[kind],
        "api": API_VERSION.partition(".")[0],
        "version": importlib.metadata.version("eqsim"),
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


def _template(name: str) -> str:
    folder = importlib.resources.files("eqsim._cli") / "_templates"
    return (folder / f"{name}.template").read_text(encoding="utf-8")


def _module(name: str, kind: Kind) -> str:
    """The module of a package of that name, which is also what it publishes.

    **Raises:** `UsageError` with advice if the name will not do.
    """
    module = normalize(name).replace("-", "_")
    if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?", name):
        reason = (
            "has letters and digits of ASCII, with '-', '_' or '.' between them only"
        )
    elif module[0].isdigit():
        reason = "does not begin with a digit, as no module of Python does"
    elif keyword.iskeyword(module) or keyword.issoftkeyword(module):
        reason = "is no word of Python's own"
    elif module in sys.stdlib_module_names or module in ("eqsim", "test", "tests"):
        reason = "is not that of a module of Python or of eqsim"
    elif module in _USED:
        reason = "is not that of a class which its module uses itself"
    elif importlib.util.find_spec(module) is not None:
        reason = f"is not taken: a module {module!r} is installed"
    elif module in REGISTRIES[kind].names():
        reason = (
            f"is not taken: there is {_WORDS[kind]} {module!r} (`eqsim plugins list`)"
        )
    else:
        return module
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "robot"
    advice = plain if plain.startswith("my-") else f"my-{plain}"
    raise UsageError(
        f"{name!r} will not do: the name of a package {reason}. Try {advice!r}."
    )
