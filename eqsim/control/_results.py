"""Result codes of solvers."""

import equinox as eqx


class RESULTS(eqx.Enumeration):
    """Result codes of the solvers of optimal control and inverse kinematics."""

    successful = ""
    max_steps = (
        "The solver took `max_steps` iterations without reaching its tolerance. Increase "
        "`max_steps`, or start from a better guess."
    )
    regularization_limit = (
        "No step decreases the cost, even with the largest regularization. The plan is "
        "the best one so far; rounding errors or a discontinuous cost are usual causes."
    )
    nonfinite = (
        "The first guess has a cost, a state or an action that is not finite. Start from "
        "other actions or a shorter horizon."
    )
    infeasible = (
        "The constraints are violated by more than `constraint_tolerance` after "
        "`max_penalty_steps` updates of the multipliers. They may contradict each other "
        "or the limits of the controls."
    )


# Results as loops carry them.
PENDING = -1
SOLVED, MAX_STEPS, REGULARIZATION_LIMIT, NONFINITE, INFEASIBLE = range(5)
_CODES = (
    RESULTS.successful,
    RESULTS.max_steps,
    RESULTS.regularization_limit,
    RESULTS.nonfinite,
    RESULTS.infeasible,
)


def result_of(code) -> RESULTS:
    """Convert the number of a result, as loops carry it."""
    out = _CODES[0]
    for k, item in enumerate(_CODES[1:], 1):
        out = RESULTS.where(code == k, item, out)
    return out
