"""Environments of other libraries as environments of eqsim."""

import abc
from collections.abc import Mapping
from typing import Any, NamedTuple, NoReturn

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray

import eqsim
from eqsim import AbstractEnv, AbstractPipeline, ResetOptions, State, System, Timestep
from eqsim.bridges import check_key
from eqsim.envs import check_action, reset_options


def check_robot(library: Any, sys: System, inner: Any, nu: int, dt: float) -> None:
    """Raise `ValueError` unless `sys` has the sizes and the time step of the robot."""
    q, qd = eqx.filter_eval_shape(library.coordinates, inner)
    sizes = {"nq": q.shape[0], "nv": qd.shape[0], "nu": nu}
    for name, size in sizes.items():
        own = {"nq": sys.nq, "nv": sys.nv, "nu": sys.nu}[name]
        if own != size:
            raise ValueError(
                f"`sys.{name}` must be {size}, as in the robot of {library.name}, got "
                f"{own}. Load the model file of that environment, or leave `sys` out."
            )
    if not np.isclose(float(sys.dt), dt, rtol=1e-5):
        raise ValueError(
            f"`sys.dt` must be {dt} s, the control step of {library.name}, got "
            f"{float(sys.dt)} s. Change it with `eqx.tree_at`."
        )


def placeholder(action_range: np.ndarray, dt: float) -> System:
    """Return a mass on a rail, with one motor per entry of an action."""
    motors = "".join(
        f'<motor name="action{k}" joint="rail"{_limits(low, high)}/>'
        for k, (low, high) in enumerate(np.asarray(action_range, float).tolist())
    )
    return eqsim.load_mjcf(
        f'<mujoco><option timestep="{dt!r}" gravity="0 0 0"/><worldbody><body name="none">'
        '<joint name="rail" type="slide" axis="1 0 0"/>'
        '<geom size="0.1" mass="1" contype="0" conaffinity="0"/></body></worldbody>'
        f"<actuator>{motors}</actuator></mujoco>"
    )


def _limits(low: float, high: float) -> str:
    if np.isfinite(low) and np.isfinite(high):
        return f' ctrllimited="true" ctrlrange="{low!r} {high!r}"'
    return ' ctrllimited="false"'


class Found(NamedTuple):
    """Results of a reset or a step of an environment of another library.

    - `inner`: its state, a pytree with a constant structure.
    """

    inner: Any
    obs: Any
    reward: Any
    terminated: Any
    truncated: Any


class AbstractLibrary(abc.ABC):
    """Interface to an environment of another library: reset and step.

    It is a static part of `Foreign`, so it must be hashable, and equal to another one
    only if they are interchangeable. Arrays that it contains are constants.
    """

    name: str

    @abc.abstractmethod
    def reset(self, params: Any, key: PRNGKeyArray) -> Found:
        """Draw an initial state."""

    @abc.abstractmethod
    def step(self, params: Any, inner: Any, action: Array, key: PRNGKeyArray) -> Found:
        """Take one control step."""

    def coordinates(self, inner: Any) -> tuple[Array, Array]:
        """Return coordinates and velocities of the robot in a state, in MuJoCo's order.

        **Raises:** `TypeError` if the library has no robot.
        """
        raise TypeError(
            f"`sys` must be left out, because {self.name} has no robot to describe."
        )


class NoPhysics(AbstractPipeline):
    """Placeholder for a pipeline, because another library computes the physics.

    Every method raises `RuntimeError`.
    """

    library: str = eqx.field(static=True)

    def _refuse(self) -> NoReturn:
        raise RuntimeError(
            f"{self.library} computes the physics of this environment, so it has no "
            "pipeline of eqsim. Call `env.step`."
        )

    def init(self, sys, q=None, qd=None) -> State:
        self._refuse()

    def step(self, sys, state, ctrl, external=None) -> State:
        self._refuse()

    def solve(self, sys, state, ctrl, external=None):
        self._refuse()

    def advance(self, sys, state, ctrl, external=None):
        self._refuse()


class ForeignState(eqx.Module):
    """State of `Foreign`. `inner`: state of the other library. `key`: key for random
    numbers in its steps."""

    inner: Any
    key: PRNGKeyArray


class Foreign(AbstractEnv):
    """An environment of another library, created by `from_brax`, `from_playground` or
    `from_gymnax`.

    It works with `eqsim.rollout`, `TimeLimit`, `AutoReset`, agents, and all wrappers
    that only use observations, actions and rewards.

    It has no robot of eqsim:

    - `sys` is a placeholder that provides the time step and the number and range of
        actions: a mass of 1 kg on a rail, with as many motors as an action has entries.
        It does not affect the environment, so derivatives with respect to it are zero,
        and `DomainRandomization` has no effect.
    - `physics(state)` is the placeholder at rest. A rollout therefore detects values
        that are not finite only in actions, observations and rewards.
    - `pipeline` is `NoPhysics`.

    If the other library has a robot, pass its description as `sys`. `physics(state)`
    then contains its coordinates, in the convention of that library, and `eqsim.render`
    draws them.

    The only reward term is `reward`. Other results of the library are in `state.inner`.

    **Arguments:**

    - `library`: interface to the environment.
    - `params`: parameters that it uses; array leaves.
    - `sys`, `pipeline`: placeholders, see above.
    - `robot`: true if `sys` describes its robot.
    - `obs_dtype`: data type of observations.
    """

    library: AbstractLibrary = eqx.field(static=True)
    params: Any
    sys: System  # type: ignore[override]
    pipeline: AbstractPipeline  # type: ignore[override]
    robot: bool = eqx.field(static=True)
    obs_dtype: str = eqx.field(static=True)

    @property
    def dt(self) -> Float[Array, ""]:
        return self.sys.dt

    @property
    def action_range(self) -> Float[Array, "nu 2"]:
        actuators = self.sys.actuators
        limited = jnp.asarray(actuators.ctrl_limited, bool)[:, None]
        endless = jnp.asarray([-jnp.inf, jnp.inf], actuators.ctrl_range.dtype)
        return jnp.where(limited, actuators.ctrl_range, endless[None])

    def physics(self, state: ForeignState) -> State:
        dtype = self.sys.dt.dtype
        rest = jnp.zeros(self.sys.nq, dtype), jnp.zeros(self.sys.nv, dtype)
        q, qd = self.library.coordinates(state.inner) if self.robot else rest
        return State(q.astype(dtype), qd.astype(dtype), jnp.zeros(self.sys.na, dtype))

    def reset(
        self,
        key: PRNGKeyArray,
        options: ResetOptions | Mapping[str, Any] | None = None,
    ) -> tuple[ForeignState, Timestep]:
        check_key(key)
        given = reset_options(options)
        if jtu.tree_leaves(given):
            raise ValueError(
                f"`options` of `reset` must be left out, because {self.library.name} "
                "draws initial states itself."
            )
        key_reset, key = jr.split(key)
        found = self.library.reset(self.params, key_reset)
        state = ForeignState(jtu.tree_map(_strong, found.inner), key)
        none = found._replace(reward=0.0, terminated=False, truncated=False)
        return state, self._report(none, True)

    def step(
        self, state: ForeignState, action: Float[Array, " nu"]
    ) -> tuple[ForeignState, Timestep]:
        check_action(self, action)
        key_step, key = jr.split(state.key)
        # A library may write into the dictionaries of the state that it is given.
        inner = jtu.tree_map(lambda x: x, state.inner)
        found = self.library.step(self.params, inner, action, key_step)
        new = jtu.tree_map(_as_before, found.inner, state.inner)
        return ForeignState(new, key), self._report(found, False)

    def _report(self, found: Found, first: bool) -> Timestep:
        reward = jnp.asarray(found.reward, self.sys.dt.dtype)
        return Timestep(
            jnp.asarray(found.obs, self.obs_dtype),
            reward,
            jnp.asarray(found.terminated, bool),
            jnp.asarray(found.truncated, bool),
            {"reward": reward},
            jnp.full((), first, bool),
        )


def foreign(
    library: AbstractLibrary,
    params: Any,
    action_range: np.ndarray,
    dt: float,
    sys: System | None = None,
) -> Foreign:
    """Create an environment of eqsim from an environment of another library.

    **Raises:** `ValueError` if it is batched, its observations are not arrays, or `sys`
    does not fit it.
    """
    found = eqx.filter_eval_shape(library.reset, params, jr.key(0))
    if not isinstance(found.obs, jax.ShapeDtypeStruct):
        raise ValueError(
            f"Observations of {library.name} must be an array, got {found.obs}."
        )
    if jnp.shape(found.terminated) != ():
        raise ValueError(
            f"The environment of {library.name} must be a single one, got a batch of "
            f"shape {jnp.shape(found.terminated)}. `eqsim.rollout` and "
            "`eqx.filter_vmap` make batches."
        )
    if sys is not None:
        check_robot(library, sys, found.inner, len(action_range), dt)
    return Foreign(
        library,
        params,
        placeholder(action_range, dt) if sys is None else sys,
        NoPhysics(library.name),
        sys is not None,
        str(found.obs.dtype),
    )


def _strong(x: Any) -> Any:
    """Return an array without weak type."""
    x = jnp.asarray(x)
    return lax.convert_element_type(x, x.dtype)


def _as_before(new: Any, old: Any) -> Any:
    return jnp.asarray(new, old.dtype)
