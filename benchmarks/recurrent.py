"""PPO with and without memory, on a pendulum that is only partially observed.

python benchmarks/recurrent.py --out out/bench --markdown docs/learning.md
"""

from typing import Any

from _command import parser, say, setting
from _learned import learn
from _tables import by_agent, caption, table, write, write_section

import eqsim
import eqsim_zoo as zoo
from eqsim import AbstractEnv, randomize


EXPLANATION = """\
This section compares PPO with and without memory on an `inverted_pendulum` that is only
partially observed (`python benchmarks/recurrent.py --markdown docs/learning.md`). Position
and angle are observed, velocities are not. In each episode, actions are delayed by 0, 1 or 2
control steps, and all masses are multiplied by random factors from 0.5 to 2.

Episodes have at most {length} steps. Both agents train for {steps:,} steps in {envs}
environments with the same settings (iterations of {unroll} steps, {minibatches} minibatches,
learning rate annealed from 0.001 to 0) and networks of their default sizes.

- `return by seed`: return of the deterministic policy after training, mean over {episodes}
  episodes; the maximum is {length}.
- `seconds`: training time, on a machine that was shared with other work. The time of the
  first seed includes compilation."""
HEADING = "## Partial observation"
LENGTH, ENVS, UNROLL, MINIBATCHES, EPISODES = 500, 64, 32, 4, 256
AGENTS = {
    "ppo": (zoo.PPO, 1),
    "ppo, last 4 observations": (zoo.PPO, 4),
    "recurrent_ppo": (zoo.RecurrentPPO, 1),
}


def main() -> None:
    """Train all agents, and write the table after each run."""
    options = _options()
    where, rows = setting(options), []
    for seed in range(options.seeds):
        for name in AGENTS:
            rows.append(_run(name, seed, options.steps))
            say(rows[-1])
            write(options.out / "recurrent.json", {"where": where, "rows": rows})
    text = report(where, rows, options.steps)
    write(options.out / "recurrent.md", text)
    write_section(options.markdown, text)
    print(text)


def environment(frames: int) -> AbstractEnv:
    """Create the task.

    **Arguments:**

    - `frames`: number of the last observations that the agent sees.
    """
    task = eqsim.make("inverted_pendulum")
    env = eqsim.DomainRandomization(task, randomize.masses(0.5, 2.0))
    env = eqsim.SelectObservation(eqsim.DelayAction(env, 2, 0), (0, 1))
    return eqsim.StackObservation(env, frames) if frames > 1 else env


def _run(name: str, seed: int, steps: int) -> dict[str, Any]:
    """Train one agent, and evaluate it."""
    kind, frames = AGENTS[name]
    agent = kind(
        num_envs=ENVS,
        unroll_length=UNROLL,
        num_minibatches=MINIBATCHES,
        learning_rate=1e-3,
        anneal_steps=float(steps),
        reward_scale=0.1,
        entropy_cost=0.0,
    )
    env = environment(frames)
    sizes = {"episode_length": LENGTH, "pool_size": 256, "evaluations": 1}
    run = zoo.Run(agent, env, steps, seed=seed, **sizes)
    return learn(name, agent, env, run, EPISODES)


def report(where: dict[str, Any], rows: list[dict[str, Any]], steps: int) -> str:
    """Return the section, with one line for all seeds of an agent."""
    words = {
        "length": LENGTH,
        "steps": steps,
        "envs": ENVS,
        "unroll": UNROLL,
        "minibatches": MINIBATCHES,
        "episodes": EPISODES,
    }
    text = EXPLANATION.format(**words)
    return "\n\n".join([HEADING, text, caption(where), table(by_agent(rows))]) + "\n"


def _options():
    made = parser(__doc__ or "", repeats=1)
    made.add_argument("--seeds", type=int, default=3)
    made.add_argument("--steps", type=int, default=300_000)
    return made.parse_args()


if __name__ == "__main__":
    main()
