"""SAC from images, beside SAC from the state, with the same settings.

python benchmarks/pixels.py --out out/bench --markdown docs/learning.md
"""

from typing import Any

import jax
import jax.random as jr
from _command import parser, say, setting
from _learned import learn
from _tables import by_agent, caption, table, write, write_section

import eqsim
import eqsim_zoo as zoo
from eqsim import AbstractEnv
from eqsim.render import Camera
from eqsim_zoo import vision


EXPLANATION = """\
This section compares learning from images and from the state on `reacher` (`python
benchmarks/pixels.py --markdown docs/learning.md`). The image observation consists of the last
{frames} images of 64 x 64 pixels from above. `SAC` takes {steps:,} steps in one environment
and as many updates with batches of {batch}; episodes have {length} steps. With images, actor
and critic share one convolutional encoder, and images are augmented by random crops (DrQ).

- `return by seed`: return of the deterministic policy after training, mean over {episodes}
  episodes. The return of random actions is {random:.1f}.
- `seconds`: training time with compilation, on a machine that was shared with other work.
  Rendering and learning run on the CPU."""
HEADING = "## Image observations"
LENGTH, FRAMES, BATCH, EPISODES = 50, 3, 64, 64
CAMERA = Camera(lookat=(0.0, 0.0, 0.0), distance=0.6, azimuth=90.0, elevation=-90.0)
AGENTS = {
    "sac from images": dict(
        inputs=vision.Images(
            vision.SmallCNN(widths=(16, 32, 32), outputs=50),
            shared=True,
            augmentations=(vision.RandomCrop(4),),
        ),
    ),
    "sac from the state": {},
}


def main() -> None:
    """Train all agents, and write the table after each run."""
    options = _options()
    where: dict[str, Any] = {**setting(options), "random": random_return()}
    rows: list[dict[str, Any]] = []
    for seed in range(options.seeds):
        for name in AGENTS:
            rows.append(_run(name, seed, options.steps))
            say(rows[-1])
            write(options.out / "pixels.json", {"where": where, "rows": rows})
    text = report(where, rows, options.steps)
    write(options.out / "pixels.md", text)
    write_section(options.markdown, text)
    print(text)


def environment(images: bool) -> AbstractEnv:
    """Create the task, observed by images or by the state."""
    env = eqsim.make("reacher")
    if not images:
        return env
    return eqsim.StackObservation(eqsim.Pixels(env, 64, 64, camera=CAMERA), FRAMES)


def random_return() -> float:
    """Return the mean return of uniformly random actions."""
    env = eqsim.TimeLimit(environment(False), LENGTH)
    low, high = env.action_range.T
    draw = lambda obs, key: jr.uniform(key, low.shape, low.dtype, low, high)
    run = lambda key: eqsim.rollout(env, draw, key, LENGTH).timestep.reward.sum()
    return float(jax.jit(jax.vmap(run))(jr.split(jr.key(0), 256)).mean())


def _run(name: str, seed: int, steps: int) -> dict[str, Any]:
    """Train one agent, and evaluate it."""
    agent = zoo.SAC(
        num_envs=1,
        unroll_length=4,
        num_updates=4,
        batch_size=BATCH,
        capacity=steps + 1000,
        random_steps=500.0,
        learning_rate=1e-3,
        temperature_learning_rate=1e-3,
        initial_temperature=0.1,
        target_rate=0.02,
        discount=0.95,
        **AGENTS[name],
    )
    env = environment("encoder" in AGENTS[name])
    plan = zoo.Plan(
        steps, episode_length=LENGTH, pool_size=64, evaluations=1, seed=seed
    )
    return learn(name, agent, env, plan, EPISODES)


def report(where: dict[str, Any], rows: list[dict[str, Any]], steps: int) -> str:
    """Return the section, with one line for all seeds of an agent."""
    words = {
        "frames": FRAMES,
        "length": LENGTH,
        "steps": steps,
        "batch": BATCH,
        "episodes": EPISODES,
        "random": where["random"],
    }
    text = EXPLANATION.format(**words)
    return (
        "\n\n".join([HEADING, text, caption(where), table(by_agent(rows, digits=1))])
        + "\n"
    )


def _options():
    made = parser(__doc__ or "", repeats=1)
    made.add_argument("--seeds", type=int, default=3)
    made.add_argument("--steps", type=int, default=8_000)
    return made.parse_args()


if __name__ == "__main__":
    main()
