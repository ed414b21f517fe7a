"""Model predictive control: a planner as a policy with memory, and latency of commands."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from .._errors import check_count, check_shape
from .._loops import scan
from .._policies import AbstractController
from ._dynamics import as_dynamics, Timed, TimedDynamics, where
from ._ilqr import ILQR
from ._iterations import open_loop
from ._planners import AbstractPlanner, shifted
from ._problem import ControlProblem


def predict(system: Any, state: Any, pending: Float[Array, "latency nu"]) -> Any:
    """Compute the state at which the next command acts, on a robot with latency.

    The model is rolled forward over the commands that have been sent and have not acted
    yet. Feedback of the predicted state in place of the measured one is, for an exact
    model, the feedback of a robot without latency (a Smith predictor in state space).

    **Arguments:**

    - `system`: an environment, a pair `(pipeline, sys)`, or an `AbstractDynamics`.
    - `state`: the measured state.
    - `pending`: commands sent and not applied yet, oldest first, one for each control
        step of latency. May be empty.

    **Returns:** the state after the last of them.

    **Raises:** `ValueError` if a shape is wrong.
    """
    dynamics = as_dynamics(system)
    latency = pending.shape[0] if pending.ndim else 0
    check_shape("pending", pending, {"latency": latency, "nu": dynamics.nu})
    dynamics.check(state)
    if not latency:
        return state
    return scan(lambda x, u: (dynamics.step(x, u), None), state, pending)[0]


class MPC(AbstractController):
    """Model predictive control: replan at every control step from the last plan.

    A policy for `eqsim.rollout`; one compiled call is `act`. The plan is advanced by one
    control step, improved, and its first action is applied. A plan that is not finite is
    discarded, and the last one is continued.

    **Arguments:**

    - `planner`: `ILQR(max_steps=1)` for one iteration a step, `CEM()`,
        `PredictiveSampling()` or `MPPI()`.
    - `problem`: the problem to solve at each step; its control step is that of the
        environment.
    - `delay`: control steps that computing takes: `act` returns the action that was
        computed so many calls ago. The first ones are those of the first plan.
    - `first_planner`: planner of the first plan; by default `planner`, with at least 100
        iterations of `ILQR`.
    - `latency`: control steps from sending an action until it acts on the robot. Until
        the first one acts, the control within the limits that is nearest to zero does.

    With either, the plan begins at the state that `predict` computes for the time at
    which its first action acts. For `TimedDynamics`, steps are counted from the call of
    `init`, unless states are `Timed`.

    **Raises:** `ValueError` if the delay is negative or longer than the horizon, or the
    latency is negative.
    """

    planner: ILQR | AbstractPlanner
    problem: ControlProblem
    delay: int = eqx.field(static=True, default=0)
    first_planner: ILQR | AbstractPlanner | None = None
    latency: int = eqx.field(static=True, default=0)

    def __check_init__(self):
        horizon = self.problem.horizon
        check_count("MPC.delay", self.delay, 0)
        check_count("MPC.latency", self.latency, 0)
        if self.delay > horizon:
            raise ValueError(
                f"`MPC.delay` must be from 0 to the horizon ({horizon}), got {self.delay}."
            )

    def init(self, state: Any, key: PRNGKeyArray) -> tuple[Any, Any]:
        """Compute the first plan.

        **Arguments:** as of `AbstractController`.

        **Returns:** the plan (states and actions), and the actions that have not acted
        yet, `(latency + delay, nu)`, oldest first.
        """
        T, nu = self.problem.horizon, self.problem.dynamics.nu
        zeros = jnp.zeros((T, nu), jax.tree.leaves(state)[0].dtype)
        actions = jax.vmap(self.problem.clip)(zeros)
        idle = jnp.tile(self.problem.clip(zeros[0])[None], (self.latency, 1))
        if isinstance(self.problem.dynamics, TimedDynamics):
            state = state if isinstance(state, Timed) else Timed(state)
        state = predict(self.problem.dynamics, state, idle)
        plan = open_loop(self.problem, state, actions), actions
        plan = _improved(self._first(), self.problem, state, plan, key)
        if not self.delay:
            return _back(plan), idle
        first = plan[1][: self.delay]
        return shifted(plan, self.delay - 1), jnp.concatenate([idle, first])

    def _first(self) -> ILQR | AbstractPlanner:
        if self.first_planner is not None:
            return self.first_planner
        if isinstance(self.planner, ILQR):
            steps = max(self.planner.max_steps, 100)
            return dataclasses.replace(self.planner, max_steps=steps)
        return self.planner

    def act(
        self, memory: tuple[Any, Any], state: Any, obs: Any, key: PRNGKeyArray
    ) -> tuple[tuple[Any, Any], Float[Array, " nu"]]:
        """Advance and improve the plan, and return its action.

        **Arguments:** as of `AbstractController`; `obs` is not read.
        """
        del obs
        plan, pending = memory
        plan = shifted(plan, 1)
        if isinstance(plan[0], Timed) and not isinstance(state, Timed):
            state = Timed(state, plan[0].step[0] - len(pending))
        start = predict(self.problem.dynamics, state, pending)
        plan = _from(start, plan)
        plan = _improved(self.planner, self.problem, start, plan, key)
        pending = jnp.concatenate([pending, plan[1][:1]])
        return (plan, pending[1:]), pending[self.latency]


def _from(start, plan):
    """Set the times of a plan that begins at a state."""
    states, actions = plan
    if not isinstance(states, Timed):
        return plan
    step = start.step + jnp.arange(len(states.step), dtype=start.step.dtype)
    return Timed(states.state, step), actions


def _back(plan):
    """Shift a plan one step back; the first call of `act` advances it again."""
    return jax.tree.map(lambda x: jnp.concatenate([x[:1], x[:-1]]), plan)


def _improved(planner, problem: ControlProblem, state, plan, key):
    if isinstance(planner, ILQR):
        found = planner.solve(problem, state, plan)
        new = found.states, found.actions
        finite = jnp.isfinite(found.value) & jnp.all(jnp.isfinite(found.actions))
        return where(finite, new, plan)
    key, _ = jr.split(key)
    actions, _ = planner.solve(problem, state, key, plan[1])
    return plan[0], actions
