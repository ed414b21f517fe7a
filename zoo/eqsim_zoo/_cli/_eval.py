"""`eqsim eval`"""

import pathlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any

import equinox as eqx
import jax
import jax.tree_util as jtu
import numpy as np
import tyro

import eqsim
from eqsim import CommandError
from eqsim.render import camera_for, images, write_gif
from eqsim.wrappers import robot

from ..agents._skill_agent import AbstractSkillAgent
from ..blocks._environments import evaluation_env
from ..runs._folder import BEST, load_run, Run
from ..skills._paths import default_skills, follow_skills
from ..skills._plots import write_skills
from ..training._evaluate import evaluate_members, Greedy
from ._errors import sentences
from ._tables import console, evaluation_table, skill_line


FRAMES, SPACING = 300, 0.05
"""Of an animation: how many at most, and about how far apart, s."""


def evaluate_run(
    folder: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="FOLDER")],
    episodes: int = 64,
    best: bool = False,
    last: bool = False,
    seed: int = 0,
    picture: bool = False,
) -> None:
    """Runs episodes with what a run has learned, and prints their returns. Of skills it
    then runs as many again, shared out among them, to say how well they are told apart
    and to draw where they lead, `skills.png` in the folder.

    Args:
        folder: of the run.
        episodes: how many; of skills at least one of each.
        best: take the checkpoint that was evaluated best, which is the default but for
            skills, since rewards do not tell how good those are.
        last: take the last checkpoint.
        seed: of the episodes.
        picture: also write an animation of one episode, its first 15 seconds at most,
            `episode.gif` in the folder.
    """
    if best and last:
        raise CommandError("`--best` and `--last`: choose one of them.")
    if episodes < 1 or seed < 0:
        raise CommandError(
            f"`--episodes {episodes} --seed {seed}`: at least one episode, and a seed that "
            "is not negative, are expected."
        )
    screen = console()
    with sentences(), ThreadPoolExecutor(1) as worker:
        run = load_run(folder, best=_best(folder, best, last))
        if not best and isinstance(run.members.agent(0), AbstractSkillAgent):
            run = load_run(folder)
        key, plan = jax.random.key(seed), run.plan
        # Compiled beside the evaluation.
        first = worker.submit(_episode, run, 0, key) if picture else None
        found = evaluate_members(
            run.members,
            run.state,
            run.environment(),
            key,
            episodes,
            plan.episode_length,
        )
    counters = run.about["counters"]
    screen.print(
        f"{run.about['agents'][0]['class']} on {run.about['env']}, after "
        f"{counters['steps']:,} steps: {episodes} episodes of at most "
        f"{plan.episode_length} steps"
    )
    screen.print(evaluation_table(run.members, found))
    with sentences():
        for line in _skills(run, key, episodes):
            screen.print(line)
    if first is not None:
        means = np.where(np.isfinite(found.mean()), found.mean(), -np.inf)
        path, member = run.folder / "episode.gif", int(np.argmax(means))
        _animate(run, _episode(run, member, key) if member else first.result(), path)
        screen.print(f"wrote {path}")


def _skills(run: Run, key: Any, episodes: int) -> Iterator[str]:
    """Of agents of skills: where they lead, in numbers and a picture of each."""
    key_skills, key = jax.random.split(key)
    for member in range(run.members.count):
        agent = run.members.agent(member)
        if not isinstance(agent, AbstractSkillAgent):
            continue
        state, length = run.members.pick(run.state, member), run.plan.episode_length
        skills = default_skills(state, key_skills)
        paths = follow_skills(
            agent,
            state,
            run.environment(),
            key,
            skills=skills,
            episodes=-(-episodes // len(skills)),
            episode_length=length,
        )
        yield skill_line(paths)
        name = f"skills_{member}.png" if run.members.many else "skills.png"
        title = f"{type(agent).__name__} on {run.about['env']}"
        try:
            write_skills(paths, run.folder / name, title)
        except (OSError, ImportError) as error:
            yield f"No picture was drawn: {error}"
        else:
            yield f"wrote {run.folder / name}"


def _best(folder: str, best: bool, last: bool) -> bool:
    return best or (not last and (pathlib.Path(folder) / BEST).exists())


def _episode(run: Run, member: int, key: Any) -> eqsim.Trajectory:
    """The beginning of an episode of one member."""
    env, length = (
        evaluation_env(run.environment(), run.plan.episode_length),
        _length(run),
    )
    policy = Greedy(run.members.agent(member), run.members.pick(run.state, member))
    return eqsim.rollout(env, policy, key, length, stop=lambda timestep: timestep.done)


def _animate(run: Run, trajectory: eqsim.Trajectory, path: pathlib.Path) -> None:
    """Draws an episode."""
    env = evaluation_env(run.environment(), run.plan.episode_length)
    every = _every(run)
    taken = int(np.asarray(trajectory.valid).sum())
    states = jtu.tree_map(lambda x: x[:taken:every], trajectory.state)
    sys = eqx.filter_vmap(lambda state: robot(env, state))(states)
    q = eqx.filter_vmap(lambda state: env.physics(state).q)(states)
    write_gif(path, images(sys, q, camera_for(env.sys)), every * float(env.dt))


def _every(run: Run) -> int:
    """Control steps from one picture to the next."""
    return max(1, round(SPACING / float(run.environment().dt)))


def _length(run: Run) -> int:
    """Control steps that are drawn, at most."""
    return min(run.plan.episode_length, FRAMES * _every(run))
