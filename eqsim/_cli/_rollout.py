"""`eqsim rollout`"""

import pathlib
import time
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from rich.console import Console
from rich.table import Table
from rich.text import Text

from .._rollout import rollout
from .._trajectory import Episodes, episodes
from ..envs import AbstractEnv, Timestep
from ..render import camera_for, images, write_gif
from ..render._draw import check_image
from ..wrappers import (
    AbstractWrapper,
    AutoReset,
    DomainRandomization,
    episode_robot,
    Lifetime,
    nested_envs,
    TimeLimit,
)
from ._names import at_least_one, environment, preset, UsageError
from ._plots import plot


FRAMES = 300
"""Largest number of frames of an animation."""


class Request(NamedTuple):
    """The arguments of `eqsim rollout`."""

    env: str
    pipeline: str | None
    num_envs: int
    length: int
    seed: int
    randomize: str | None
    out: str
    picture: bool


class RandomPolicy(eqx.Module):
    """A policy of random actions: uniform between bounds, normal without bounds, and
    half-normal with a single bound."""

    bounds: Float[Array, "nu 2"]

    def __call__(self, obs: Any, key: PRNGKeyArray) -> Float[Array, " nu"]:
        low, high = self.bounds.T
        key_uniform, key_normal = jr.split(key)
        share = jr.uniform(key_uniform, low.shape, low.dtype)
        normal = jr.normal(key_normal, low.shape, low.dtype)
        below, above = jnp.isfinite(low), jnp.isfinite(high)
        one = jnp.where(below, low + jnp.abs(normal), normal)
        one = jnp.where(above & ~below, high - jnp.abs(normal), one)
        both = below & above
        span = jnp.where(both, high - low, 1.0)
        return jnp.where(both, jnp.where(both, low, 0.0) + share * span, one)


class Kept(NamedTuple):
    """Data stored of each step; the state is stored only for animations."""

    q: Array
    qd: Array
    action: Array
    timestep: Timestep
    state: Any


def run_rollout(request: Request) -> None:
    """Run random actions; print episode statistics and write files.

    The command runs

        key_reset, key = jr.split(jr.key(seed))
        start = eqx.filter_vmap(env.reset)(jr.split(key_reset, num_envs))
        eqsim.rollout(env, policy, jr.split(key, num_envs), length, start=start)

    where `env` is wrapped in `DomainRandomization` (with `--randomize`), `TimeLimit`
    and `AutoReset`.

    `FILE.npz` contains, with the axes (environment, step, ...):

    - `observations`, `next_observations`: observation before and after each step; the
        latter before any reset. The parts of a dictionary are `observations/NAME`.
    - `actions`, `rewards`, `terminated`, `truncated`; `terms/NAME`: each reward term;
        `descriptors`, if the environment has any.
    - `valid`: false if the step only reset the environment.
    - `q`, `qd`: coordinates and velocities of the robot before each step.
    - `dt`: duration of a control step, s.
    - `env`: name of the environment.
    """
    at_least_one("--num-envs", request.num_envs)
    at_least_one("--length", request.length)
    console = Console(highlight=False)
    env = _wrapped(environment(request.env, request.pipeline), request)
    path = _path(request.out)
    camera = None
    if request.picture:
        camera = camera_for(env.sys)
        check_image(env.sys, camera, 320, 240)
    begin = time.perf_counter()
    first, kept = _run(env, request, console)
    statistics = eqx.filter_jit(episodes)(kept.timestep)
    arrays = _arrays(env, *jtu.tree_map(np.asarray, (first, kept._replace(state=None))))
    arrays["env"] = np.array(request.env)
    table, text = _summary(request, statistics, kept.timestep)
    console.print(table)
    console.print(Text(f"{text}, {time.perf_counter() - begin:.1f} s with compiling"))
    np.savez(path.with_name(path.name + ".npz"), allow_pickle=False, **arrays)
    written = [".npz", ".png"]
    plot(
        path.with_name(path.name + ".png"), _title(request), env.sys, arrays, statistics
    )
    if camera is not None:
        states = jtu.tree_map(lambda x: x[0, :FRAMES], kept.state)
        sys = eqx.filter_vmap(lambda state: episode_robot(env, state))(states)
        frames = images(sys, kept.q[0, :FRAMES], camera)
        write_gif(path.with_name(path.name + ".gif"), frames, float(env.dt))
        written.append(".gif")
    console.print(Text("wrote " + ", ".join(f"{path}{end}" for end in written)))


def _wrapped(env: AbstractEnv, request: Request) -> AbstractEnv:
    for layer in nested_envs(env):
        if isinstance(layer, AbstractWrapper) and layer.lifetime is Lifetime.RUN:
            if request.randomize is not None:
                raise UsageError(
                    f"`--randomize`: {request.env!r} resets itself (`{type(layer).__name__}`)"
                    ", so its robot cannot be randomized."
                )
            return env
    if request.randomize is not None:
        change = preset(request.env, request.randomize)
        try:
            env = DomainRandomization(env, change)
        except ValueError as error:
            raise UsageError(f"`--randomize {request.randomize}`: {error}") from error
    limited = TimeLimit(env, request.length)
    return AutoReset(limited)


def _path(out: str) -> pathlib.Path:
    """Return the output path without suffix, and create its folder."""
    path = pathlib.Path(out)
    if path.suffix in (".npz", ".png", ".gif"):
        path = path.with_suffix("")
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _run(env: AbstractEnv, request: Request, console: Console):
    """Return the first timestep, and the data stored of each step."""
    key_reset, key = jr.split(jr.key(request.seed))
    with console.status("compiling and resetting"):
        keys = jr.split(key_reset, request.num_envs)
        start = eqx.filter_jit(eqx.filter_vmap(env.reset))(keys)

    def collect(state, action, timestep) -> Kept:
        physics = env.physics(state)
        whole = state if request.picture else None
        return Kept(physics.q, physics.qd, action, timestep, whole)

    policy, keys = RandomPolicy(env.action_range), jr.split(key, request.num_envs)
    kept, _ = rollout(
        env,
        policy,
        keys,
        request.length,
        start=start,
        collect=collect,
        progress=True,
    )
    return start[1], kept


def _arrays(env: AbstractEnv, first: Any, kept: Any) -> dict[str, np.ndarray]:
    """Return the arrays to write, by name; timesteps contain NumPy arrays."""
    timestep = kept.timestep
    led_to = timestep.obs if timestep.final_obs is None else timestep.final_obs
    shift = lambda x, y: np.concatenate([x[:, None], y[:, :-1]], axis=1)
    before = jtu.tree_map(shift, first.obs, timestep.obs)
    out = {
        **_named("observations", before),
        **_named("next_observations", led_to),
        "actions": kept.action,
        "rewards": timestep.reward,
        "terminated": timestep.terminated,
        "truncated": timestep.truncated,
        "valid": ~timestep.first,
        "q": kept.q,
        "qd": kept.qd,
        "dt": env.dt,
    }
    out |= {f"terms/{name}": value for name, value in timestep.terms.items()}
    if timestep.descriptor is not None:
        out["descriptors"] = timestep.descriptor
    return {name: np.asarray(value) for name, value in out.items()}


def _named(name: str, obs: Any) -> dict[str, Any]:
    """Return an observation by name; the parts of a dictionary as `name/part`."""
    if not isinstance(obs, dict):
        return {name: obs}
    parts = (_named(f"{name}/{key}", x) for key, x in sorted(obs.items()))
    return {key: x for part in parts for key, x in part.items()}


def _summary(request: Request, statistics: Episodes, timestep: Timestep):
    """Return a table of the episodes that ended, or of the running ones if none did."""
    ended = np.asarray(statistics.ended)
    number = int(ended.sum())
    pick = lambda x: np.asarray(x)[ended] if number else np.asarray(x)[:, -1]
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("per episode" if number else "so far (none has ended)")
    for name in ("mean", "std"):
        table.add_column(name, justify="right")
    rows = {"return": statistics.returns, "length": statistics.length}
    rows |= {f"  {name}": value for name, value in statistics.terms.items()}
    for name, value in rows.items():
        values = pick(value)
        table.add_row(Text(name), f"{values.mean():.4g}", f"{values.std():.4g}")
    terminated = int(np.sum(np.asarray(timestep.terminated)[ended]))
    text = (
        f"{request.num_envs} environments x {request.length} steps: {number} episodes "
        f"ended, {terminated} terminated, {number - terminated} at a time limit"
    )
    return table, text


def _title(request: Request) -> str:
    title = f"{request.env}, random actions"
    if request.pipeline is not None:
        title += f", {request.pipeline}"
    if request.randomize is not None:
        title += f", randomized ({request.randomize})"
    many = "environment" if request.num_envs == 1 else "environments"
    return f"{title}: {request.num_envs} {many}, {request.length} steps"
