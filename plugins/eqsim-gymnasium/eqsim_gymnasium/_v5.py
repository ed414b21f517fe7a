"""Keys of `info` of version 5 of Gymnasium's MuJoCo environments."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from eqsim import AbstractEnv, System
from eqsim.envs import (
    Ant,
    HalfCheetah,
    Hopper,
    Humanoid,
    HumanoidStandup,
    InvertedDoublePendulum,
    InvertedPendulum,
    Pusher,
    Reacher,
    Swimmer,
    Walker2d,
)
from eqsim.kinematics import (
    center_of_mass,
    forward,
    tendon_lengths,
    tendon_velocities,
)
from eqsim.wrappers import episode_robot, nested_envs


_SURVIVE = {"healthy": "reward_survive"}
_DISTANCE = {"distance": "reward_dist"}
_TERMS: Mapping[type, Mapping[str, str | None]] = {
    Ant: _SURVIVE,
    Hopper: _SURVIVE,
    Humanoid: _SURVIVE,
    HumanoidStandup: {
        "up": "reward_linup",
        "ctrl": "reward_quadctrl",
        "constant": None,
    },
    InvertedDoublePendulum: {
        **_SURVIVE,
        "distance": "distance_penalty",
        "velocity": "velocity_penalty",
    },
    InvertedPendulum: _SURVIVE,
    Pusher: _DISTANCE,
    Reacher: _DISTANCE,
    Walker2d: _SURVIVE,
}
"""Keys that differ from `reward_<term>`; None for a term that Gymnasium leaves out."""


def term_infos(env: AbstractEnv, terms: dict[str, Any]) -> dict[str, Any]:
    """Return the reward terms by Gymnasium's keys."""
    renamed = _TERMS.get(type(_task(env)), {})
    keys = {name: renamed.get(name, f"reward_{name}") for name in terms}
    return {key: terms[name] for name, key in keys.items() if key is not None}


def state_infos(env: AbstractEnv, state: Any) -> dict[str, Any]:
    """Return the infos of a state, which a reset and a step report."""
    found = _STATE.get(type(_task(env)))
    if found is None:
        return {}
    now = env.physics(state)
    return found(episode_robot(env, state), now.q, now.qd)


def velocity_infos(env: AbstractEnv, before: Any, after: Any) -> dict[str, Any]:
    """Return the mean velocities in a step."""
    task = _task(env)
    found = _MOVING.get(type(task))
    if found is None:
        return {}
    points = [
        found(task, episode_robot(env, s), env.physics(s).q) for s in (before, after)
    ]
    velocity = (points[1] - points[0]) / env.dt
    return dict(zip(("x_velocity", "y_velocity"), velocity))


def _task(env: AbstractEnv) -> AbstractEnv:
    *_, task = nested_envs(env)
    return task


def _along_x(sys: System, q: jax.Array, qd: jax.Array) -> dict[str, jax.Array]:
    return {"x_position": q[0]}


def _upright(sys: System, q: jax.Array, qd: jax.Array) -> dict[str, jax.Array]:
    height = q[1] - sys.joints.ref[1]
    return {"x_position": q[0], "z_distance_from_origin": height}


def _in_plane(sys: System, q: jax.Array, qd: jax.Array) -> dict[str, jax.Array]:
    # As Gymnasium, which does not subtract the reference pose.
    distance = jnp.hypot(q[0], q[1])
    return {"x_position": q[0], "y_position": q[1], "distance_from_origin": distance}


def _tendons(sys: System, q: jax.Array, qd: jax.Array) -> dict[str, jax.Array]:
    return {
        "tendon_length": tendon_lengths(sys, q),
        "tendon_velocity": tendon_velocities(sys, q, qd),
    }


def _walking(sys: System, q: jax.Array, qd: jax.Array) -> dict[str, jax.Array]:
    return _in_plane(sys, q, qd) | _tendons(sys, q, qd)


def _standing_up(sys: System, q: jax.Array, qd: jax.Array) -> dict[str, jax.Array]:
    height = {"z_distance_from_origin": q[2] - sys.joints.ref[2]}
    place = {"x_position": q[0], "y_position": q[1]}
    return place | height | _tendons(sys, q, qd)


_STATE: dict[type, Callable[..., dict[str, jax.Array]]] = {
    Ant: _in_plane,
    HalfCheetah: _along_x,
    Hopper: _upright,
    Humanoid: _walking,
    HumanoidStandup: _standing_up,
    Swimmer: _in_plane,
    Walker2d: _upright,
}
"""Infos of a state, by the type of the task."""


def _main_body(task: Any, sys: System, q: jax.Array) -> jax.Array:
    body = task.main_body
    # MuJoCo's number of the first link is 1.
    link = sys.link(body).index if isinstance(body, str) else body - 1
    return forward(sys, q).pos[link, :2]


_MOVING: dict[type, Callable[..., jax.Array]] = {
    Ant: _main_body,
    HalfCheetah: lambda task, sys, q: q[:1],
    Hopper: lambda task, sys, q: q[:1],
    Humanoid: lambda task, sys, q: center_of_mass(sys, q)[:2],
    Swimmer: lambda task, sys, q: q[:2],
    Walker2d: lambda task, sys, q: q[:1],
}
"""Point whose velocity is reported, by the type of the task."""
