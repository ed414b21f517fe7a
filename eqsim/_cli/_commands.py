"""Commands of plugins, published under the entry points `eqsim.commands`.

A command is a function whose signature and docstring define its arguments and help,
like those of `eqsim` itself, a dictionary of such functions by name, or a
`DynamicCommand`, which returns the function for given arguments.
"""

from collections.abc import Callable, Mapping
from typing import Any

from ..plugins import CommandError, COMMANDS, DynamicCommand, PluginError


Command = Callable | dict[str, Callable] | DynamicCommand

# Commands of packages that may not be installed.
_ELSEWHERE = {
    name: "eqsim-zoo" for name in ("train", "resume", "eval", "evaluate", "runs")
}


def published(name: str) -> Command | None:
    """Import and return the command of the given name; None if no package has it.

    **Raises:** `PluginError` if it cannot be used; `CommandError` if it belongs to a
    package that is not installed.
    """
    if name not in COMMANDS.names() and name not in COMMANDS.hidden():
        if name in _ELSEWHERE:
            package = _ELSEWHERE[name]
            raise CommandError(
                f"The command {name!r} comes with the package {package}, which is not "
                f"installed. Run `pip install '{package}[cli]'`."
            )
        return None
    return _checked(name, COMMANDS.get(name))


def summaries() -> tuple[dict[str, Callable], list[str]]:
    """Return stand-ins for all published commands, with their documentation, and the
    errors of broken ones. All commands are imported; broken ones are left out."""
    found, broken = {}, []
    for name in COMMANDS.names():
        try:
            found[name] = _stand_in(_checked(name, COMMANDS.get(name)))
        except PluginError as error:
            broken.append(str(error))
    return found, broken


def _checked(name: str, value: Any) -> Command:
    group = isinstance(value, Mapping) and value and all(map(callable, value.values()))
    if group:
        return dict(value)
    if callable(value) or isinstance(value, DynamicCommand):
        return value
    raise PluginError(
        f"The command {name!r} must be a function, a dictionary of functions by name, "
        f"or a `DynamicCommand`, got {value!r}. Report this to the authors of the "
        "package."
    )


def _stand_in(command: Command) -> Callable:
    def nothing() -> None: ...

    if isinstance(command, DynamicCommand):
        nothing.__doc__ = command.summary
    elif isinstance(command, dict):
        nothing.__doc__ = f"Subcommands: {', '.join(command)}."
    else:
        nothing.__doc__ = command.__doc__
    return nothing
