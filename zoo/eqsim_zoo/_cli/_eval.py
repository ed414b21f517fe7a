"""`eqsim eval`"""

import json
import pathlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any

import jax
import numpy as np
import tyro
from rich.console import Console

from eqsim import CommandError

from ..agents.skill_agent import AbstractSkillAgent
from ..runs._folder import load_run
from ..runs._run import BEST, Run
from ..skills.paths import default_skills, follow_skills
from ..skills.plots import write_skills
from ..training._evaluate import episode_keys, evaluate_members, Evaluation
from ..training._video import Episode, run_episode, write_episode
from ._errors import sentences
from ._named_env import named_run
from ._report import group_line, groups, report
from ._tables import console, evaluation_table, skill_line


def evaluate_run(
    folder: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="FOLDER")],
    env: str | None = None,
    episodes: int = 64,
    best: bool = False,
    last: bool = False,
    seed: int = 0,
    picture: bool = False,
    as_json: Annotated[bool, tyro.conf.arg(name="json")] = False,
) -> None:
    """Evaluate the agents of a run and print their returns.

    For several seeds of one agent, the interquartile mean with a bootstrap interval is
    printed as well. For agents that learn skills, as many further episodes, divided among
    the skills, measure the accuracy with which skills are identified, and the paths of the
    skills are plotted (`skills.png` in the folder).

    Args:
        folder: folder of the run.
        env: name of the environment, or `module:Class`; by default the stored name.
        episodes: number of episodes; at least one per skill.
        best: use the checkpoint with the best evaluation. This is the default, except for
            skills, whose quality does not show in the reward.
        last: use the last checkpoint.
        seed: random seed of the episodes.
        picture: also write an animation of the first 15 seconds of an episode,
            `episode.gif` in the folder.
        as_json: print the results as JSON and nothing else.
    """
    if best and last:
        raise CommandError("`--best` and `--last`: choose one of them.")
    if episodes < 1 or seed < 0:
        raise CommandError(
            f"`--episodes` must be at least 1 and `--seed` at least 0, got {episodes} "
            f"and {seed}."
        )
    screen, key = console(quiet=as_json), jax.random.key(seed)
    with sentences(), ThreadPoolExecutor(1) as worker:
        run = _load(folder, env, best, last)
        # Compiled beside the evaluation.
        first = worker.submit(_episode, run, 0, key) if picture else None
        where, length = run.environment(), run.plan.episode_length
        keys = episode_keys(run.members, lambda _: key, episodes)
        found = evaluate_members(run.members, run.state, where, keys, length)
    _show(screen, run, found)
    notes = []
    with sentences():
        for line in _skills(run, key, episodes):
            screen.print(line)
            notes.append(line)
    if first is not None:
        means = np.where(np.isfinite(found.mean()), found.mean(), -np.inf)
        path, member = run.folder / "episode.gif", int(np.argmax(means))
        write_episode(path, _episode(run, member, key) if member else first.result())
        screen.print(f"wrote {path}")
    if as_json:
        print(json.dumps(report(run, found) | {"seed": seed, "skills": notes}))


def _load(folder: str, env: str | None, best: bool, last: bool) -> Run:
    given = named_run(folder, env)
    run = load_run(folder, best=_best(folder, best, last), **given)
    if not best and isinstance(run.members.agent(0), AbstractSkillAgent):
        run = load_run(folder, **given)
    return run


def _show(screen: Console, run: Run, found: Evaluation) -> None:
    """Print the returns."""
    screen.print(
        f"{run.about['agents'][0]['class']} on {run.about['env']}, after "
        f"{run.about['counters']['steps']:,} steps: {found.returns.shape[-1]} episodes of "
        f"at most {run.plan.episode_length} steps"
    )
    screen.print(evaluation_table(run.members, found))
    for group in groups(run.members, found):
        screen.print(group_line(group))


def _skills(run: Run, key: Any, episodes: int) -> Iterator[str]:
    """Describe and plot the skills of each agent that learns skills."""
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
            yield f"No plot was written: {error}"
        else:
            yield f"wrote {run.folder / name}"


def _best(folder: str, best: bool, last: bool) -> bool:
    return best or (not last and (pathlib.Path(folder) / BEST).exists())


def _episode(run: Run, member: int, key: Any) -> Episode:
    """Run the beginning of an episode of one member."""
    length = run.plan.episode_length
    env = run.environment()
    return run_episode(run.members, run.state, env, key, member, length)
