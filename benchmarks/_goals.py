"""Goals that the ant reaches by planning over learned skills, without further training."""

import argparse
import pathlib
from typing import Any

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from _command import say
from _runs import physics, train
from _tables import caption, table

import eqsim_zoo as zoo


GOALS, RADIUS, EPISODES, LENGTH = 8, 5.0, 4, 200
"""Number of goals on a circle and its radius, m; episodes per goal; control steps per
episode."""

TITLE = "## Goals\n"
EXPLANATION = """\
Skills can be combined to reach goals. With `eqsim train dads ant_omni --preset continuous
--seed SEED`, a skill is a point of a square, and a new skill is drawn at random times within
an episode; training takes {steps:,} control steps. Then `reach_goals`, with its defaults,
plans with the skill dynamics: it chooses skills that lead to each of {goals} goals,
{radius:g} m from the start, in {episodes} episodes of {length} steps. Nothing is learned in
these episodes.

- `seconds`: duration of `train`, with compilation.
- `reward`: intrinsic reward of `DADS` per step with {number} alternative skills, at most
  log {number}.
- `reach`: distance from the origin after {plan} steps of one skill, mean over {number}
  skills, m.
- `covered`: share of a grid of 20 m x 20 m that these {number} skills visit.
- `error / radius`: distance from the goal at the end of an episode, divided by {radius:g} m,
  mean over episodes; 1 for an ant that does not move.
- `largest`: largest `error / radius` of the episodes.
- `smallest`: smallest `error / radius` at any time of an episode, mean over episodes.
"""


def reach(seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """Train, reach goals, and plot the paths.

    **Returns:** data of the run, and a row per goal.
    """
    folder = options.out / "skills" / f"dads-ant_omni-continuous-{seed}"
    more = ["--preset", "continuous"]
    more += [] if options.steps is None else ["--steps", options.steps]
    found = train("dads", "ant_omni", seed, folder, more)
    run = zoo.load_run(folder)
    agent, key = run.members.agent(0), jr.key(seed)
    length = run.run.episode_length
    paths = zoo.skills.follow_skills(
        agent, run.state, run.env, key, episodes=EPISODES, episode_length=length
    )
    zoo.skills.write_skills(
        paths, folder / "skills.png", "DADS on ant_omni, continuous"
    )
    goals = circle()
    reached = zoo.skills.reach_goals(
        agent,
        run.state,
        run.env,
        jnp.asarray(np.repeat(goals, EPISODES, axis=0)),
        key,
        length=LENGTH,
    )
    name = f"goals_of_the_ant_{seed}.png"
    zoo.skills.write_goals(
        reached, options.pictures / name, "DADS on ant_omni, zero-shot"
    )
    ends = np.linalg.norm(paths.descriptors[:, :, -1], axis=-1)
    return {
        "seed": seed,
        "picture": name,
        "steps": found[-1]["steps"],
        "seconds": found[-1]["seconds"],
        "skills": {
            "number": len(paths.skills),
            "length": length,
            "reward": paths.reward(),
            "reach": float(ends.mean()),
            "covered": paths.coverage(),
        },
        "goals": rows_of(reached, goals),
    }


def circle() -> np.ndarray:
    """Return the goals, m."""
    angles = 2.0 * np.pi * np.arange(GOALS) / GOALS
    goals = RADIUS * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    return goals.round(9) + 0.0  # No negative zeros, which would be printed.


def rows_of(reached: zoo.skills.Reached, goals: np.ndarray) -> list[dict[str, Any]]:
    """Return a row per goal: final distances divided by the radius, over episodes."""
    off = reached.distances().reshape(GOALS, EPISODES, LENGTH) / RADIUS
    rows = []
    for goal, episodes in zip(goals, off, strict=True):
        rows.append(
            {
                "goal": goal.tolist(),
                "left": episodes[:, -1].tolist(),
                "nearest": episodes.min(axis=1).tolist(),
            }
        )
        say(
            f"  goal {goal.round(1)}: distance / radius {np.mean(rows[-1]['left']):.2f}"
        )
    return rows


def report(where: dict[str, Any], runs: list[dict[str, Any]]) -> str:
    """Return the section on goals."""
    skills = runs[0]["skills"]
    about = EXPLANATION.format(
        steps=runs[0]["steps"],
        episodes=EPISODES,
        length=LENGTH,
        goals=GOALS,
        radius=RADIUS,
        number=skills["number"],
        plan=skills["length"],
    )
    text = f"Physics: {physics('dads', 'ant_omni')}."
    parts = [TITLE, about, text, "", caption(where), "", table([*map(_run, runs)])]
    for run in runs:
        picture = f"![paths of the ant to goals, seed {run['seed']}]"
        parts += ["", table(_goals(run)), "", f"{picture}(images/{run['picture']})"]
    return "\n".join([*parts, ""])


def merged(
    page: pathlib.Path | None, *, before: str | None = None, goals: str | None = None
) -> str:
    """Return a page that ends with the section on goals; parts that are not given are
    kept."""
    old = page.read_text() if page is not None and page.exists() else ""
    first, title, rest = old.partition(TITLE)
    parts = (
        first if before is None else before,
        title + rest if goals is None else goals,
    )
    return "\n\n".join(part.strip("\n") for part in parts if part.strip()) + "\n"


def _run(run: dict[str, Any]) -> dict[str, Any]:
    skills, off = run["skills"], [row["left"] for row in run["goals"]]
    return {
        "seed": run["seed"],
        "seconds": f"{run['seconds']:.0f}",
        "reward": f"{skills['reward']:.3f}",
        "reach": f"{skills['reach']:.1f}",
        "covered": f"{skills['covered']:.0%}",
        "error / radius": f"{np.mean(off):.2f}",
    }


def _goals(run: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "goal": f"({row['goal'][0]:.1f}, {row['goal'][1]:.1f})",
            "error / radius": f"{np.mean(row['left']):.2f}",
            "largest": f"{np.max(row['left']):.2f}",
            "smallest": f"{np.mean(row['nearest']):.2f}",
        }
        for row in run["goals"]
    ]
