"""Skills of the ant learned by DADS: updates per second, and goals reached.

    python benchmarks/skills.py --out out/bench \\
        --markdown out/skills_of_the_ant.md --pictures docs/images
    python benchmarks/skills.py --goals --out out/bench \\
        --markdown out/skills_of_the_ant.md --pictures docs/images
"""

import argparse
import pathlib
import shutil
import subprocess
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from _bench import caption, interleaved, parser, say, setting, table, write
from _training import command, physics, sections, train, write_section
from jax import lax

import eqsim_zoo as zoo
from eqsim import AutoReset, TimeLimit
from eqsim.wrappers.skills import ant_omni, OneHotSkills, Skills


EXPLANATION = """\
This page evaluates five skills that `DADS` discovers for the ant without a task reward, with
the preset of `eqsim train dads ant_omni --seed SEED`. Training takes 1,000,000 control steps
in episodes of 100, in single precision, in one process, on one device, with an empty
compilation cache.

- `seconds`: duration of `train`, including compilation.
- `reward`: intrinsic reward of `DADS` per step, mean over {episodes} episodes of each skill
  with the deterministic policy; at most log 5 = 1.609.
- `accuracy, step`, `accuracy, episode`: share of steps, or of episodes, in which the skill
  dynamics identify the skill from the displacement.
- `distance`: distance from the origin at the end of an episode, mean over skills, m.
- `separation`: smallest distance between the mean end positions of two skills, m.
"""

UPDATES = """\
The next table lists updates per second of `DADS`, and of a `SAC` with the same networks and
observations. An update of `DADS` uses one batch of a replay buffer with {rows:,} rows and
changes skill dynamics, critics, policy, temperature and targets. The batch size is {batch},
the networks have two hidden layers of 256, and there are five skills, 27 observations and 8
actions. Many updates run in one program; the best of {repeats} interleaved runs is listed."""

EPISODES = 16


def main() -> None:
    """Train, evaluate, time, and write tables and plots."""
    options = _options()
    options.pictures = options.pictures or options.out
    options.pictures.mkdir(parents=True, exist_ok=True)
    where, rows = setting(options), []
    name, run = ("goals", reach) if options.goals else ("skills", _run)
    for seed in range(options.seeds):
        rows.append(run(seed, options))
        write(options.out / f"{name}.json", {"where": where, "rows": rows})
    data: dict[str, Any] = {"where": where, "rows": rows}
    if options.goals:
        text = goals_report(where, rows)
    else:
        data["updates"] = _updates(options)
        text = report(where, rows, data["updates"], options)
    write(options.out / f"{name}.json", data)
    write(options.out / f"{name}.md", text)
    if options.goals:
        write_section(options.markdown, text)
    elif options.markdown is not None:
        # Sections that the other call writes stay.
        write(options.markdown, "\n".join([text, *sections(options.markdown)]))
    print(text)


def _options():
    made = parser(__doc__, repeats=5, limit=60.0)
    add = made.add_argument
    add("--seeds", type=int, default=1)
    add(
        "--goals",
        action="store_true",
        help="in place of the rest: skills of a continuum, and goals that are reached by "
        "plans of them; the rest of --markdown stays as it is",
    )
    add("--qdax", help="a Python with QDax 0.5.0 and a JAX it runs on, to time as well")
    add("--steps", help="in place of those of the preset")
    add(
        "--pictures", type=pathlib.Path, help="folder of the pictures; by default --out"
    )
    return made.parse_args()


def _run(seed: int, options) -> dict[str, Any]:
    folder = options.out / "skills" / f"dads-ant_omni-{seed}"
    more = () if options.steps is None else ("--steps", options.steps)
    found = train("dads", "ant_omni", seed, folder, more)
    command(("eval", str(folder), "--last"))
    drawn = options.pictures / f"skills_of_the_ant_{seed}.png"
    shutil.copy(folder / "skills.png", drawn)
    shutil.copy(folder / "curves.png", drawn.with_stem(f"{drawn.stem}_curves"))
    run = zoo.load_run(folder)
    length = run.run.episode_length
    paths = zoo.skills.follow_skills(
        run.members.agent(0),
        run.state,
        run.environment(),
        jr.key(seed),
        episodes=EPISODES,
        episode_length=length,
    )
    ends = paths.descriptors[:, :, -1]
    middle = ends.mean(axis=1)
    apart = np.linalg.norm(middle[:, None] - middle[None], axis=-1)
    step, episode = paths.accuracy()
    return {
        "seed": seed,
        "steps": found[-1]["steps"],
        "seconds": found[-1]["seconds"],
        "reward": paths.reward(),
        "told by step": step,
        "told by episode": episode,
        "distance": float(np.linalg.norm(ends, axis=-1).mean()),
        "apart": float(apart[np.triu_indices(len(ends), 1)].min()),
    }


ROWS, BATCH, TURN = 10_000, 256, 20


def _updates(options) -> dict[str, float]:
    """Measure updates per second of DADS and of SAC alone."""
    say("updates per second")
    options_of_env = {"include_cfrc_ext_in_observation": False}
    inner = TimeLimit(Skills(ant_omni(**options_of_env), OneHotSkills(5)), 100)
    sac = zoo.SAC(num_envs=4, batch_size=BATCH, capacity=ROWS)
    runs = {}
    for name, agent in {"dads": zoo.DADS(sac=sac), "sac": sac}.items():
        say(f"  {name}")
        state = eqx.filter_jit(agent.init)(jr.key(0), AutoReset(inner))
        replay = _filled(state.memory.replay)
        bare = state.learner
        runs[name] = _several(agent, bare, replay)
    found = interleaved(runs, options.repeats, options.limit)
    rates = {name: TURN / timing.best for name, timing in found.items()}
    return rates | ({"QDax's dads": _qdax(options)} if options.qdax else {})


def _filled(replay: zoo.blocks.Replay) -> zoo.blocks.Replay:
    """Fill with random values between -1 and 1, the range of actions."""

    def fill(x):
        if not jnp.issubdtype(x.dtype, jnp.floating):
            return x
        return jr.uniform(jr.key(x.size), x.shape, x.dtype, -0.99, 0.99)

    full = jnp.asarray(replay.capacity, jnp.int32)
    return zoo.blocks.Replay(
        jax.tree.map(fill, replay.rows), full * 0, full, replay.block
    )


def _several(agent, state, replay):
    @eqx.filter_jit
    def turn(agent, state, replay, key):
        once = lambda s, key: (agent.update(s, replay.sample(key, BATCH))[0], None)
        return lax.scan(once, state, jr.split(key, TURN))[0]

    return lambda: turn(agent, state, replay, jr.key(0))


QDAX = """
import sys, time
import jax, jax.numpy as jnp
from qdax.baselines.dads import DADS, DadsConfig
from qdax.core.neuroevolution.buffers.buffer import QDTransition, ReplayBuffer
rows, batch, turn, repeats = map(int, sys.argv[1:])
agent = DADS(DadsConfig(batch_size=batch, episode_length=100), 8, 2)
state = agent.init(jax.random.PRNGKey(0), 8, 27, 2)
keys = iter(jax.random.split(jax.random.PRNGKey(1), 9))
draw = lambda *shape: jax.random.uniform(next(keys), shape, minval=-0.99, maxval=0.99)
skills = jnp.eye(5)[jnp.arange(rows) % 5]
seen = lambda: jnp.concatenate([draw(rows, 27), skills], axis=1)
steps = QDTransition(
    obs=seen(), next_obs=seen(), rewards=draw(rows), dones=jnp.zeros(rows),
    truncations=jnp.zeros(rows), actions=draw(rows, 8),
    state_desc=draw(rows, 2), next_state_desc=draw(rows, 2),
)
one = jax.tree.map(lambda x: x[:1], steps)
memory = ReplayBuffer.init(buffer_size=rows, transition=one).insert(steps)
def once(now, _):
    state, memory, _ = agent.update(*now)
    return (state, memory), None
run = jax.jit(lambda s, m: jax.lax.scan(once, (s, m), length=turn)[0][0])
jax.block_until_ready(run(state, memory))
best = float("inf")
for _ in range(repeats):
    begin = time.perf_counter()
    jax.block_until_ready(run(state, memory))
    best = min(best, time.perf_counter() - begin)
print(turn / best)
"""


def _qdax(options) -> float:
    """Measure updates per second of QDax's DADS with the same sizes, in its own
    environment."""
    say("updates per second, QDax")
    sizes = (ROWS, BATCH, TURN, options.repeats)
    done = subprocess.run(
        [options.qdax, "-c", QDAX, *map(str, sizes)],
        check=True,
        capture_output=True,
        text=True,
    )
    return float(done.stdout.strip().splitlines()[-1])


def report(
    where: dict[str, Any],
    rows: list[dict[str, Any]],
    updates: dict[str, float],
    options,
) -> str:
    """Return tables and plots."""
    lines = [
        {
            "seed": row["seed"],
            "steps": f"{row['steps']:,}",
            "seconds": f"{row['seconds']:.0f}",
            "reward": f"{row['reward']:.3f}",
            "reward / log 5": f"{row['reward'] / np.log(5):.2f}",
            "accuracy, step": f"{row['told by step']:.0%}",
            "accuracy, episode": f"{row['told by episode']:.0%}",
            "distance": f"{row['distance']:.1f}",
            "separation": f"{row['apart']:.1f}",
        }
        for row in rows
    ]
    pictures = [
        f"![skills of the ant, seed {row['seed']}]"
        f"(images/skills_of_the_ant_{row['seed']}.png)\n"
        for row in rows
    ]
    about = EXPLANATION.format(episodes=EPISODES)
    speed = UPDATES.format(rows=ROWS, batch=BATCH, repeats=options.repeats)
    counted = [{"agent": k, "updates/s": f"{v:,.0f}"} for k, v in updates.items()]
    text = f"Physics: {physics('dads', 'ant_omni')}."
    parts = ["# Skills of the ant\n", about, text, "", caption(where), "", table(lines)]
    return "\n".join([*parts, "", *pictures, speed, "", table(counted), ""])


# Goals that are reached by planning over skills, without further training.


GOALS, RADIUS, EPISODES_PER_GOAL, LENGTH = 8, 5.0, 4, 200
"""Number of goals on a circle and its radius, m; episodes per goal; control steps per
episode."""

GOALS_TEXT = """\
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
        agent,
        run.state,
        run.environment(),
        key,
        episodes=EPISODES_PER_GOAL,
        episode_length=length,
    )
    zoo.skills.write_skills(
        paths, folder / "skills.png", "DADS on ant_omni, continuous"
    )
    goals = circle()
    reached = zoo.skills.reach_goals(
        agent,
        run.state,
        run.environment(),
        jnp.asarray(np.repeat(goals, EPISODES_PER_GOAL, axis=0)),
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
    off = reached.distances().reshape(GOALS, EPISODES_PER_GOAL, LENGTH) / RADIUS
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


def goals_report(where: dict[str, Any], runs: list[dict[str, Any]]) -> str:
    """Return the section on goals."""
    skills = runs[0]["skills"]
    about = GOALS_TEXT.format(
        steps=runs[0]["steps"],
        episodes=EPISODES_PER_GOAL,
        length=LENGTH,
        goals=GOALS,
        radius=RADIUS,
        number=skills["number"],
        plan=skills["length"],
    )
    text = f"Physics: {physics('dads', 'ant_omni')}."
    parts = [
        "## Goals\n",
        about,
        text,
        "",
        caption(where),
        "",
        table([*map(_goal_run, runs)]),
    ]
    for run in runs:
        picture = f"![paths of the ant to goals, seed {run['seed']}]"
        parts += ["", table(_goal_rows(run)), "", f"{picture}(images/{run['picture']})"]
    return "\n".join([*parts, ""])


def _goal_run(run: dict[str, Any]) -> dict[str, Any]:
    skills, off = run["skills"], [row["left"] for row in run["goals"]]
    return {
        "seed": run["seed"],
        "seconds": f"{run['seconds']:.0f}",
        "reward": f"{skills['reward']:.3f}",
        "reach": f"{skills['reach']:.1f}",
        "covered": f"{skills['covered']:.0%}",
        "error / radius": f"{np.mean(off):.2f}",
    }


def _goal_rows(run: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "goal": f"({row['goal'][0]:.1f}, {row['goal'][1]:.1f})",
            "error / radius": f"{np.mean(row['left']):.2f}",
            "largest": f"{np.max(row['left']):.2f}",
            "smallest": f"{np.mean(row['nearest']):.2f}",
        }
        for row in run["goals"]
    ]


if __name__ == "__main__":
    main()
