"""Probes: minimal environments with known solutions, each of which requires one more
ability of an agent than the one before; and a point mass for agents that discover skills.

All probes are a `Probe` with different parameters, so they share compiled programs.
"""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from .._errors import check_key
from ..envs import (
    AbstractEnv,
    AbstractTask,
    check_action,
    reset_options,
    ResetOptions,
    Timestep,
)
from ..io import load_mjcf
from ..model import check_state, State, System
from ..model.arrays import as_array
from ..pipelines import AbstractPipeline, Generalized
from ..wrappers import TorsoPosition


_SLIDER = """
<mujoco model="probe">
  <option gravity="0 0 0" timestep="1"/>
  <worldbody>
    <body name="slider"><joint name="slide" type="slide" axis="1 0 0"/>
      <geom type="sphere" size=".1" mass="1" contype="0" conaffinity="0"/></body>
  </worldbody>
  <actuator>
    <motor name="motor" joint="slide" ctrllimited="true" ctrlrange="-1 1"/>
  </actuator>
</mujoco>"""


def _slider(sys: System | None) -> System:
    return load_mjcf(_SLIDER) if sys is None else sys


def default_pipeline(pipeline: AbstractPipeline | None) -> AbstractPipeline:
    """Convert None to the default pipeline, `Generalized()`."""
    return Generalized() if pipeline is None else pipeline


class ProbeState(eqx.Module):
    """State of `Probe`. `physics`: state of a slider, whose coordinate is the context.
    `time`: number of steps in the episode. `key`: key for the next contexts."""

    physics: State
    time: Int[Array, ""]
    key: PRNGKeyArray


class Probe(AbstractEnv):
    r"""A probe: with a context $c$ that is $-1$ or $1$, and an action $u$ between $-1$
    and $1$, the reward at the end of the episode, after `length` steps, is

    $$r = b + s\,c - w\,(u - g - f\,c)^2$$

    with the terms `constant`, `seen` and `match`; before the end it is zero. The
    observation contains the context and the number of steps in the episode. Nothing is
    simulated.

    Probes reset themselves at the end of an episode, with another context, and report
    `final_obs` as `AutoReset` does, so agents may use `AutoReset` or not.

    **Arguments:**

    - `constant`, `seen`, `weight`, `goal`, `follow`: constants $b$, $s$, $w$, $g$, $f$.
    - `length`: number of steps of an episode.
    - `sys`, `pipeline`: a slider, and a pipeline that is not used.

    ??? cite "Reference"
        Jones, *Debugging reinforcement learning systems*, 2021: probe environments.
    """

    constant: Float[Array, ""] = eqx.field(converter=as_array, default=0.0)
    seen: Float[Array, ""] = eqx.field(converter=as_array, default=0.0)
    weight: Float[Array, ""] = eqx.field(converter=as_array, default=0.0)
    goal: Float[Array, ""] = eqx.field(converter=as_array, default=0.0)
    follow: Float[Array, ""] = eqx.field(converter=as_array, default=0.0)
    length: Float[Array, ""] = eqx.field(converter=as_array, default=1.0)
    sys: System = eqx.field(converter=_slider, default=None)
    pipeline: AbstractPipeline = eqx.field(converter=default_pipeline, default=None)

    __eqsim_expected_failures__ = {"mass": "nothing is simulated"}

    @property
    def dt(self) -> Float[Array, ""]:
        return self.sys.dt

    @property
    def action_range(self) -> Float[Array, "nu 2"]:
        return self.sys.actuators.ctrl_range

    def physics(self, state: ProbeState) -> State:
        return state.physics

    def best_action(self, obs: Float[Array, "2"]) -> Float[Array, " nu"]:
        """Return the action with the largest reward: $g + f c$."""
        return (self.goal + self.follow * obs[0])[None]

    def value(
        self, obs: Float[Array, "2"], discount: Float[Array, ""] | float
    ) -> Float[Array, ""]:
        r"""Return the value of an observation under the best policy: $\gamma^{n} (b +
        s\,c)$, with $n$ steps left after the next one.

        **Arguments:**

        - `obs`: an observation.
        - `discount`: discount $\gamma$.
        """
        left = self.length - 1.0 - obs[1]
        return jnp.asarray(discount, left.dtype) ** left * self._best(obs[0])

    def mean_reward(self, policy: Any) -> Float[Array, ""]:
        """Compute the mean reward at the end of an episode, over both contexts.

        **Arguments:**

        - `policy`: function `obs -> action` of one observation, not a batch.
        """
        time = self.length - 1.0
        contexts = (-jnp.ones_like(time), jnp.ones_like(time))
        found = [self._terms(c, policy(jnp.stack([c, time]))) for c in contexts]
        total = [jnp.sum(jnp.stack(list(terms.values()))) for terms in found]
        return jnp.mean(jnp.stack(total))

    def reset(
        self,
        key: PRNGKeyArray,
        options: ResetOptions | Mapping[str, Any] | None = None,
    ) -> tuple[ProbeState, Timestep]:
        options = reset_options(options)
        if options.sys is not None or options.context is not None:
            raise ValueError(
                "A probe has one robot: pass neither `sys` nor `context` to `reset`."
            )
        check_key(key)
        check_state(self.sys, options.q, options.qd)
        key, draw = jr.split(key)
        q = self._draw(draw) if options.q is None else options.q
        qd = jnp.zeros_like(q) if options.qd is None else options.qd
        state = ProbeState(State(q, qd, q[:0]), jnp.zeros((), jnp.int32), key)
        none = jnp.zeros_like(q[0])
        terms = {name: none for name in ("constant", "seen", "match")}
        first = self._observe(state.physics, state.time)
        return state, self._report(state, terms, False, True, first)

    def step(
        self, state: ProbeState, action: Float[Array, " nu"]
    ) -> tuple[ProbeState, Timestep]:
        check_action(self, action)
        time = state.time + 1
        # Between two counts, so that no derivative is taken at the jump.
        end = time.astype(self.length.dtype) > self.length - 0.5
        terms = self._terms(state.physics.q[0], action)
        terms = {k: jnp.where(end, x, jnp.zeros_like(x)) for k, x in terms.items()}
        key, draw = jr.split(state.key)
        q = jnp.where(end, self._draw(draw), state.physics.q)
        physics = State(q, state.physics.qd, state.physics.act)
        new = ProbeState(physics, jnp.where(end, jnp.zeros_like(time), time), key)
        final = self._observe(state.physics, time)
        return new, self._report(new, terms, end, False, final)

    def _draw(self, key: PRNGKeyArray) -> Float[Array, "1"]:
        return jr.rademacher(key, (1,), self.constant.dtype)

    def _best(self, context: Float[Array, ""]) -> Float[Array, ""]:
        return self.constant + self.seen * context

    def _terms(self, context, action) -> dict[str, Float[Array, ""]]:
        miss = action[0] - self.goal - self.follow * context
        return {
            "constant": self.constant,
            "seen": self.seen * context,
            "match": -self.weight * miss**2,
        }

    def _observe(self, physics: State, time: Int[Array, ""]) -> Float[Array, "2"]:
        return jnp.stack([physics.q[0], time.astype(self.constant.dtype)])

    def _report(self, state: ProbeState, terms, end, first, final) -> Timestep:
        return Timestep(
            self._observe(state.physics, state.time),
            terms["constant"] + terms["seen"] + terms["match"],
            jnp.full((), end, bool),
            jnp.zeros((), bool),
            terms,
            jnp.full((), first, bool),
            final_obs=final,
        )


def constant_reward() -> Probe:
    """Create a probe with reward 1: a value function must learn a constant."""
    return Probe(constant=1.0)


def observed_reward() -> Probe:
    """Create a probe whose reward is the context, -1 or 1: a value function must use
    the observation."""
    return Probe(seen=1.0)


def delayed_reward() -> Probe:
    """Create a probe with reward 1 after two steps: the value of the first observation
    is the discount, and that of the second is 1."""
    return Probe(constant=1.0, length=2.0)


def action_reward() -> Probe:
    """Create a probe with reward $1 - (u - 1/2)^2$: the policy must learn the action
    1/2.

    The best mean reward is 1; without action it is 0.75.
    """
    return Probe(constant=1.0, weight=1.0, goal=0.5)


def observed_action_reward() -> Probe:
    """Create a probe with reward $1 - (u - c/2)^2$: the policy must use the
    observation.

    The best mean reward is 1; a policy that ignores the observation gets at most 0.75.
    """
    return Probe(constant=1.0, weight=1.0, follow=0.5)


_POINT = """
<mujoco model="point mass">
  <option gravity="0 0 0" timestep=".1"/>
  <worldbody>
    <body name="point">
      <joint name="x" type="slide" axis="1 0 0" damping="100"/>
      <joint name="y" type="slide" axis="0 1 0" damping="100"/>
      <geom type="sphere" size=".05" mass="1" contype="0" conaffinity="0"/>
    </body>
  </worldbody>
  <actuator>
    <motor name="x" joint="x" gear="100" ctrllimited="true" ctrlrange="-1 1"/>
    <motor name="y" joint="y" gear="100" ctrllimited="true" ctrlrange="-1 1"/>
  </actuator>
</mujoco>"""


def _point(sys: System | None) -> System:
    return load_mjcf(_POINT) if sys is None else sys


class PointMass(AbstractTask):
    r"""A mass of $m = 1$ kg in the plane, driven by two motors against strong damping,
    so that the action is almost its velocity: with damping $d = 100$ Ns/m, gear $g =
    100$ N and time step $h = 0.1$ s,

    $$v' = \frac{v + h\,g\,u / m}{1 + h\,d / m}, \qquad x' = x + h\,v'.$$

    It starts at rest at the origin. Observation: position (m) and velocity (m/s).
    Reward: `distance`, minus the squared distance to (1, 0). Episodes never terminate.

    **Arguments:**

    - `sys`, `pipeline`, `frame_skip`: robot, physics and time steps per control step.
    """

    sys: System = eqx.field(converter=_point, default=None)
    pipeline: AbstractPipeline = eqx.field(converter=default_pipeline, default=None)
    frame_skip: int = eqx.field(static=True, default=1)

    def initial(self, key: PRNGKeyArray) -> State:
        zero = jnp.zeros_like(self.sys.joints.ref)
        return self.pipeline.init(self.sys, zero, zero)

    def observe(
        self, state: State, action: Float[Array, " nu"]
    ) -> Float[Array, " nobs"]:
        return jnp.concatenate([state.q, state.qd])

    def rewards(
        self, state: State, action: Float[Array, " nu"], new: State
    ) -> dict[str, Float[Array, ""]]:
        return {"distance": -((new.q[0] - 1.0) ** 2) - new.q[1] ** 2}

    def terminated(self, state: State) -> Bool[Array, ""]:
        return jnp.zeros((), bool)


def point_mass(limit: float = 1.0) -> TorsoPosition:
    """Create `PointMass` with its position as the descriptor.

    It moves by one meter per second, so episodes of about 10 steps reach all points of
    a disk with radius 1 m.

    **Arguments:**

    - `limit`: limit of the descriptor, m.
    """
    return TorsoPosition(PointMass(), limit)
