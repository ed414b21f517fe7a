"""Returns and training speed of agents that learn from datasets.

    python benchmarks/offline.py --out out/bench --markdown out/offline.md

Trains a medium policy, records datasets of it with and without random actions, and learns
from both. `--speed` measures updates per second instead, also of CORL's IQL if its file is
given.
"""

import importlib.util
import pathlib
import sys
import time
from typing import Any

import equinox as eqx
import jax
import numpy as np
from _bench import caption, parser, publish, say, setting, table
from _training import command, draw, kept, train

import eqsim
import eqsim_zoo as zoo
from eqsim_zoo.data.recording import measured_returns


EPISODE = 1000
"""Most steps of an episode of the medium policy, and of the recordings of it."""
EXPLANATION = """\
This page compares the offline agents on two datasets. `medium` has 200,000 steps with sampled
actions of a PPO agent that was stopped early. `mixed` has as many steps, half of them with
uniformly random actions. Each agent is trained on each dataset with three seeds in one
program, and evaluated with deterministic actions in 32 episodes. `behavior` is the mean
return of the episodes of the dataset that no end of the recording could have cut off, with
the 95 % confidence interval of the mean.
`score` is the mean over seeds, normalized so that the random policy has 0 and the
deterministic medium policy 100. `seconds` is the time for all three seeds, including
compilation. `bc` and `td3_bc` have default settings. The other agents have settings with
which values converge faster ({settings}); `iql` also has `expectile=0.9` and
`temperature=10`, and `cql` {cql}."""

SHORT = (
    "normalize_observations=true",
    "learning_rate=1e-3",
    "target_rate=0.02",
    "discount=0.97",
    "reward_scale=0.16",
)
# Fewer actions and smaller networks, because each update evaluates 12 actions per row
# and critic; the weight is in the units of values, which `reward_scale` reduces.
CQL = (
    "hidden=128,128",
    "num_actions=4",
    "policy_learning_rate=1e-3",
    "conservative_weight=1",
    "initial_temperature=0.1",
)
AGENTS = {
    "bc": (2e4, ()),
    "td3_bc": (3e4, ()),
    "iql": (8e3, (*SHORT, "expectile=0.9", "temperature=10")),
    "awac": (8e3, SHORT),
    "cql": (8e3, (*SHORT, *CQL)),
}


def main() -> None:
    """Create the datasets, learn from them, and write table and curves."""
    options = _options()
    where = setting(options)
    if options.speed:
        rows = _speeds(options)
        text = "\n".join(["# IQL's updates", "", caption(where), "", table(rows)])
        publish(options, "offline_speed", {"where": where, "rows": rows}, text)
        return print(text)
    _record(options)
    again = {(agent, name) for agent in options.agents for name in options.data}
    path = options.out / "offline.json"
    found = kept(path, again, "agent", "data") if options.keep else []
    for name in options.data:
        for agent in options.agents:
            found = _ordered([*found, _learn(agent, name, options)])
            data = {"where": where, "rows": found}
            publish(options, "offline", data, report(where, found, options))
        agents = [row["agent"] for row in found if row["data"] == name]
        folders = [_folder(options, agent, name) for agent in agents]
        draw(folders, options.pictures or options.out, f"offline_{options.env}_{name}")
    print(report(where, found, options))


def _ordered(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Sort the results: the mixture first, and agents in the order of the list."""
    place = lambda row: (row["data"] != "mixed", [*AGENTS].index(row["agent"]))
    return sorted(rows, key=place)


def _options():
    made = parser(__doc__, repeats=3)
    add = made.add_argument
    add("--env", default="half_cheetah")
    add("--behavior-steps", type=float, default=1e6, help="of the medium policy")
    add("--steps", type=float, default=2e5, help="that are recorded")
    add("--agents", nargs="*", choices=[*AGENTS], default=[*AGENTS])
    add("--data", nargs="+", choices=["medium", "mixed"], default=["mixed", "medium"])
    add("--keep", action="store_true", help="other rows of an earlier call")
    add("--share", type=float, default=1.0, help="of the updates, for a quick look")
    add("--pictures", type=pathlib.Path, help="folder of the curves; by default --out")
    add("--speed", action="store_true", help="updates per second only")
    add(
        "--corl",
        type=pathlib.Path,
        help="algorithms/offline/iql.py of CORL, with torch",
    )
    return made.parse_args()


def _folder(options, agent: str, data: str) -> pathlib.Path:
    return options.out / "offline" / f"{agent}-{options.env}-{data}"


def _file(options, name: str) -> pathlib.Path:
    return options.out / "offline" / f"{options.env}-{name}.npz"


def _record(options) -> None:
    """Train the medium policy and record its dataset, unless an earlier call has done
    so."""
    run = options.out / "offline" / f"behavior-{options.env}"
    if not (run / "last.ckpt").exists():
        train("ppo", options.env, 0, run, ("--steps", f"{options.behavior_steps:g}"))
    policies = {
        "medium": ("--policy", str(run)),
        "mixed": ("--policy", str(run), "--policy", "random"),
    }
    for name in options.data:
        if _file(options, name).exists():
            continue
        say(f"record {name}")
        more = (
            "--expert",
            str(run),
            "--last",
            "--drawn",
            "--steps",
            f"{options.steps:g}",
        )
        out = ("--out", str(_file(options, name)))
        command(("record", options.env, *policies[name], *more, *out))


def _learn(agent: str, name: str, options) -> dict[str, Any]:
    steps, settings = AGENTS[agent]
    pairs = [setting.split("=") for setting in settings]
    more = [word for name, x in pairs for word in (f"--{name.replace('_', '-')}", x)]
    own = ("--data", str(_file(options, name)), "--num-seeds", "3")
    own += ("--steps", f"{steps * options.share:g}", "--turns", "20")
    folder = _folder(options, agent, name)
    found = train(agent, options.env, 0, folder, (*own, *more))
    about, last = zoo.data.load_data(_file(options, name)).about, found[-1]["turn"]
    reached = [row["eval/return"] for row in found if row["turn"] == last]
    return {
        "data": name,
        "agent": agent,
        "updates": found[-1]["steps"],
        "returns": reached,
        "score": about.score(float(np.mean(reached))),
        "random": about.random_return,
        "medium": about.expert_return,
        "seconds": found[-1]["seconds"],
    }


def _behavior(options, name: str) -> str:
    """Return the mean of the `measured_returns` of a dataset, and the 95 % interval."""
    data = zoo.data.load_data(_file(options, name))
    parts = len(data.about.sources)  # Each with the same number of steps.
    part = parts * data.ends() // len(data)
    own = [data.subset(np.flatnonzero(part == k)) for k in range(parts)]
    returns = np.concatenate([measured_returns(x, None, EPISODE) for x in own])
    error = 1.96 * returns.std(ddof=1) / np.sqrt(len(returns))
    return f"{returns.mean():,.0f} ± {error:,.0f}"


def report(where: dict[str, Any], rows: list[dict[str, Any]], options) -> str:
    """Return the table, one line for each dataset and agent."""
    lines = [
        {
            "dataset": row["data"],
            "behavior": _behavior(options, row["data"]),
            "agent": row["agent"],
            "updates": f"{row['updates']:,}",
            "return by seed": ", ".join(f"{round(x):,}" for x in row["returns"]),
            "mean": f"{np.mean(row['returns']):,.0f}",
            "score": f"{row['score']:.0f}",
            "seconds": f"{row['seconds']:.0f}",
        }
        for row in rows
    ]
    first = rows[0]
    policies = (
        f"On {options.env}, the random policy has a return of {first['random']:,.0f}, and the "
        f"medium policy, trained for {options.behavior_steps:,.0f} steps, a return of "
        f"{first['medium']:,.0f}."
    )
    names = dict.fromkeys(row["data"] for row in rows)
    pictures = [
        f"![Returns during training on {name}](images/offline_{options.env}_{name}.png)\n"
        for name in names
    ]
    words = {"settings": SHORT, "cql": CQL}
    told = EXPLANATION.format(
        **{name: ", ".join(f"`{x}`" for x in of) for name, of in words.items()}
    )
    parts = ["# Offline RL: measured returns\n", told, "", policies, ""]
    return "\n".join([*parts, caption(where), "", table(lines), "", *pictures])


def _speeds(options) -> list[dict[str, Any]]:
    """Measure updates per second of IQL, with batches of 256, networks of 256 and 256
    units, observations of size 17 and actions of size 6."""
    found = {"eqsim-zoo": _ours, "CORL": _corl}
    if options.corl is None:
        del found["CORL"]
    best = dict.fromkeys(found, 0.0)
    steps = _steps()
    runs = {name: make(options, steps) for name, make in found.items()}
    for _ in range(options.repeats):  # In turns, as the machine is shared.
        for name, run in runs.items():
            begin = time.perf_counter()
            number = run()
            best[name] = max(best[name], number / (time.perf_counter() - begin))
    ours = best["eqsim-zoo"]
    return [
        {"IQL of": name, "updates/s": f"{rate:.0f}", "ours": f"{ours / rate:.2f}x"}
        for name, rate in best.items()
    ]


def _steps() -> dict[str, np.ndarray]:
    draws, number = np.random.default_rng(0), 100_000
    obs = draws.normal(size=(number + 1, 17)).astype(np.float32)
    return {
        "observations": obs[:-1],
        "next_observations": obs[1:],
        "actions": draws.uniform(-1, 1, (number, 6)).astype(np.float32),
        "rewards": draws.normal(size=number).astype(np.float32),
        "terminals": np.arange(number) % 1000 == 999,
    }


def _ours(options, steps):
    names = "observations", "actions", "rewards", "next_observations", "terminals"
    data = zoo.data.Dataset.create(
        *(steps[name] for name in names), np.zeros(len(steps["rewards"]), bool)
    )
    agent = zoo.Offline(zoo.IQL(), num_updates=200)
    env = zoo.runs.Recorded(eqsim.make("half_cheetah"), data)
    turn = eqx.filter_jit(agent.iterate)
    state = [turn(agent.init(jax.random.key(0), env), env)[0]]

    def run():
        for _ in range(5):
            state[0], metrics = turn(state[0], env)
        jax.block_until_ready(metrics)
        return 5 * agent.num_updates

    return run


def _corl(options, steps):
    """Measure CORL's IQL from its file, on the CPU, with batches from its buffer."""
    import torch

    spec = importlib.util.spec_from_file_location("corl_iql", options.corl)
    assert spec is not None and spec.loader is not None
    corl = importlib.util.module_from_spec(spec)
    sys.modules["corl_iql"] = corl
    spec.loader.exec_module(corl)
    buffer = corl.ReplayBuffer(17, 6, len(steps["rewards"]), "cpu")
    buffer.load_d4rl_dataset(steps)
    actor = corl.GaussianPolicy(17, 6, 1.0)
    q, v = corl.TwinQ(17, 6), corl.ValueFunction(17)
    adam = lambda net: torch.optim.Adam(net.parameters(), lr=3e-4)
    trainer = corl.ImplicitQLearning(
        1.0, actor, adam(actor), q, adam(q), v, adam(v), max_steps=1_000_000
    )

    def run():
        for _ in range(500):
            trainer.train(buffer.sample(256))
        return 500

    return run


if __name__ == "__main__":
    main()
