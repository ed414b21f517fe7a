"""How well and how fast agents learn, by their presets, and beside Brax's PPO.

    python benchmarks/learning.py --out out/bench --markdown docs/learning.md

Every run is a process of its own, `eqsim train`, with nothing compiled in advance.
"""

import json
import math
import os
import pathlib
import subprocess
import sys
import time
from typing import Any

import numpy as np
from _command import parser, publish, say, setting
from _tables import caption, table

import eqsim
from eqsim_zoo import find_preset, presets, read_metrics, write_curves


EXPLANATION = """\
`eqsim train AGENT ENV --seed SEED`, by its preset: everything in single precision, one
process, one device, an empty compilation cache. Rewards, observations, endings and time
steps are those of Gymnasium's version 5. `return`: of the deterministic policy in the last
evaluation of each seed, mean over episodes. `seconds`: from the call of `train` to its
end, with compiling. `reached`: seconds until an evaluation first exceeded the goal, in
each seed; evaluations are a tenth of a run apart."""

GOALS = {
    "inverted_pendulum": 999.0,
    "hopper": 2000.0,
    "half_cheetah": 3000.0,
    "ant": 4000.0,
}


def main() -> None:
    """Trains all, and writes table and curves."""
    options = _options()
    where = setting(options)
    rows: list[dict[str, Any]] = []
    for agent, env in options.runs or [*presets()]:
        for seed in range(options.seeds):
            rows.append(_run(agent, env, seed, options))
            publish(options, "learning", {"where": where, "rows": rows}, "")
        _draw(agent, env, options)
    for seed in range(options.seeds if options.brax else 0):
        rows.append(_brax(options, seed))
        publish(options, "learning", {"where": where, "rows": rows}, "")
    text = report(where, rows, options)
    publish(options, "learning", {"where": where, "rows": rows}, text)
    print(text)


def _options():
    made = parser(__doc__ or "", repeats=1)
    add = made.add_argument
    add("--seeds", type=int, default=3)
    add("--runs", type=_pair, nargs="*", help="AGENT:ENV; by default all presets")
    add("--brax", help="a Python with Brax whose PPO starts, to run beside")
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
    """One run, in a process of its own; what its files say."""
    folder = _folder(agent, env, seed, options)
    code = "import sys; from eqsim._cli import main; sys.exit(main())"
    command = ["train", agent, env, "--seed", str(seed), "--out", str(folder)]
    clean = {k: v for k, v in os.environ.items() if k != "JAX_COMPILATION_CACHE_DIR"}
    say(f"{agent} {env} seed {seed}")
    subprocess.run(
        [sys.executable, "-c", code, *command, "--overwrite"],
        env=clean,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    found = [row for row in read_metrics(folder) if "eval/return" in row]
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


def _draw(agent: str, env: str, options) -> None:
    folders = [_folder(agent, env, seed, options) for seed in range(options.seeds)]
    out = options.pictures or options.out
    out.mkdir(parents=True, exist_ok=True)
    write_curves(folders, out / f"learning_{agent}_{env}.png")


BRAX = """
import json, sys, time
begin = time.time()
from brax import envs
from brax.training.agents.ppo import train as ppo
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
"""Its own tuned settings of the inverted pendulum (its notebook on training)."""


def _brax(options, seed: int) -> dict[str, Any]:
    say(f"Brax's ppo inverted_pendulum seed {seed}")
    begin = time.time()
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
        "seconds": time.time() - begin,
        "reached": reached[0] if reached else None,
    }


def report(where: dict[str, Any], rows: list[dict[str, Any]], options) -> str:
    """The table, one line for all seeds of an agent and an environment."""
    lines, pictures = [], []
    for agent, env in dict.fromkeys((row["agent"], row["env"]) for row in rows):
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
        if not agent.startswith("Brax"):
            pictures.append(f"![{agent} on {env}](images/learning_{agent}_{env}.png)\n")
    parts = ["# Learning\n", EXPLANATION, "", caption(where), "", table(lines)]
    return "\n".join([*parts, "", *pictures])


def _physics(agent: str, env: str) -> str:
    if agent.startswith("Brax"):
        return "Brax generalized, Euler"
    preset = find_preset(agent, env)
    assert preset is not None
    made = eqsim.make(env, pipeline=preset.pipeline)
    return f"{type(made.pipeline).__name__}, {made.sys.integrator.name}"


if __name__ == "__main__":
    main()
