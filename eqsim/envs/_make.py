import difflib
import inspect
from collections.abc import Callable
from typing import Any

from .._errors import check_type
from ..pipelines import AbstractPipeline
from ..plugins import ENVS, PIPELINES
from ._env import AbstractEnv
from ._import import import_env, is_import_path


def make(
    name: str, *, pipeline: AbstractPipeline | str | None = None, **options: Any
) -> AbstractEnv:
    """Create an environment by name.

    `eqsim.ENVS.names()` lists all installed environments. A package adds one by an
    entry point in the group `eqsim.envs`.

    **Arguments:**

    - `name`: name of the environment, for instance `"ant"`; or `"module:object"` with a
        class of your own, or a function that returns an environment, which is imported.
    - `pipeline`: a pipeline, for instance `Generalized()`, or a name from
        `eqsim.PIPELINES.names()`. By default, the default of the environment.
    - `options`: options of the environment.

    **Returns:** the environment.

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
