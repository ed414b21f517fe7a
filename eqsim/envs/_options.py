"""Options of `reset`: a given initial state."""

import difflib
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import equinox as eqx
from jaxtyping import Array, Float

from .._errors import check_shape
from ..model import System


class ResetOptions(eqx.Module):
    """A given initial state. Parts that are None are drawn at random.

    **Arguments:**

    - `q`: coordinates.
    - `qd`: velocities.
    - `sys`: robot of this episode, for environments with a different robot in each
        episode, such as `DomainRandomization`.
    - `context`: randomized parameters of the robot as one vector, for the same
        environments.
    """

    q: Float[Array, " nq"] | None = None
    qd: Float[Array, " nv"] | None = None
    sys: System | None = None
    context: Float[Array, " ncontext"] | None = None


def reset_options(options: ResetOptions | Mapping[str, Any] | None) -> ResetOptions:
    """Convert a dictionary to `ResetOptions`; options that already are one are
    returned.

    **Raises:** `ValueError` if a name is unknown.
    """
    if isinstance(options, ResetOptions):
        return options
    known = [field.name for field in fields(ResetOptions)]
    for name in options or {}:
        if name not in known:
            close = difflib.get_close_matches(str(name), known, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise ValueError(
                f"There is no reset option {name!r}.{hint} Options: {', '.join(known)}."
            )
    return ResetOptions(**(options or {}))


def check_start(sys: System, options: ResetOptions) -> None:
    """Raise `ValueError` unless coordinates and velocities fit the robot."""
    if options.q is not None:
        check_shape("options.q", options.q, {"nq": sys.nq})
    if options.qd is not None:
        check_shape("options.qd", options.qd, {"nv": sys.nv})


def same_robot_options(
    env: Any, options: ResetOptions | Mapping[str, Any] | None
) -> ResetOptions:
    """Return the reset options for an environment with the same robot in every episode.

    **Raises:** `ValueError` if an option is unknown or selects another robot, or if
    coordinates and velocities do not fit the robot.
    """
    options = reset_options(options)
    for name, value in (("sys", options.sys), ("context", options.context)):
        if value is not None:
            raise ValueError(
                f"`options.{name}`: the robot of `{type(env).__name__}` is the same in "
                "every episode. Wrap it in `eqsim.DomainRandomization`, or change "
                "`env.sys` with `eqx.tree_at`."
            )
    check_start(env.sys, options)
    return options
