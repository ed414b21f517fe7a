"""`make`: environments by registered name, or by the place of their class in Python."""

import difflib
import importlib
import inspect
import re
from collections.abc import Callable
from typing import Any

from .._errors import check_type
from ..pipelines import AbstractPipeline
from ..plugins import ENVS, PIPELINES
from ._env import AbstractEnv


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


def make(
    name: str, *, pipeline: AbstractPipeline | str | None = None, **options: Any
) -> AbstractEnv:
    """Create an environment by name.

    `eqsim.ENVS.names()` lists all installed environments. A package adds one by an
    entry point in the group `eqsim.envs`.

    **Arguments:**

    - `name`: name of the environment, for instance `"ant"`; `"package:name"` if two
        packages have the name; or `"module:object"` with a class of your own, or a function
        that returns an environment, which is imported.
    - `pipeline`: a pipeline, for instance `Generalized()`, or a name from
        `eqsim.PIPELINES.names()`. By default, the default of the environment.
    - `options`: options of the environment.

    **Returns:** the environment, without `TimeLimit` and `AutoReset`.

    !!! example

        ```python
        env = eqsim.make("ant", pipeline="generalized")
        ```
    """
    known = "`eqsim.ENVS.names()` lists all names."
    check_type("name", name, str, "the name of an environment", known)
    env = import_env(name) if is_import_path(name) else ENVS.get(name)
    chosen: Any = pipeline
    if isinstance(pipeline, str):
        chosen = PIPELINES.get(pipeline)()
    if inspect.isclass(chosen):
        raise TypeError(
            f"`pipeline` must be an object, but is the class `{chosen.__name__}`. "
            f"Write `pipeline={chosen.__name__}()`."
        )
    if chosen is not None and not isinstance(chosen, AbstractPipeline):
        raise TypeError(
            f"`pipeline` must be a pipeline or the name of one, but is {chosen!r}. "
            f"Names: {', '.join(PIPELINES.names())}."
        )
    if chosen is not None:
        options["pipeline"] = chosen
    _check_options(name, env, options)
    made = env(**options)
    if not isinstance(made, AbstractEnv):
        raise TypeError(
            f"{name!r} must be a class derived from `eqsim.AbstractEnv`, or a function that "
            f"returns an environment, but makes an object of type `{type(made).__name__}`."
        )
    return made


def _check_options(name: str, env: Callable, options: dict[str, Any]) -> None:
    parameters = inspect.signature(env).parameters.values()
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return
    known = [p.name for p in parameters if p.kind is not p.POSITIONAL_ONLY]
    for option in options:
        if option not in known:
            close = difflib.get_close_matches(option, known, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise TypeError(
                f"The environment {name!r} has no option {option!r}.{hint} "
                f"Options: {', '.join(known) or 'none'}."
            )
