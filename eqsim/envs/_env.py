import abc

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from .._errors import check_shape
from .._loops import scan
from ..model import State, System
from ..pipelines import AbstractPipeline


class Timestep(eqx.Module):
    """What a step reports.

    **Arguments:**

    - `obs`: what an agent sees.
    - `reward`: the sum of `terms`.
    - `terminated`: whether the task has ended, for good or bad.
    - `truncated`: whether it was cut off; a time limit sets it, an environment does
        not.
    - `terms`: the reward, term by term.
    """

    obs: Float[Array, " nobs"]
    reward: Float[Array, ""]
    terminated: Bool[Array, ""]
    truncated: Bool[Array, ""]
    terms: dict[str, Float[Array, ""]]


class AbstractEnv(eqx.Module):
    """A task: a robot, a pipeline, and what is observed, rewarded and ended.

    Subclasses supply `initial`, `observe`, `rewards` and `terminated`; `reset` and
    `step` are written here, once. `substeps` time steps of `sys.dt` make one control
    step.
    """

    sys: eqx.AbstractVar[System]
    pipeline: eqx.AbstractVar[AbstractPipeline]
    substeps: eqx.AbstractVar[int]

    @abc.abstractmethod
    def initial(self, key: PRNGKeyArray) -> State:
        """A random first state."""

    @abc.abstractmethod
    def observe(self, state: State) -> Float[Array, " nobs"]:
        """What an agent sees of a state."""

    @abc.abstractmethod
    def rewards(
        self, state: State, action: Float[Array, " nu"], new: State
    ) -> dict[str, Float[Array, ""]]:
        """The terms of the reward for going from `state` to `new`."""

    @abc.abstractmethod
    def terminated(self, state: State) -> Bool[Array, ""]:
        """Whether the task ends in a state."""

    @property
    def dt(self) -> Float[Array, ""]:
        """Duration of a control step, s."""
        return self.sys.dt * self.substeps

    def reset(self, key: PRNGKeyArray) -> tuple[State, Timestep]:
        """A random first state, and what it looks like; all terms are zero."""
        state = self.initial(key)
        zero = jnp.zeros(self.sys.nu, state.q.dtype)
        shapes = jax.eval_shape(self.rewards, state, zero, state)
        terms = {name: jnp.zeros(x.shape, x.dtype) for name, x in shapes.items()}
        return state, self._report(state, terms)

    def step(self, state: State, action: Float[Array, " nu"]) -> tuple[State, Timestep]:
        """One control step.

        **Arguments:**

        - `state`: from `reset` or an earlier step.
        - `action`: `ctrl` of the actuators, held for the control step.

        **Returns:** the new state and its report.

        **Raises:** `ValueError` if a shape is wrong.
        """
        check_shape("action", action, {"nu": self.sys.nu})
        new = self.transition(state, action)
        return new, self._report(new, self.rewards(state, action, new))

    def transition(self, state: State, action: Float[Array, " nu"]) -> State:
        """The state one control step later."""
        step = lambda state, _: (self.pipeline.step(self.sys, state, action), None)
        return scan(step, state, length=self.substeps)[0]

    def _report(self, state: State, terms: dict) -> Timestep:
        total = jnp.sum(jnp.stack(list(terms.values())))
        no = jnp.zeros((), bool)
        return Timestep(self.observe(state), total, self.terminated(state), no, terms)


def perturbed(
    key: PRNGKeyArray, q: Float[Array, " nq"], nv: int, q_noise: float, qd_noise: float
) -> tuple[Float[Array, " nq"], Float[Array, " nv"]]:
    """Uniform noise on coordinates and normal noise on velocities at rest."""
    key_q, key_qd = jr.split(key)
    q = q + jr.uniform(key_q, q.shape, q.dtype, -q_noise, q_noise)
    return q, qd_noise * jr.normal(key_qd, (nv,), q.dtype)
