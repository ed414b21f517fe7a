"""Common parts of equality constraints: softness, weights, offsets."""

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp

from ..model import System
from ..model._gather import take
from ._costs import TwoSided
from ._jacobians import sparse_jacobian
from ._rows import Rows
from ._softness import columns, impedance, Softness, softness, stiffness_weight


class EqualityConstants(NamedTuple):
    """Softness, whether they are active (1 or 0), and inverse weights of n constraints.

    - `weights`: one array `(n, *batch)` for each dimension.
    """

    soft: Softness
    active: Any
    weights: tuple[Any, ...]


def equality_constants(
    sys: System, which: tuple[int, ...], weights: tuple[Any, ...]
) -> EqualityConstants:
    """Compute the constants of the constraints `which`."""
    own = sys.equalities
    values = columns(own.solref, 2), columns(own.solimp, 5), own.active
    solref, solimp, active = take(values, which)
    soft = softness(solref, solimp, sys.dt[None], sys.safe_solref)
    return EqualityConstants(soft, active, weights)


class Violation(NamedTuple):
    """Violations of n equality constraints, one entry for each dimension.

    - `jacobian`: rows `(n, nv, *batch)`.
    - `value`, `rate`: violation and its rate, `(n, *batch)`.
    - `bias`: second derivative of the violation while all joint accelerations are zero.
    """

    jacobian: tuple[Any, ...]
    value: tuple[Any, ...]
    rate: tuple[Any, ...]
    bias: tuple[Any, ...]


def equality_rows(
    constants: EqualityConstants,
    violation: Violation,
    size,
    dofs: Sequence[Collection[int]],
) -> Rows:
    """Return the rows of n constraints.

    **Arguments:**

    - `dofs`: the degrees of freedom on which each constraint can act.
    - `size`: the violation of a constraint as one number, on which its impedance depends.
    """
    soft = constants.soft
    imp = impedance(soft, size)
    pull = soft.k * imp
    parts = zip(violation.value, violation.rate, violation.bias, strict=True)
    offsets = [soft.b * rate + pull * value + bias for value, rate, bias in parts]
    weights = [
        jnp.where(constants.active > 0.0, stiffness_weight(imp, weight), 0.0)
        for weight in constants.weights
    ]
    full = jnp.broadcast_shapes(*(x.shape for x in (*offsets, *weights)))
    join = lambda xs: jnp.concatenate([jnp.broadcast_to(x, full) for x in xs])
    every = [*dofs] * len(violation.jacobian)
    jacobian = sparse_jacobian(jnp.concatenate(violation.jacobian), every)
    return Rows(jacobian, TwoSided(join(weights)), (join(offsets),))
