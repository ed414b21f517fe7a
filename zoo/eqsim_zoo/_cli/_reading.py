"""Commands that read runs: `eqsim eval`, `eqsim runs compare`, and runs in `eqsim view`."""

import json
import pathlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any

import jax
import numpy as np
import tyro
from rich.console import Console

from eqsim import (
    AbstractController,
    AbstractEnv,
    agent_policy,
)
from eqsim.plugins import CommandError

from ..agents.skill_agent import AbstractSkillAgent
from ..blocks.collecting import evaluation_env
from ..runs.folders import BEST, env_name
from ..runs.offline import kind_of
from ..runs.pages import Summary, write_curves, write_page
from ..skills.paths import default_skills, follow_skills
from ..skills.plots import write_skills
from ..training import load_run, Result
from ..training.evaluation import (
    episode_keys,
    evaluate_members,
    evaluate_tracking,
    Evaluation,
)
from ..training.video import Episode, run_episode, write_episode
from ._printing import (
    console,
    evaluation_table,
    group_line,
    groups,
    plain_table,
    report,
    sentences,
    skill_line,
    tracking_table,
)


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
    """Evaluate the agents of a run and print their returns, and errors of tracking.

    For several seeds of one agent, the interquartile mean with a bootstrap interval is
    printed as well. For tasks that track commands, the mean absolute error in these episodes
    is printed, also in each fifth of the range of commands. For agents that learn skills, as
    many further episodes, divided among the skills, measure the accuracy with which skills
    are identified, and the paths of the skills are plotted (`skills.png` in the folder).

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
        run = read(folder, env, best, last)
        # Compiled beside the evaluation.
        first = worker.submit(_episode, run, 0, key) if picture else None
        where, length = run.environment(), run.run.episode_length
        keys = episode_keys(run.members, lambda _: key, episodes)
        found = evaluate_members(run.members, run.state, where, keys, length)
        tracking = evaluate_tracking(run.members, run.state, where, keys, length)
    _show(screen, run, found)
    for label, each in zip(run.members.labels(), tracking):
        text = ", ".join(f"{name} {value}" for name, value in label.items())
        screen.print(tracking_table(text if run.members.many else "", each))
    notes = []
    with sentences():
        for line in _skills(run, key, episodes):
            screen.print(line)
            notes.append(line)
    if first is not None:
        means = np.where(np.isfinite(found.mean()), found.mean(), -np.inf)
        path, member = pathlib.Path(folder) / "episode.gif", int(np.argmax(means))
        write_episode(path, _episode(run, member, key) if member else first.result())
        screen.print(f"wrote {path}")
    if as_json:
        others = {"seed": seed, "skills": notes}
        print(json.dumps(report(run, found, tracking) | others))


def read(folder: str, env: str | None, best: bool, last: bool) -> Result:
    """Load a run with its best checkpoint if there is one, or as asked. Of agents that
    learn skills, the last one is the default: the quality of skills does not show in the
    reward."""
    there = (pathlib.Path(folder) / BEST).exists()
    run = load_run(folder, best=best or (there and not last), env=env)
    skills = isinstance(run.members.agent(0), AbstractSkillAgent)
    return load_run(folder, env=env) if skills and there and not best else run


def _show(screen: Console, run: Result, found: Evaluation) -> None:
    """Print the returns, and the environment with its options."""
    options = [f"{name}={json.dumps(x)}" for name, x in run.run.options.items()]
    given = f" with {', '.join(options)}" if options else ""
    where = env_name(run.environment()) + given
    screen.print(
        f"{kind_of(run.members.agent(0)).__name__} on {where}, after "
        f"{run.counters.steps:,} steps: {found.returns.shape[-1]} episodes of "
        f"at most {run.run.episode_length} steps"
    )
    screen.print(evaluation_table(run.members, found))
    for group in groups(run.members, found):
        screen.print(group_line(group))


def _skills(run: Result, key: Any, episodes: int) -> Iterator[str]:
    """Describe and plot the skills of each agent that learns skills."""
    key_skills, key = jax.random.split(key)
    for member in range(run.members.count):
        agent = run.members.agent(member)
        if not isinstance(agent, AbstractSkillAgent):
            continue
        state, length = run.members.pick(run.state, member), run.run.episode_length
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
        title = f"{type(agent).__name__} on {env_name(run.environment())}"
        path = pathlib.Path(run.folder or ".") / name
        try:
            write_skills(paths, path, title)
        except (OSError, ImportError) as error:
            yield f"No plot was written: {error}"
        else:
            yield f"wrote {path}"


def _episode(run: Result, member: int, key: Any) -> Episode:
    """Run the beginning of an episode of one member."""
    length = run.run.episode_length
    env = run.environment()
    return run_episode(run.members, run.state, env, key, member, length)


def compare_runs(
    folders: Annotated[
        tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="FOLDER")
    ],
    out: str = "compare.png",
) -> None:
    """Plot the returns of several runs over steps and seconds, or all metrics of one run.

    The runs may still be in progress.

    Args:
        folders: folders of the runs.
        out: file of the plot.
    """
    if not folders:
        raise CommandError("Name at least one run folder.")
    screen = console()
    with sentences():
        found = write_curves(folders, out)
    table = plain_table("run", *Summary.COLUMNS)
    for one in found:
        table.add_row(one.label, *Summary.of(one).texts())
    screen.print(table)
    screen.print(f"wrote {out}")


def write_run_page(
    folder: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="FOLDER")],
) -> None:
    """Write a page about a run, `index.html` in its folder: curves, evaluations, videos,
    settings. Runs do so at their end; call it during a run, or for new videos.

    Args:
        folder: folder of the run.
    """
    screen = console()
    with sentences():
        path = write_page(folder)
    screen.print(f"wrote {path}")


runs = {"compare": compare_runs, "page": write_run_page}


def view_run(
    folder: str, *, env: str | None = None
) -> tuple[AbstractEnv, Callable[[Any, Any], Any] | AbstractController]:
    """Read the environment of a run, and the policy of its first agent.

    **Arguments:**

    - `env`: name of the environment, or `module:object`; by default the stored name.

    The policy is that of the checkpoint that `eqsim eval` evaluates.

    **Raises:** `FileNotFoundError` if it is not the folder of a run; `ValueError` if a
    file is damaged or the run cannot be made again.
    """
    run = read(folder, env, best=False, last=False)
    whole = evaluation_env(run.environment(), run.run.episode_length)
    return whole, agent_policy(*run.member(0))
