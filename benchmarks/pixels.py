"""SAC learns to balance a pole from images: `python benchmarks/pixels.py --out out/pixels`.

Prints the mean return of 8 episodes of 200 steps against environment steps and time, of
SAC from three stacked images of 64 x 64 pixels, and of a policy that does nothing.
"""

import argparse
import pathlib

import jax.numpy as jnp
import jax.random as jr

import eqsim
import eqsim_zoo as zoo
from eqsim_zoo import vision
from eqsim_zoo.training._evaluate import evaluate_policy


LENGTH = 200


def environment() -> eqsim.AbstractEnv:
    """Three images of the pendulum, at 12.5 control steps per second."""
    task = eqsim.ActionRepeat(eqsim.make("inverted_pendulum"), 2)
    return eqsim.StackObservation(eqsim.Pixels(task, 64, 64), 3)


def agent() -> zoo.SAC:
    """SAC with random crops and a shared encoder (DrQ with one crop per target)."""
    return zoo.SAC(
        encoder=vision.SmallCNN(widths=(16, 32, 32), outputs=64),
        shared_encoder=True,
        augmentations=(vision.RandomCrop(4),),
        num_envs=16,
        unroll_length=4,
        num_updates=32,
        batch_size=64,
        capacity=20_000,
        random_steps=1000.0,
        actor_hidden=(128,),
        critic_hidden=(128,),
        learning_rate=1e-3,
        temperature_learning_rate=1e-3,
        target_rate=0.01,
        reward_scale=0.1,
    )


def main() -> None:
    """Train, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=15_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=pathlib.Path, default=None)
    args = parser.parse_args()
    env, length = environment(), {"episode_length": LENGTH, "episodes": 8}
    idle = lambda obs, key: jnp.zeros(1)
    nothing = evaluate_policy(idle, env, jr.key(7), **length)
    print(f"without actions: {nothing.mean():.1f}")
    plan = zoo.Plan(
        args.steps, seed=args.seed, pool_size=64, turns=30, evaluations=10, **length
    )
    result = zoo.train(agent(), env, plan, out=args.out, progress=True)
    print("| steps | mean return |\n|---|---|")
    for steps, evaluation in result.evaluations:
        print(f"| {steps:,} | {float(evaluation.mean()[0]):.1f} |")
    print(f"{result.counters}")


if __name__ == "__main__":
    main()
