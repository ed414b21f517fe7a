"""Model predictive control: a planner as a policy with memory."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from .._controller import AbstractController
from ..model import State
from ._forward_pass import open_loop
from ._ilqr import ILQR
from ._planner import AbstractPlanner, shifted
from ._problem import Problem
from ._tangent import where


class MPC(AbstractController):
    """Model predictive control: plan anew at every control step from the last plan.

    A policy for `eqsim.rollout`; one compiled call is `act`. The plan is advanced by one
    control step, improved, and its first action is applied. A plan that is not finite is
    not followed: the last one goes on.

    **Arguments:**

    - `planner`: `ILQR(max_steps=1)` for one iteration a step, `CEM()`,
        `PredictiveSampling()` or `MPPI()`.
    - `problem`: the problem to solve at each step; its control step is that of the
        environment.
    - `delay`: 0, or 1 if an action is applied one control step after the state it was
        computed from was measured. The plan then begins at the state that the model
        predicts for that time. With delay, the first action is that of the first plan
        for the first state.
    - `first_planner`: planner of the first plan; by default `planner`, with at least 100
        iterations of `ILQR`.

    **Raises:** `ValueError` if the delay is neither 0 nor 1.
    """

    planner: ILQR | AbstractPlanner
    problem: Problem
    delay: int = eqx.field(static=True, default=0)
    first_planner: ILQR | AbstractPlanner | None = None

    def __check_init__(self):
        if self.delay not in (0, 1):
            raise ValueError(f"`MPC.delay` must be 0 or 1, got {self.delay}.")

    def init(self, state: State, key: PRNGKeyArray) -> tuple[Any, Any]:
        """Compute the first plan.

        **Arguments:** as of `AbstractController`.

        **Returns:** the plan (states and actions), and the action to apply next (None
        without delay).
        """
        T, nu = self.problem.horizon, self.problem.dynamics.nu
        zeros = jnp.zeros((T, nu), state.q.dtype)
        actions = jax.vmap(self.problem.clip)(zeros)
        plan = open_loop(self.problem, state, actions), actions
        plan = _improved(self._first(), self.problem, state, plan, key)
        if not self.delay:
            return _back(plan), None
        return plan, plan[1][0]

    def _first(self) -> ILQR | AbstractPlanner:
        if self.first_planner is not None:
            return self.first_planner
        if isinstance(self.planner, ILQR):
            steps = max(self.planner.max_steps, 100)
            return dataclasses.replace(self.planner, max_steps=steps)
        return self.planner

    def act(
        self, memory: tuple[Any, Any], state: State, obs: Any, key: PRNGKeyArray
    ) -> tuple[tuple[Any, Any], Float[Array, " nu"]]:
        """Advance and improve the plan, and return its action.

        **Arguments:** as of `AbstractController`; `obs` is not read.
        """
        del obs
        plan, pending = memory
        start = state
        if self.delay:
            start = self.problem.dynamics.step(state, pending)
        plan = shifted(plan, 1)
        plan = _improved(self.planner, self.problem, start, plan, key)
        first = plan[1][0]
        if not self.delay:
            return (plan, None), first
        return (plan, first), pending


def _back(plan):
    """A plan one step earlier, which the first call of `act` advances."""
    return jax.tree.map(lambda x: jnp.concatenate([x[:1], x[:-1]]), plan)


def _improved(planner, problem: Problem, state, plan, key):
    if isinstance(planner, ILQR):
        found = planner.solve(problem, state, plan)
        new = found.states, found.actions
        finite = jnp.isfinite(found.value) & jnp.all(jnp.isfinite(found.actions))
        return where(finite, new, plan)
    key, _ = jr.split(key)
    actions, _ = planner.solve(problem, state, key, plan[1])
    return plan[0], actions
