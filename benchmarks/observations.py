"""Learning from partial observations with memory, and from images.

    python benchmarks/observations.py memory --out out/bench --markdown out/learning.md
    python benchmarks/observations.py images --out out/bench --markdown out/learning.md

Both write a section of the page and keep the others.
"""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.random as jr
from _bench import caption, parser, say, setting, table, write
from _training import by_agent, write_section

import eqsim
import eqsim_zoo as zoo
from eqsim import AbstractEnv, randomize
from eqsim.render import Camera
from eqsim_zoo import vision


MEMORY = """\
This section compares PPO with and without memory on an `inverted_pendulum` that is only
partially observed (`python benchmarks/observations.py memory --markdown out/learning.md`).
Position and angle are observed, velocities are not. In each episode, actions are delayed by
0, 1 or 2 control steps, and all masses are multiplied by random factors from 0.5 to 2.

Episodes have at most {length} steps. All agents train for {steps:,} steps in 64
environments with the same settings (iterations of 32 steps, 4 minibatches, learning rate
annealed from 0.001 to 0) and networks of their default sizes.

- `return by seed`: return of the deterministic policy after training, mean over {episodes}
  episodes; the maximum is {length}.
- `seconds`: training time, on a machine that was shared with other work. The time of the
  first seed includes compilation."""
IMAGES = """\
This section compares learning from images and from the state on `reacher` (`python
benchmarks/observations.py images --markdown out/learning.md`). The image observation
consists of the last 3 images of 64 x 64 pixels from above. `SAC` takes {steps:,} steps in one
environment and as many updates with batches of 64; episodes have {length} steps. With
images, actor and critic share one convolutional encoder, and images are augmented by random
crops (DrQ).

- `return by seed`: return of the deterministic policy after training, mean over {episodes}
  episodes. The return of random actions is {random:.1f}.
- `seconds`: training time with compilation, on a machine that was shared with other work.
  Rendering and learning run on the CPU."""


class Study(NamedTuple):
    """A comparison of agents.

    - `make(name, steps)`: agent and environment.
    - `steps`, `length`, `pool`, `episodes`: sizes of training and evaluation.
    - `digits`: decimal places of returns.
    """

    heading: str
    text: str
    agents: tuple[str, ...]
    make: Callable[[str, int], tuple[Any, AbstractEnv]]
    steps: int
    length: int
    pool: int
    episodes: int
    digits: int


def _memory(name: str, steps: int) -> tuple[Any, AbstractEnv]:
    frames = 4 if "observations" in name else 1
    agent = (zoo.RecurrentPPO if name == "recurrent_ppo" else zoo.PPO)(
        num_envs=64,
        unroll_length=32,
        num_minibatches=4,
        learning_rate=1e-3,
        anneal_steps=float(steps),
        reward_scale=0.1,
        entropy_cost=0.0,
    )
    task = eqsim.make("inverted_pendulum")
    env = eqsim.DomainRandomization(task, randomize.masses(0.5, 2.0))
    env = eqsim.SelectObservation(eqsim.DelayAction(env, 2, 0), (0, 1))
    return agent, eqsim.StackObservation(env, frames) if frames > 1 else env


def _images(name: str, steps: int) -> tuple[Any, AbstractEnv]:
    env, encoder = eqsim.make("reacher"), {}
    if "images" in name:
        encoder = {
            "encoder": vision.SmallCNN(widths=(16, 32, 32), outputs=50),
            "shared_encoder": True,
            "augmentations": (vision.RandomCrop(4),),
        }
        camera = Camera((0.0, 0.0, 0.0), distance=0.6, azimuth=90.0, elevation=-90.0)
        env = eqsim.StackObservation(eqsim.Pixels(env, 64, 64, camera=camera), 3)
    agent = zoo.SAC(
        num_envs=1,
        unroll_length=4,
        num_updates=4,
        batch_size=64,
        capacity=steps + 1000,
        random_steps=500.0,
        learning_rate=1e-3,
        temperature_learning_rate=1e-3,
        initial_temperature=0.1,
        target_rate=0.02,
        discount=0.95,
        **encoder,
    )
    return agent, env


STUDIES = {
    "memory": Study(
        "## Partial observation",
        MEMORY,
        ("ppo", "ppo, last 4 observations", "recurrent_ppo"),
        _memory,
        *(300_000, 500, 256, 256, 0),
    ),
    "images": Study(
        "## Image observations",
        IMAGES,
        ("sac from images", "sac from the state"),
        _images,
        *(8_000, 50, 64, 64, 1),
    ),
}


def main() -> None:
    """Train all agents, and write the table after each run."""
    options = _options()
    study = STUDIES[options.study]
    steps = options.steps or study.steps
    where: dict[str, Any] = {**setting(options), "random": random_return()}
    rows: list[dict[str, Any]] = []
    for seed in range(options.seeds):
        for name in study.agents:
            rows.append(_run(name, seed, steps, study))
            say(rows[-1])
            write(options.out / f"{options.study}.json", {"where": where, "rows": rows})
    sizes = {"length": study.length, "episodes": study.episodes, "steps": steps}
    text = study.text.format(**sizes, random=where["random"])
    lines = table(by_agent(rows, study.digits))
    text = "\n\n".join([study.heading, text, caption(where), lines]) + "\n"
    write(options.out / f"{options.study}.md", text)
    write_section(options.markdown, text)
    print(text)


def _run(name: str, seed: int, steps: int, study: Study) -> dict[str, Any]:
    """Train an agent, and evaluate its deterministic policy with keys of its own."""
    agent, env = study.make(name, steps)
    run = zoo.Run(
        agent,
        env,
        steps,
        episode_length=study.length,
        pool_size=study.pool,
        evaluations=1,
        seed=seed,
    )
    begin = time.monotonic()
    result = zoo.train(run)
    seconds = time.monotonic() - begin
    found = zoo.evaluate(
        agent,
        result.state,
        env,
        jr.key(1000 + seed),
        episodes=study.episodes,
        episode_length=study.length,
    )
    row = {"agent": name, "seed": seed, "return": float(found.mean())}
    return row | {"steps": result.counters.steps, "seconds": seconds}


def random_return() -> float:
    """Return the mean return of uniformly random actions on `reacher`."""
    env = eqsim.TimeLimit(eqsim.make("reacher"), 50)
    low, high = env.action_range.T
    draw = lambda obs, key: jr.uniform(key, low.shape, low.dtype, low, high)
    run = lambda key: eqsim.rollout(env, draw, key, 50).timestep.reward.sum()
    return float(jax.jit(jax.vmap(run))(jr.split(jr.key(0), 256)).mean())


def _options():
    made = parser(__doc__, repeats=1)
    made.add_argument("study", choices=tuple(STUDIES))
    made.add_argument("--seeds", type=int, default=3)
    made.add_argument("--steps", type=int, help="in place of those of the study")
    return made.parse_args()


if __name__ == "__main__":
    main()
