"""An environment without a task, for any robot."""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
from jaxtyping import Array, Bool, Float, PRNGKeyArray

import eqsim
from eqsim import AbstractPipeline, AbstractTask, Generalized, State, System


class Driven(AbstractTask):
    """An environment without reward and termination, whose observation is the stored
    `ctrl`.

    With the policy `lambda obs, key: obs` the robot moves under these controls.
    """

    sys: System
    pipeline: AbstractPipeline
    frame_skip: int = eqx.field(static=True)
    ctrl: Float[Array, " nu"]

    def __init__(
        self,
        sys: System,
        frame_skip: int = 1,
        ctrl: Float[Array, "..."] | None = None,
        pipeline: AbstractPipeline | None = None,
    ):
        self.sys = sys
        self.pipeline = Generalized() if pipeline is None else pipeline
        self.frame_skip = frame_skip
        dtype = sys.links.mass.dtype
        self.ctrl = jnp.zeros(sys.nu, dtype) if ctrl is None else ctrl

    def initial(self, key: PRNGKeyArray) -> State:
        return self.pipeline.init(self.sys)

    def observe(
        self, state: State, action: Float[Array, " nu"]
    ) -> Float[Array, " nobs"]:
        return self.ctrl

    def rewards(
        self, state: State, action: Float[Array, " nu"], new: State
    ) -> dict[str, Float[Array, ""]]:
        return {"none": jnp.zeros((), new.q.dtype)}

    def terminated(self, state: State) -> Bool[Array, ""]:
        return jnp.zeros((), bool)


class RandomControls(eqx.Module):
    """A policy with uniform actions between `low` and `high`."""

    low: Float[Array, " nu"]
    high: Float[Array, " nu"]

    def __call__(self, obs: Float[Array, " nobs"], key: PRNGKeyArray):
        return jr.uniform(key, self.low.shape, self.low.dtype, self.low, self.high)


def nothing(state, action, timestep):
    """Collect nothing but the last state of a rollout."""
    return ()


class Still(AbstractPipeline):
    """Physics without motion, to evaluate a policy without simulation."""

    def init(self, sys, q=None, qd=None) -> State:
        return Generalized().init(sys, q, qd)

    def step(self, sys, state, ctrl, external=None) -> State:
        return state

    def solve(self, sys, state, ctrl, external=None):
        found = Generalized().solve(sys, state, ctrl, external)
        zero = jtu.tree_map(jnp.zeros_like, found)
        where = lambda s: (s.qdd, s.contacts.force, s.constraint_force)
        return eqx.tree_at(where, found, where(zero))

    def advance(self, sys, state, ctrl, external=None):
        return state, self.solve(sys, state, ctrl, external)


def controls_of(policy, sys: System, keys, length: int) -> Float[Array, "..."]:
    """Return the controls of an `eqsim.rollout`: `(batch, length, nu)`.

    They are the same for all environments whose observations `policy` ignores.
    """
    env = Driven(sys, pipeline=Still())
    keep = lambda state, action, timestep: action
    return eqsim.rollout(env, policy, keys, length, collect=keep)[0]
