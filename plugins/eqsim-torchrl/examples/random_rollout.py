"""Random actions: one environment, a batch, and the speed of a batch.

python examples/random_rollout.py --name ant --steps 100
"""

import argparse
import time

import torch
from eqsim_torchrl import EqsimEnv


def main(name: str, steps: int, batches: list[int]) -> None:
    """Print shapes and seconds."""
    env = EqsimEnv(name)
    env.set_seed(0)
    print(env.rollout(3))
    for batch in batches:
        env = EqsimEnv(name, batch_size=[batch], episode_length=1000)
        env.set_seed(0)
        env.rollout(2)  # Compiles.
        begin = time.perf_counter()
        rollout = env.rollout(steps, break_when_any_done=False)
        seconds = time.perf_counter() - begin
        rate = rollout.numel() / seconds
        print(
            f"{batch} environments, {steps} steps: {seconds:.3f} s, {rate:,.0f} steps/s"
        )
        env.reset()
        actions = env.action_spec.rand((steps,)).movedim(0, 1)
        env.unroll(actions)
        begin = time.perf_counter()
        env.unroll(actions)
        seconds = time.perf_counter() - begin
        rate = actions[..., 0].numel() / seconds
        print(f"  in one program: {seconds:.3f} s, {rate:,.0f} steps/s")


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--name", default="ant")
    options.add_argument("--steps", type=int, default=100)
    options.add_argument("--batches", type=int, nargs="*", default=[4, 16, 128])
    torch.manual_seed(0)
    main(**vars(options.parse_args()))
