"""Trains PPO of eqsim-zoo on a task of this plugin, on the CPU, and prints a table.

```bash
python benchmarks/learn.py --steps 1e7 --seeds 2
```

Evaluations are 64 episodes of the mean action. They stand beside policies that draw
actions uniformly, and that do nothing. `share`: mean of the term `--term`, over the time
that the policy stays up, as a share of its largest value.
"""

import argparse
import platform
import time
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from eqsim_playground import ppo_settings

import eqsim
import eqsim_zoo


# What differs from the published settings: fewer environments, smaller networks, and more
# and larger updates per step, which two cores can afford.
SMALL = {
    "playground_go1_joystick_flat": {
        "num_envs": 256,
        "unroll_length": 32,
        "num_minibatches": 16,
        "policy_hidden": (128, 128),
        "value_hidden": (128, 128),
        "learning_rate": 1e-3,
        "entropy_cost": 1e-3,
        "clip": 0.2,
        "reward_scale": 10.0,
    },
    "playground_panda_pick_cube": {
        "num_envs": 512,
        "value_hidden": (128, 128, 128),
    },
}
LENGTHS = {"playground_go1_joystick_flat": 1000, "playground_panda_pick_cube": 150}
TERMS = {
    "playground_go1_joystick_flat": "tracking_lin_vel",
    "playground_panda_pick_cube": "gripper_box",
}


class Uniform(eqx.Module):
    """Draws actions from their range."""

    bounds: Any

    def __call__(self, obs, key):
        low, high = self.bounds.T
        return low + (high - low) * jr.uniform(key, low.shape, low.dtype)


class Still(eqx.Module):
    """Takes the action zero."""

    bounds: Any

    def __call__(self, obs, key):
        return jnp.zeros_like(self.bounds[:, 0])


class Learned(eqx.Module):
    """The mean action of an agent."""

    agent: Any
    state: Any

    def __call__(self, obs, key):
        return self.agent.act(self.state, obs)


def evaluate(env, policy, length: int, term: str, largest: float, episodes: int = 64):
    """Returns, lengths and shares of `episodes` episodes."""
    keep = lambda state, action, timestep: (
        timestep.reward,
        timestep.done,
        timestep.terms[term],
    )
    keys = jr.split(jr.key(1), episodes)
    kept, _ = eqsim.rollout(env, policy, keys, length, collect=keep)
    reward, done, value = (np.asarray(x) for x in kept)
    # The step that ends an episode counts, those after it do not.
    valid = np.cumsum(np.cumsum(done, axis=1), axis=1) <= 1
    lengths = np.sum(valid, axis=1)
    returns = np.sum(np.where(valid, reward, 0.0), axis=1)
    return returns, lengths, np.sum(value[valid]) / (largest * np.sum(valid))


def main() -> None:
    options = _options()
    name = options.env
    env, length, term = eqsim.make(name), LENGTHS[name], TERMS[name]
    agent = eqsim_zoo.PPO(**ppo_settings(name) | SMALL[name])
    scale = env.dt if "joystick" in name else 1.0
    largest = float(vars(env.weights)[term] * scale)

    def row(policy, label, steps):
        found = evaluate(env, policy, length, term, largest)
        returns, lengths, share = found
        error = 1.96 * np.std(returns) / np.sqrt(len(returns))
        means = f"{np.mean(returns):.2f} ± {error:.2f} | {np.mean(lengths):.0f}"
        print(f"| {label} | {steps:,} | {means} | {share:.2f} |", flush=True)

    print("| policy | steps | return | length | share |\n|---|--:|--:|--:|--:|")
    row(Uniform(env.action_range), "uniform actions", 0)
    row(Still(env.action_range), "zero action", 0)
    for seed in range(options.seeds):
        begin, state = time.perf_counter(), None
        for part in range(options.evaluations):
            result = eqsim_zoo.train(
                agent,
                env,
                steps=options.steps / options.evaluations,
                state=state,
                seed=seed * 1000 + part,
                episode_length=length,
                evaluations=0,
            )
            state = result.state
            row(Learned(agent, state), f"PPO, seed {seed}", int(state.steps))
        seconds = time.perf_counter() - begin
        print(f"<!-- seed {seed}: {seconds:.0f} s -->", flush=True)
    print(f"jax {jax.__version__}, {platform.machine()}, {jax.default_backend()}")


def _options() -> argparse.Namespace:
    made = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = made.add_argument
    add("--env", default="playground_go1_joystick_flat", choices=list(SMALL))
    add("--steps", type=float, default=1e7)
    add("--seeds", type=int, default=1)
    add("--evaluations", type=int, default=10)
    return made.parse_args()


if __name__ == "__main__":
    main()
