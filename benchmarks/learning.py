"""Return and training speed of agents with their presets, compared with Brax's PPO.

    python benchmarks/learning.py --out out/bench --markdown out/learning.md

Every run is a separate process, `eqsim train`, without precompiled programs.
"""

import json
import math
import pathlib
import subprocess
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from _bench import caption, parser, publish, say, setting, table, write
from _training import draw, kept, physics, sections, train

from eqsim_zoo.runs import find_preset, presets


EXPLANATION = """\
This page lists the returns and training times of the presets (`eqsim train AGENT ENV --seed
SEED`). Each run uses single precision, one process, one device and an empty compilation
cache. Rewards, observations, terminations and time steps are those of Gymnasium's version 5.

- `return by seed`: mean return of the deterministic policy in the last evaluation.
- `seconds`: duration of `train`, including compilation but not imports.
- `reached, s`: seconds until an evaluation first exceeded `goal`. There are ten evaluations
  per run.
- `ppo, 8 seeds` and `ppo, 16 learning rates`: several agents trained in one program, with
  `steps` steps each; the return is the mean over these agents."""

GOALS = {
    "inverted_pendulum": 999.0,
    "hopper": 2000.0,
    "half_cheetah": 3000.0,
    "ant": 4000.0,
}

RATES = np.geomspace(1e-4, 3e-3, 16)
TOGETHER = {
    "ppo, 8 seeds": ("--num-seeds", "8"),
    "ppo, 16 learning rates": (
        "--sweep",
        f"learning_rate={','.join(f'{rate:.2e}' for rate in RATES)}",
    ),
}


def main() -> None:
    """Train all agents, and write table and curves."""
    options = _options()
    where = setting(options)
    rows = _kept(options)
    for row in _trained(options):
        rows.append(row)
        write(options.out / "learning.json", {"where": where, "rows": rows})
    for env, agents in _by_env(rows).items():
        if len(agents) > 1:
            _draw(env, agents, options)
    text = report(where, rows, options)
    publish(options, "learning", {"where": where, "rows": rows}, text)
    print(text)


def _trained(options) -> Iterator[dict[str, Any]]:
    """Yield the result of each run, and plot the curves of each agent."""
    for agent, env in options.runs or _rewarded():
        for seed in range(options.seeds):
            yield _run(agent, env, seed, options)
        _draw(env, [agent], options)
    for agent, more in TOGETHER.items() if options.together else ():
        yield _together(agent, more, options)
    for seed in range(options.brax_seeds if options.brax else 0):
        yield _brax(options, seed)


def _rewarded() -> list[tuple[str, ...]]:
    """Return presets whose returns measure learning; skills are in `skills.py`."""
    return [pair for pair, make in presets().items() if make().skills is None]


def _kept(options) -> list[dict[str, Any]]:
    """Return results of earlier calls that this call does not repeat."""
    again = {*(options.runs or _rewarded())}
    if options.brax:
        again.add(("Brax's ppo", "inverted_pendulum"))
    if options.together:
        again |= {(agent, "inverted_pendulum") for agent in TOGETHER}
    path = options.out / "learning.json"
    return kept(path, again, "agent", "env") if options.keep else []


def _options():
    made = parser(__doc__, repeats=1)
    add = made.add_argument
    add("--seeds", type=int, default=3)
    add("--runs", type=_pair, nargs="*", help="AGENT:ENV; by default all presets")
    add("--steps", help="in place of those of the presets")
    add("--together", action="store_true", help="and many members in one program")
    add("--keep", action="store_true", help="other rows of an earlier call")
    add("--brax", help="a Python with Brax whose PPO starts, to run beside")
    add("--brax-seeds", type=int, default=1)
    add("--pictures", type=pathlib.Path, help="folder of the curves; by default --out")
    return made.parse_args()


def _pair(text: str) -> tuple[str, str]:
    agent, _, env = text.partition(":")
    if find_preset(agent, env) is None:
        known = ", ".join(":".join(pair) for pair in presets())
        raise ValueError(f"There is no preset {text!r}; there are {known}.")
    return agent, env


def _folder(agent: str, env: str, seed: int, options) -> pathlib.Path:
    return options.out / "learning" / f"{agent}-{env}-{seed}"


def _run(agent: str, env: str, seed: int, options) -> dict[str, Any]:
    more = () if options.steps is None else ("--steps", options.steps)
    found = train(agent, env, seed, _folder(agent, env, seed, options), more)
    goal = GOALS.get(env, math.nan)
    reached = [row["seconds"] for row in found if row["eval/return"] > goal]
    return {
        "agent": agent,
        "env": env,
        "seed": seed,
        "return": found[-1]["eval/return"],
        "steps": found[-1]["steps"],
        "seconds": found[-1]["seconds"],
        "reached": reached[0] if reached else None,
    }


def _together(agent: str, more: Sequence[str], options) -> dict[str, Any]:
    """Train many members in one program."""
    env, folder = "inverted_pendulum", options.out / "learning" / agent
    found = train("ppo", env, 0, folder, more)
    last = [row for row in found if row["turn"] == found[-1]["turn"]]
    return {
        "agent": agent,
        "env": env,
        "seed": 0,
        "return": float(np.mean([row["eval/return"] for row in last])),
        "steps": last[0]["steps"],
        "seconds": last[0]["seconds"],
        "reached": None,
    }


def _draw(env: str, agents: list[str], options) -> None:
    seeds = range(options.seeds)
    folders = [_folder(agent, env, seed, options) for agent in agents for seed in seeds]
    draw(folders, options.pictures or options.out, _picture(env, agents))


def _picture(env: str, agents: list[str]) -> str:
    return f"learning_{env}_{'_'.join(agents)}"


def _by_env(rows: list[dict[str, Any]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for row in rows:
        own = found.setdefault(row["env"], [])
        if row["agent"] not in own and find_preset(row["agent"], row["env"]):
            own.append(row["agent"])
    return found


BRAX = """
import json, sys, time
from brax import envs
from brax.training.agents.ppo import train as ppo
begin = time.time()
rows = []
def progress(steps, metrics):
    rows.append((steps, time.time() - begin, float(metrics["eval/episode_reward"])))
ppo.train(
    environment=envs.get_environment("inverted_pendulum", backend="generalized"),
    num_timesteps=2_000_000, num_evals=20, reward_scaling=10, episode_length=1000,
    normalize_observations=True, action_repeat=1, unroll_length=5, num_minibatches=32,
    num_updates_per_batch=4, discounting=0.97, learning_rate=3e-4, entropy_cost=1e-2,
    num_envs=2048, batch_size=1024, seed=int(sys.argv[1]), progress_fn=progress,
)
print(json.dumps(rows))
"""
"""Brax's tuned settings of the inverted pendulum (its notebook on training)."""


def _brax(options, seed: int) -> dict[str, Any]:
    say(f"Brax's ppo inverted_pendulum seed {seed}")
    done = subprocess.run(
        [options.brax, "-c", BRAX, str(seed)],
        check=True,
        capture_output=True,
        text=True,
    )
    rows = json.loads(done.stdout.strip().splitlines()[-1])
    reached = [at for _, at, value in rows if value > GOALS["inverted_pendulum"]]
    return {
        "agent": "Brax's ppo",
        "env": "inverted_pendulum",
        "seed": seed,
        "return": rows[-1][2],
        "steps": rows[-1][0],
        "seconds": rows[-1][1],
        "reached": reached[0] if reached else None,
    }


def report(where: dict[str, Any], rows: list[dict[str, Any]], options) -> str:
    """Return the table, one line for all seeds of an agent and an environment."""
    lines, pictures = [], []
    pairs = dict.fromkeys((row["agent"], row["env"]) for row in rows)
    for agent, env in sorted(pairs, key=lambda pair: [*GOALS, pair[1]].index(pair[1])):
        own = [row for row in rows if (row["agent"], row["env"]) == (agent, env)]
        returns = [row["return"] for row in own]
        reached = [row["reached"] for row in own]
        goal = GOALS.get(env)
        shown = lambda values, form: ", ".join(
            "-" if x is None else format(x, form) for x in values
        )
        lines.append(
            {
                "environment": env,
                "agent": agent,
                "steps": f"{own[0]['steps']:,}",
                "return by seed": shown(returns, ",.0f"),
                "mean": f"{np.mean(returns):,.0f}",
                "seconds": shown([row["seconds"] for row in own], ".0f"),
                "goal": "" if goal is None else f"{goal:,.0f}",
                "reached, s": shown(reached, ".0f"),
                "physics": _physics(agent, env),
            }
        )
    for env, agents in _by_env(rows).items():
        shown = [[agent] for agent in agents] + ([agents] if len(agents) > 1 else [])
        for own in shown:
            text = f"{' beside '.join(own)} on {env}"
            pictures.append(f"![{text}](images/{_picture(env, own)}.png)\n")
    parts = ["# Learning\n", EXPLANATION, "", caption(where), "", table(lines)]
    # Sections that other commands write stay.
    return "\n".join([*parts, "", *pictures, *sections(options.markdown)])


def _physics(agent: str, env: str) -> str:
    if agent.startswith("Brax"):
        return "Brax generalized, Euler"
    return physics(agent.partition(",")[0], env)


if __name__ == "__main__":
    main()
