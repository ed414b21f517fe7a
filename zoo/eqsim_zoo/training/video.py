"""Animations of episodes, and the callback that writes them during a run."""

import contextlib
import os
import pathlib
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

import eqsim
from eqsim import AbstractEnv, agent_policy, System, TimeLimit, Timestep
from eqsim.bridges import check_count
from eqsim.render import images, NoOpenGL, write_gif
from eqsim.wrappers import episode_robot

from ..blocks.collecting import evaluation_env, evaluation_key
from ..blocks.parallel import device_mesh, replicate
from ..runs.folders import VIDEOS
from ..runs.members import Members
from ..runs.run import Run
from ._progress import gathered, is_first
from .callbacks import AbstractCallback, Turn


FRAMES, SPACING = 300, 0.05
"""Largest number of frames of an animation, and approximate time between them, s."""


class Video(AbstractCallback):
    """Write animations of episodes to the folder `videos` of the run, as
    `steps_NUMBER.gif`: the first 15 s of an episode of the member with the highest mean
    return, with deterministic actions. All of them show the same episode. Extra: `cli`.

    Without OpenGL or Pillow the run continues with a warning.

    **Arguments:**

    - `every`: number of evaluations from one animation to the next; the last evaluation
        always has one.
    - `env`: environment of one episode; that of the run if None.
    - `width`, `height`: size in pixels.

    **Raises:** `ValueError` if a number is not positive; at the start of a run also if that
    has no folder, no environment or no evaluations.
    """

    def __init__(
        self,
        every: int = 1,
        *,
        env: AbstractEnv | None = None,
        width: int = 320,
        height: int = 240,
    ):
        for name, value in (("every", every), ("width", width), ("height", height)):
            check_count(name, value)
        self._every, self._given, self._size = every, env, (width, height)
        self._folder, self._env = pathlib.Path(), env
        self._block, self._broken = 0, False

    def start(self, run: Run, folder: pathlib.Path | None, turn: int) -> None:
        env = self._given
        if env is None and run.env is not None:
            env = run.environment()
        if env is None or not run.evaluations:
            raise ValueError(
                "`Video` shows episodes at evaluations, but the run has none or there is "
                "no environment. Pass `env`, and `evaluations` of at least 1."
            )
        if is_first() and folder is None:
            raise ValueError("`Video` needs a folder of the run: pass `out`.")
        self._env, self._block, self._broken = env, 0, False
        self._folder = pathlib.Path() if folder is None else folder / VIDEOS

    def turn(self, turn: Turn) -> None:
        run, steps = turn.run, turn.counters.steps
        if turn.evaluation is None or self._env is None:
            return
        block = steps * run.evaluations // run.planned // self._every
        ends = turn.ends()  # All processes must ask.
        if block <= self._block and not ends:
            return
        self._block = block
        means = turn.evaluation.mean()
        member = int(np.argmax(np.where(np.isfinite(means), means, -np.inf)))
        episode = run_episode(
            run.members,
            gathered(turn.state),
            self._env,
            evaluation_key(run.members.seeds[member], 0),
            member,
            run.episode_length,
        )
        if not is_first() or self._broken:
            return
        path = self._folder / f"steps_{steps:010d}.gif"
        try:
            self._folder.mkdir(exist_ok=True)
            write_episode(path, episode, *self._size)
        except (ImportError, NoOpenGL) as error:
            self._broken = True
            turn.warn(f"No animations are written: {error}")
        except (OSError, FloatingPointError) as error:
            turn.warn(f"No animation was written after {steps:,} steps: {error}")
        else:
            turn.videos.append(path)

    def close(self) -> None:
        """Do nothing: animations are written immediately."""


class Episode(eqx.Module):
    """Frames of the beginning of an episode.

    **Arguments:**

    - `sys`: the robot in each frame.
    - `q`: its coordinates.
    - `valid`: true until the episode has ended.
    - `dt`: time between two frames, s.
    """

    sys: System
    q: Float[Array, "frames nq"]
    valid: Bool[Array, " frames"]
    dt: Float[Array, ""]


def run_episode(
    members: Members,
    state: Any,
    env: AbstractEnv,
    key: PRNGKeyArray,
    member: int,
    episode_length: int,
) -> Episode:
    """Run the beginning of an episode of one member, with deterministic actions.

    All processes must call it. It is compiled once for all members and states.

    **Arguments:**

    - `members`, `state`: agents and the state of all of them.
    - `env`: environment of one episode.
    - `key`: random key of the episode.
    - `member`: number of the member.
    - `episode_length`: time limit of an episode in control steps.
    """
    every = max(1, round(SPACING / float(env.dt)))
    length = min(episode_length, FRAMES * every)
    number = jnp.asarray(member, jnp.int32)
    episode = evaluation_env(env, episode_length)
    return _episode(members, state, episode, key, number, (length, every))


@eqx.filter_jit
def _episode(
    members: Members,
    state: Any,
    env: TimeLimit,
    key: PRNGKeyArray,
    member: Int[Array, ""],
    sizes: tuple[int, int],
) -> Episode:
    length, every = sizes
    agent = eqx.combine(members.pick(members.varied, member), members.shared)
    policy = agent_policy(agent, members.pick(state, member))
    trajectory = eqsim.rollout(env, policy, key, length, stop=_done)
    states = jtu.tree_map(lambda x: x[::every], trajectory.state)
    sys = eqx.filter_vmap(lambda state: episode_robot(env, state))(states)
    q = eqx.filter_vmap(lambda state: env.physics(state).q)(states)
    dt = jnp.asarray(every * env.dt)
    return replicate(Episode(sys, q, trajectory.valid[::every], dt))


def _done(timestep: Timestep) -> Bool[Array, ""]:
    return timestep.done


def write_episode(
    path: str | os.PathLike, episode: Episode, width: int = 320, height: int = 240
) -> None:
    """Write an episode as an animation.

    **Arguments:**

    - `path`: name of the GIF file.
    - `episode`: frames from `run_episode`.
    - `width`, `height`: size in pixels.

    **Raises:** `FloatingPointError` if a coordinate is not finite; otherwise as
    `eqsim.render.images` and `write_gif`.
    """
    host: Episode = jax.device_get(episode)
    taken = int(np.sum(host.valid))
    if not np.all(np.isfinite(host.q[:taken])):
        raise FloatingPointError("a coordinate of the robot is not finite.")
    with _one_device():
        taken_of = lambda x: jnp.asarray(x[:taken])
        sys, q = jtu.tree_map(taken_of, (host.sys, host.q))
        frames = images(sys, q, width=width, height=height)
    write_gif(path, frames, float(host.dt))


def _one_device() -> contextlib.AbstractContextManager[Any]:
    """Enter a context in which this process computes alone, although the run is
    distributed."""
    if jax.process_count() == 1:
        return contextlib.nullcontext()
    return jax.set_mesh(device_mesh(jax.local_devices()[:1]))
