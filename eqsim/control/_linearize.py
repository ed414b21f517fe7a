from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._errors import check_shape
from ..envs import AbstractEnv
from ..kinematics import difference, integrate
from ..model import check_state, State, System
from ..pipelines import AbstractPipeline


class Linearization(NamedTuple):
    r"""The linear model of one control step, $x' = A x + B u$, $y = C x + D u$.

    $x = (\delta q, \delta \dot q, \delta a)$ are small changes of coordinates,
    velocities and activations, in tangent coordinates: a change of orientation has
    three numbers, about the axes of the body (see `eqsim.kinematics.integrate`). $u$ is
    a change of the action, $y$ that of the observation, which is one of the new state.

    - `A`: `(2 nv + na, 2 nv + na)`.
    - `B`: `(2 nv + na, nu)`.
    - `C`: `(nobs, 2 nv + na)`.
    - `D`: `(nobs, nu)`.
    """

    A: Float[Array, "nx nx"]
    B: Float[Array, "nx nu"]
    C: Float[Array, "nobs nx"]
    D: Float[Array, "nobs nu"]


def linearize(
    env: AbstractEnv, state: State, action: Float[Array, " nu"]
) -> Linearization:
    r"""Linearize a control step of an environment.

    With $f$ the control step and $h$ the observation,
    $A = \partial (f(x_0 \oplus x, u_0) \ominus f(x_0, u_0)) / \partial x$ at $x = 0$,
    $B$ likewise by the action; $C$ and $D$ are the derivatives of $h(f(x, u))$. All are
    exact, by forward mode. For a batch of states, wrap it in `eqx.filter_vmap`.

    **Arguments:**

    - `env`: environment with any pipeline.
    - `state`, `action`: point of linearization.

    **Returns:** the four matrices, which also unpack: `A, B, C, D = linearize(...)`.

    **Raises:** `ValueError` if a shape is wrong.
    """
    _check(env.sys, state, "action", action)

    def step(state, action):
        new, timestep = env.step(state, action)
        return new, timestep.obs

    return Linearization(*jacobians(env.sys, step, state, action))


def linearize_step(
    pipeline: AbstractPipeline, sys: System, state: State, ctrl: Float[Array, " nu"]
) -> tuple[Float[Array, "nx nx"], Float[Array, "nx nu"]]:
    r"""Linearize one time step of a pipeline, without an environment.

    **Arguments:**

    - `pipeline`, `sys`: the physics and the robot.
    - `state`, `ctrl`: point of linearization.

    **Returns:** $A$ and $B$ of `Linearization`, for one step of `sys.dt` (MuJoCo:
    `mjd_transitionFD`).

    **Raises:** `ValueError` if a shape is wrong.
    """
    _check(sys, state, "ctrl", ctrl)
    step = lambda state, ctrl: (pipeline.step(sys, state, ctrl), ctrl[:0])
    A, B, _, _ = jacobians(sys, step, state, ctrl)
    return A, B


def _check(sys: System, state: State, name: str, ctrl) -> None:
    check_state(sys, state.q, state.qd, act=state.act)
    check_shape(name, ctrl, {"nu": sys.nu})


def jacobians(sys: System, step: Callable, state: State, ctrl):
    """Return the Jacobians of the new state, as a tangent vector, and of the second
    output of `step`."""
    nv, size = sys.nv, 2 * sys.nv + sys.na

    def outputs(change):
        shift, rate, act, push = jnp.split(change, (nv, 2 * nv, size))
        q = integrate(sys, state.q, shift)
        moved = State(q, state.qd + rate, state.act + act, state.aux)
        new, seen = step(moved, ctrl + push)
        return (new.q, jnp.concatenate([new.qd, new.act]), seen), new.q

    none = jnp.zeros(size + sys.nu, state.q.dtype)
    (shift, rest, seen), end = jax.jacfwd(outputs, has_aux=True)(none)
    # From numbers to tangent coordinates at the end of the step.
    tangent = jax.jacfwd(lambda q: difference(sys, end, q))(end)
    shift = jnp.matmul(tangent, shift, precision=jax.lax.Precision.HIGHEST)
    after = jnp.concatenate([shift, rest])
    return [block for x in (after, seen) for block in (x[:, :size], x[:, size:])]
