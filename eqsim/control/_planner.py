"""The interface of planners that draw many plans, and their common functions."""

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray

from .._errors import check_count, check_numbers
from ._forward_pass import open_loop, total_cost
from ._problem import Problem


class AbstractPlanner(eqx.Module):
    """A planner that draws many plans and compares their costs.

    The plan of before is always among those that are tried, and a plan whose cost is not
    finite is never followed.
    """

    @abc.abstractmethod
    def plan(
        self,
        cost: Callable[[Float[Array, "horizon n"]], Float[Array, ""]],
        start: Float[Array, "horizon n"],
        key: PRNGKeyArray,
        *,
        project: Callable[[Float[Array, " n"]], Float[Array, " n"]] = lambda u: u,
    ) -> tuple[Float[Array, "horizon n"], Float[Array, ""]]:
        """Improve a plan.

        **Arguments:**

        - `cost`: cost of a plan, JAX code, which may be a rollout.
        - `start`: the plan to improve.
        - `key`: a key of `jax.random.key`; equal keys draw equal noise.
        - `project`: maps an action to the nearest allowed one.

        **Returns:** the plan and its cost.
        """

    def init(self, problem: Problem, state: Any) -> Float[Array, "horizon nu"]:
        """Return the first plan: the controls within the limits nearest to zero."""
        dtype = jax.tree.leaves(state)[0].dtype
        rest = problem.clip(jnp.zeros(problem.dynamics.nu, dtype))
        return jnp.tile(rest, (problem.horizon, 1))

    def shift(
        self, plan: Float[Array, "horizon n"], steps: int = 1
    ) -> Float[Array, "horizon n"]:
        """Advance a plan in time; its last action is repeated."""
        return shifted(plan, steps)

    def solve(
        self,
        problem: Problem,
        state: Any,
        key: PRNGKeyArray,
        guess: Float[Array, "horizon nu"] | None = None,
    ) -> tuple[Float[Array, "horizon nu"], Float[Array, ""]]:
        """Plan actions for an optimal control problem.

        **Arguments:**

        - `problem`, `state`: the problem, and the first state of the plan.
        - `key`: a key of `jax.random.key`.
        - `guess`: actions to begin with; those of `init` by default.

        **Returns:** actions within the limits, and their cost. Constraints enter as
        quadratic penalties, see `plan_cost`.
        """
        problem.dynamics.check(state)
        start = self.init(problem, state) if guess is None else guess
        clip = jax.vmap(problem.clip)
        cost = plan_cost(problem, state)
        return self.plan(cost, clip(start), key, project=problem.clip)


def plan_cost(
    problem: Problem, state: Any, penalty: float = 1e4
) -> Callable[[Float[Array, "horizon nu"]], Float[Array, ""]]:
    """Make the cost of actions, by a rollout, as planners take it.

    **Arguments:**

    - `problem`, `state`: the problem, and the first state of plans.
    - `penalty`: weight of half the squared violations of constraints.

    **Returns:** a function of actions; infinite where a rollout is not finite.
    """
    factors = problem.multipliers(state)
    weight = jnp.asarray(penalty, factors.penalty.dtype)
    factors = factors._replace(penalty=weight)

    def cost(actions):
        states = open_loop(problem, state, actions)
        return total_cost(problem, states, actions, factors)

    return cost


def evaluated(cost: Callable, plans: Float[Array, "samples horizon n"]):
    """Compute the costs of plans, infinite where they are not finite."""
    costs = jax.vmap(cost)(plans)
    return jnp.where(jnp.isfinite(costs), costs, jnp.inf)


def shifted(tree: Any, steps: int) -> Any:
    """Advance arrays in time by some steps; the last row is repeated."""
    one = lambda x: jnp.concatenate([x[steps:], jnp.repeat(x[-1:], steps, 0)])
    return jax.tree.map(lambda x: one(x) if steps else x, tree)


def colored_noise(
    key: PRNGKeyArray, shape: tuple[int, int, int], exponent, dtype
) -> Float[Array, "samples horizon n"]:
    r"""Draw noise of unit variance whose power falls with frequency as
    $1/f^\beta$.

    **Arguments:**

    - `shape`: samples, horizon, controls.
    - `exponent`: $\beta$: 0 white, 1 pink, 2 Brownian.

    ??? cite "Reference"
        Timmer, König, *On generating power law noise*, 1995, as in Pinneri et al.,
        *Sample-efficient cross-entropy method*, 2020 (iCEM).
    """
    samples, horizon, n = shape
    if horizon == 1:
        return jr.normal(key, shape, dtype)
    frequency = np.fft.rfftfreq(horizon)
    # The lowest frequency stands for the mean too.
    frequency[0] = frequency[1]
    scale = jnp.asarray(frequency, dtype) ** (-0.5 * exponent)
    parts = jr.normal(key, (2, samples, len(frequency), n), dtype)
    parts = parts * scale[None, None, :, None]
    spectrum = lax.complex(parts[0], parts[1])
    noise = jnp.fft.irfft(spectrum, n=horizon, axis=1)
    # The variance of each sum of waves; mean and Nyquist frequency have no sine.
    weight = np.full(len(frequency), 2.0)
    weight[0] = 0.5
    if horizon % 2 == 0:
        weight[-1] = 0.5
    power = jnp.asarray(2.0 * weight, dtype) * scale**2
    return noise * horizon / jnp.sqrt(jnp.sum(power))


def check_planner(planner: Any, sizes: tuple[str, ...], positive: tuple[str, ...]):
    """Raise `ValueError` unless sizes are at least 1, and numbers positive."""
    name = type(planner).__name__
    for field in sizes:
        check_count(f"{name}.{field}", vars(planner)[field])
    for field in positive:
        check_field(planner, field, lambda x: x > 0.0, "positive")


def check_field(planner: Any, field: str, accepted: Callable, expected: str) -> None:
    """Raise `ValueError` unless the numbers of a field are accepted."""
    name = f"{type(planner).__name__}.{field}"
    check_numbers(name, vars(planner)[field], accepted, expected)
