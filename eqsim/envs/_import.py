"""Environments that are named by the place of their class or function in Python."""

import importlib
import re
from collections.abc import Callable

from .._registry import ENVS


_PATH = re.compile(r"([^\W\d]\w*(?:\.[^\W\d]\w*)*):([^\W\d]\w*)")


def is_import_path(name: str) -> bool:
    """Test if a name of an environment has the form `module:object` and is not the
    `package:name` of a plugin.

    The object is a class derived from `AbstractEnv`, or a function that returns an
    environment. To make such an environment imports the module, so do it only for names
    given by the user, not for names read from files.
    """
    plugin = name in ENVS.plugins() or name in ENVS.hidden()
    return _PATH.fullmatch(name) is not None and not plugin


def check_not_imported(name: str, source: str) -> None:
    """Raise `ValueError` if a file names an environment by `module:object`: only names
    given by the user import a module.

    **Arguments:**

    - `name`: name of an environment, as read from the file.
    - `source`: the file, for the message.
    """
    if is_import_path(name):
        raise ValueError(
            f"{source} names the environment {name!r}. Modules named by files are not "
            f"imported: if you trust this one, pass the environment, on the command line "
            f"`--env {name}`, in Python `eqsim.make({name!r})`."
        )


def import_env(name: str) -> Callable:
    """Import the class or function that a name `module:object` refers to.

    **Raises:** `ValueError` if there is no such module, or it has no such object.
    """
    match = _PATH.fullmatch(name)
    assert match is not None
    module, member = match.groups()
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # A package that the module needs.
        raise ValueError(
            f"There is no environment {name!r}: Python finds no module {error.name!r}, and "
            f"no plugin has this name. Run the command in the folder of "
            f"`{module.replace('.', '/')}.py`, or add that folder to `PYTHONPATH`. "
            f"Environments with a name: {', '.join(ENVS.names())}."
        ) from error
    if member not in vars(found) or not callable(vars(found)[member]):
        own = {n: x for n, x in vars(found).items() if callable(x) and n[0] != "_"}
        names = [n for n, x in own.items() if x.__module__ == found.__name__]
        raise ValueError(
            f"There is no environment {name!r}: the module {module!r} has no class or "
            f"function {member!r}. Known: {', '.join(sorted(names)) or 'none'}."
        )
    return vars(found)[member]
