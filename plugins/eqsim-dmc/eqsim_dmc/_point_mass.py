import math
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from eqsim import AbstractPipeline, ResetOptions, State, System, Timestep
from eqsim.bridges import check_key
from eqsim.envs import check_action
from eqsim.kinematics import forward
from eqsim.spatial import clamp, safe_sqrt
from eqsim.wrappers import AbstractWrapper, Lifetime

from ._models import point_mass_model
from ._task import AbstractEndlessTask, index, physics, random_joints, small
from ._tolerance import tolerance


def _model(sys: System | None) -> System:
    return point_mass_model(limited=True) if sys is None else sys


class PointMass(AbstractEndlessTask):
    r"""A ball in a plane that learns to move to the center.

    Observation: `position` (m), `velocity` (m/s); 4 entries.

    Reward: `tolerance` of the distance between ball and target, with bounds 0 and the
    radius $r$ of the target, and margin $r$; times $(4 + \overline{\max(0, 1 - u^2)}) /
    5$ of the action $u$.

    Initial state: uniform in the square, at rest.

    **Arguments:**

    - `sys`: the robot; by default the suite's `point_mass.xml`, with motors on the
        joints instead of on fixed tendons.
    - `pipeline`: the physics; by default `Generalized()`.
    - `frame_skip`: time steps per control step.

    ??? cite "Reference"
        `dm_control.suite.point_mass`.
    """

    sys: System = eqx.field(converter=_model, default=None)
    pipeline: AbstractPipeline = eqx.field(converter=physics, default=None)
    frame_skip: int = eqx.field(static=True, default=1)

    def initial(self, key: PRNGKeyArray) -> State:
        return self.pipeline.init(self.sys, random_joints(self.sys, key))

    def parts(
        self, state: State, action: Float[Array, " nu"]
    ) -> dict[str, Float[Array, "..."]]:
        return {"position": state.q, "velocity": state.qd}

    def reward(self, state: State, action: Float[Array, " nu"]) -> Float[Array, ""]:
        geoms, poses = self.sys.geoms, forward(self.sys, state.q)
        ball, target = (
            index(geoms.names, name, "shape") for name in ("pointmass", "target")
        )
        link, radius = geoms.links[ball], geoms.size[target, 0]
        place = poses.pos[link] + poses.rot[link] @ geoms.pos[ball]
        distance = safe_sqrt(jnp.sum((geoms.pos[target] - place) ** 2))
        return tolerance(distance, (0.0, radius), radius) * small(action)


class GainsState(eqx.Module):
    """State of `RandomGains`. `gains`: gains of this episode; row $k$ is the direction
    in which control $k$ acts."""

    inner: State
    gains: Float[Array, "2 2"]


class RandomGains(AbstractWrapper):
    r"""`PointMass` whose controls act in random directions.

    The motors get $\mathrm{clip}(u)^\top G$. The rows of the gains $G$, unit vectors
    drawn at a reset, are at least $\arccos 0.9$ from parallel. They are not observed;
    `state.gains` contains those of the current episode.

    **Arguments:**

    - `env`: the environment; by default one whose motors do not clip, because two
        controls may add up to more than a single motor may get.

    **Raises:** `ValueError` if a motor clips its input.
    """

    env: PointMass = eqx.field(
        converter=lambda env: (
            PointMass(sys=point_mass_model(False)) if env is None else env
        ),
        default=None,
    )

    def __check_init__(self):
        actuators = self.sys.actuators
        for name, limited in zip(actuators.ctrl_names, actuators.ctrl_limited):
            if limited:
                raise ValueError(
                    f"`ctrllimited` of the motor {name!r} must be false, because "
                    "`RandomGains` clips controls itself before it mixes them. Set it "
                    "in the model file."
                )

    @property
    def lifetime(self) -> Lifetime:
        return Lifetime.EPISODE

    @property
    def dt(self) -> Float[Array, ""]:
        return self.env.dt

    @property
    def action_range(self) -> Float[Array, "nu 2"]:
        # The inner motors do not clip, so they have a range but no limits.
        return self.sys.actuators.ctrl_range

    def physics(self, state: GainsState) -> State:
        return state.inner

    def reset(
        self,
        key: PRNGKeyArray,
        options: ResetOptions | Mapping[str, Any] | None = None,
    ) -> tuple[GainsState, Timestep]:
        check_key(key)
        key_gains, key_reset = jr.split(key)
        inner, timestep = self.env.reset(key_reset, options)
        return GainsState(inner, _gains(key_gains, inner.q.dtype)), timestep

    def step(
        self, state: GainsState, action: Float[Array, " nu"]
    ) -> tuple[GainsState, Timestep]:
        check_action(self, action)
        low, high = self.action_range.astype(action.dtype).T
        push = clamp(action, low, high) @ state.gains.astype(action.dtype)
        new = self.env.transition(state.inner, push)
        terms = self.env.rewards(state.inner, action, new)
        timestep = Timestep(
            self.env.observe(new, action),
            jnp.sum(jnp.stack(list(terms.values()))),
            self.env.terminated(new),
            jnp.zeros((), bool),
            terms,
            jnp.zeros((), bool),
        )
        return GainsState(new, state.gains), timestep


def _gains(key: PRNGKeyArray, dtype: Any) -> Float[Array, "2 2"]:
    """Draw two directions: the first uniform, the second uniform among those far enough
    from parallel."""
    keys = jr.split(key, 3)
    least = math.acos(0.9)
    first = jr.uniform(keys[0], (), dtype, -jnp.pi, jnp.pi)
    turn = jr.uniform(keys[1], (), dtype, least, math.pi - least)
    second = first + turn + jnp.where(jr.bernoulli(keys[2]), jnp.pi, 0.0).astype(dtype)
    angles = jnp.stack([first, second])
    return jnp.stack([jnp.cos(angles), jnp.sin(angles)], axis=1)


def point_mass_easy(**options: Any) -> PointMass:
    """Create `PointMass`. **Arguments:** its options."""
    return PointMass(**options)


def point_mass_hard(**options: Any) -> RandomGains:
    """Create `PointMass` with `RandomGains`. **Arguments:** its options; the motors of
    `sys` must not clip."""
    if options.get("sys") is None:
        options["sys"] = point_mass_model(limited=False)
    return RandomGains(PointMass(**options))
