"""Common parts of Gymnasium's environments: model files, starts, rewards."""

import functools as ft
import importlib.util
import pathlib
from collections.abc import Callable

import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from ..dynamics import actuator_forces, centered_inertias, centered_velocities
from ..io import load_mjcf
from ..model import State, System
from ..pipelines import AbstractPipeline, Generalized
from ..spatial import clamp, safe_sqrt
from ._env import AbstractTask


def gymnasium_model(name: str) -> System:
    """Load one of Gymnasium's MuJoCo model files, for instance `"ant.xml"`.

    Files are read once. Each call returns arrays of its own, which may be donated.

    **Raises:** `ImportError` if Gymnasium is missing, `FileNotFoundError` if the file
    is.
    """
    return jtu.tree_map(jnp.copy, _load(name, jnp.result_type(float).name))


@ft.cache
def _load(name: str, dtype: str) -> System:
    del dtype  # For the cache: that of the numbers in a file is the default one.
    # The package is located without importing it: only its files are needed.
    spec = importlib.util.find_spec("gymnasium")
    if spec is None or spec.origin is None:
        raise ImportError(
            "The model files come with Gymnasium, which is not installed. Run "
            "`pip install gymnasium`."
        )
    folder = pathlib.Path(spec.origin).parent / "envs" / "mujoco" / "assets"
    return load_mjcf(folder / name)


def model(name: str) -> Callable[[System | None], System]:
    """Return a converter with one of Gymnasium's models as default."""
    return lambda sys: gymnasium_model(name) if sys is None else sys


def physics(pipeline: AbstractPipeline | None) -> AbstractPipeline:
    """Convert None to the default pipeline, `Generalized()`."""
    return Generalized() if pipeline is None else pipeline


def link_number(sys: System, body: int | str) -> int:
    """Return the index of a link from its name, or from MuJoCo's number of the body, in
    which the first link is 1."""
    names = sys.links.names
    if isinstance(body, str) and body in names:
        return names.index(body)
    if not isinstance(body, str) and 1 <= body <= len(names):
        return body - 1
    raise ValueError(
        f"This robot has no body {body!r}. Name one of {', '.join(names)}, or give a "
        f"number from 1 to {len(names)}."
    )


def _uniform(key: PRNGKeyArray, shape: tuple[int, ...], dtype) -> Array:
    return jr.uniform(key, shape, dtype, -1.0, 1.0)


def uniform_start(
    task: AbstractTask,
    key: PRNGKeyArray,
    scale: Float[Array, ""],
    velocities: Callable[..., Array] = _uniform,
) -> State:
    """Return the reference pose at rest plus noise: uniform on coordinates, and drawn
    by `velocities` on velocities."""
    key_q, key_qd = jr.split(key)
    ref = task.sys.joints.ref
    qd = scale * velocities(key_qd, (task.sys.nv,), ref.dtype)
    q = ref + scale * _uniform(key_q, ref.shape, ref.dtype)
    return task.pipeline.init(task.sys, q, qd)


def normal_start(
    task: AbstractTask, key: PRNGKeyArray, scale: Float[Array, ""]
) -> State:
    """Return the reference pose at rest plus uniform noise on coordinates and normal
    noise on velocities."""
    return uniform_start(task, key, scale, jr.normal)


def inside(value: Float[Array, "..."], bounds: Float[Array, "2"]) -> Bool[Array, "..."]:
    """Test if values are strictly between two bounds; false for NaN."""
    return (value > bounds[0]) & (value < bounds[1])


def finite(state: State) -> Bool[Array, ""]:
    """Test if coordinates and velocities are finite."""
    return jnp.all(jnp.isfinite(state.q)) & jnp.all(jnp.isfinite(state.qd))


def reward_if(flag: Bool[Array, ""], reward: Float[Array, ""]) -> Float[Array, ""]:
    """Return the reward if the flag is true, else zero."""
    return jnp.where(flag, reward, jnp.zeros_like(reward))


def square_cost(weight: Float[Array, ""], values: Float[Array, "..."]):
    """Compute minus the weighted sum of squares."""
    return -weight * jnp.sum(values**2)


def length(vector: Float[Array, "3"]) -> Float[Array, ""]:
    """Compute the norm of a vector, with derivative zero at zero."""
    return safe_sqrt(jnp.sum(vector**2))


def wrenches(
    task: AbstractTask, state: State, action: Float[Array, " nu"]
) -> Float[Array, "nlink 6"]:
    """Compute the contact wrench on each link under a constant action."""
    return task.pipeline.contact_wrenches(task.sys, state, action)


def impact_cost(weight, bounds, forces: Float[Array, "nlink 6"]) -> Float[Array, ""]:
    """Compute minus the weighted sum of squares of contact forces, clipped to
    bounds."""
    return -clamp(weight * jnp.sum(forces**2), bounds[0], bounds[1])


def humanoid_observation(
    task: AbstractTask,
    state: State,
    action: Float[Array, " nu"],
    *,
    place: bool,
    inertia: bool,
    velocity: bool,
    drive: bool,
    contact: bool,
) -> Float[Array, " nobs"]:
    """Concatenate the selected parts of the observation of a humanoid, see
    `Humanoid`."""
    sys, q, qd = task.sys, state.q, state.qd
    parts = [q if place else q[2:], qd]
    if inertia:
        parts.append(centered_inertias(sys, q).ravel())
    if velocity:
        parts.append(centered_velocities(sys, q, qd).ravel())
    if drive:
        parts.append(actuator_forces(sys, state, action)[6:])
    if contact:
        parts.append(wrenches(task, state, action).ravel())
    return jnp.concatenate(parts)
