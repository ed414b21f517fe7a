"""Train PPO of eqsim-zoo on a task of this plugin, on the CPU, and print a table.

```bash
python benchmarks/learn.py --steps 2e6 --seeds 2
```

Evaluations use 64 episodes (`--episodes`) with the mean action. For comparison, the table
includes uniform and zero actions. The last columns are means of reward terms over all steps, as
fractions of their largest values.
"""

import argparse
import platform
import time
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from eqsim_playground import HumanoidShaping, Kicks, ppo_settings

import eqsim
import eqsim_zoo
from eqsim_zoo.blocks import Vectors
from eqsim_zoo.export import export_policy


class Stage(NamedTuple):
    """A part of a training run.

    - `share`: share of the steps of the run.
    - `settings`: changes of the settings of PPO.
    - `options`: options of the task.
    - `commands`: probability of a command to stand, and time between commands, s; None for
        those of the task.
    - `shaping`: options of `HumanoidShaping`; None to train with published rewards.
    - `log_std`: change of the logarithm of the standard deviation of actions before it.
    """

    share: float = 1.0
    settings: dict[str, Any] = {}
    options: dict[str, Any] = {}
    commands: tuple[float, float] | None = None
    shaping: dict[str, float] | None = None
    log_std: float = 0.0


# Differences from the published settings: fewer environments, smaller networks, and
# more and larger updates per step, suitable for two cores.
_BERKELEY = {
    "num_envs": 256,
    "unroll_length": 24,
    "num_minibatches": 4,
    "policy_hidden": (128, 64),
    "value_hidden": (128, 64),
    "learning_rate": 1e-3,
    "target_kl": 0.02,
    "discount": 0.98,
    "entropy_cost": 3e-3,
    "initial_log_std": -1.0,
    "normalize_values": True,
    "symmetric": True,
}
# As in Playground, the value function observes `privileged_state`.
_HUMANOID = {
    **_BERKELEY,
    "inputs": Vectors(actor_parts=("state",), critic_parts=("privileged_state",)),
    "num_epochs": 3,
    "discount": 0.97,
    "entropy_cost": 5e-3,
    "initial_log_std": -0.5,
}
# First, without kicks, the robot learns to walk, and to stand. Then batches are larger,
# kicks are more frequent than published, and rewards are the published ones except for
# falls and the rhythm of the feet. Last, exploration is smaller, then kicks are the
# published ones and the policy changes less per batch. Commands to stand are drawn more
# often than published. Time steps of 4 ms in place of 2 ms are faster; evaluations use
# those of the task.
_SECOND = {
    "unroll_length": 48,
    "num_minibatches": 8,
    "discount": 0.98,
    "entropy_cost": 1e-3,
}
_THIRD = {**_SECOND, "entropy_cost": 0.0}
_LAST = {**_THIRD, "unroll_length": 96, "num_minibatches": 12, "target_kl": 0.01}


def _stages(height: float, speed: float) -> tuple[Stage, ...]:
    """Return the stages of a humanoid.

    **Arguments:**

    - `height`: least height of the root, m.
    - `speed`: largest speed of kicks, m/s.
    """
    options = lambda *kicks: {"frame_skip": 5, "pushes": Kicks(*kicks)}
    often, published = ((0.1, speed), (3.0, 7.0)), ((0.1, speed), (5.0, 10.0))
    kept = {"progress": 0.0, "gait": 1.0, "fall": -2.0, "height": height}
    calm, short = (0.2, 5.0), (0.2, 4.0)
    return (
        Stage(0.36, {}, options((0.0, 0.0)), calm, {"height": height}),
        Stage(0.26, _SECOND, options(*often), short, kept),
        Stage(0.2, _THIRD, options(*often), short, kept, -0.5),
        Stage(0.18, _LAST, options(*published), calm, kept, -0.3),
    )


STAGES = {
    "playground_g1_joystick_flat": _stages(0.5, 2.0),
    "playground_t1_joystick_flat": _stages(0.45, 1.0),
}
SMALL = {
    "playground_g1_joystick_flat": _HUMANOID,
    "playground_t1_joystick_flat": _HUMANOID,
    "playground_berkeley_humanoid_joystick_flat": _BERKELEY,
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
LENGTHS = {
    "playground_g1_joystick_flat": 1000,
    "playground_t1_joystick_flat": 1000,
    "playground_berkeley_humanoid_joystick_flat": 1000,
    "playground_go1_joystick_flat": 1000,
    "playground_panda_pick_cube": 150,
}
# Options of tasks in training and evaluations.
OPTIONS = {
    "playground_berkeley_humanoid_joystick_flat": {"pushes": None},
    "playground_g1_joystick_flat": {"privileged": True},
    "playground_t1_joystick_flat": {"privileged": True},
}
TERMS = {
    "playground_g1_joystick_flat": ("tracking_lin_vel", "tracking_ang_vel"),
    "playground_t1_joystick_flat": ("tracking_lin_vel", "tracking_ang_vel"),
    "playground_berkeley_humanoid_joystick_flat": (
        "tracking_lin_vel",
        "tracking_ang_vel",
    ),
    "playground_go1_joystick_flat": ("tracking_lin_vel", "tracking_ang_vel"),
    "playground_panda_pick_cube": ("gripper_box", "box_target"),
}


class Uniform(eqx.Module):
    """A policy with uniform actions."""

    bounds: Any

    def __call__(self, obs, key):
        low, high = self.bounds.T
        return low + (high - low) * jr.uniform(key, low.shape, low.dtype)


class Still(eqx.Module):
    """A policy with zero actions."""

    bounds: Any

    def __call__(self, obs, key):
        return jnp.zeros_like(self.bounds[:, 0])


def evaluate(env, policy, length: int, names: tuple[str, ...], episodes: int = 64):
    """Return returns and lengths of episodes, and means of some reward terms."""
    keep = lambda state, action, timestep: (
        timestep.reward,
        timestep.done,
        jnp.stack([timestep.terms[name] for name in names], axis=-1),
    )
    keys = jr.split(jr.key(1), episodes)
    kept, _ = eqsim.rollout(env, policy, keys, length, collect=keep)
    reward, done, terms = (np.asarray(x) for x in kept)
    # The step that ends an episode counts, later ones do not.
    valid = np.cumsum(np.cumsum(done, axis=1), axis=1) <= 1
    returns = np.sum(np.where(valid, reward, 0.0), axis=1)
    return returns, np.sum(valid, axis=1), np.mean(terms[valid], axis=0)


def training_env(name: str, stage: Stage):
    """Return the environment of a stage. Fewer time steps in a control step are longer."""
    env: Any = eqsim.make(name, **OPTIONS.get(name, {}) | stage.options)
    if stage.commands is not None:
        where = lambda e: (e.commands.standing, e.commands.time)
        typed = [jnp.asarray(x, env.sys.dt.dtype) for x in stage.commands]
        env = eqx.tree_at(where, env, tuple(typed))
    if "frame_skip" in stage.options:
        ratio = eqsim.make(name).frame_skip / env.frame_skip
        env = eqx.tree_at(lambda e: e.sys.dt, env, env.sys.dt * ratio)
    return env if stage.shaping is None else HumanoidShaping(env, **stage.shaping)


def plan(name: str, steps: float, evaluations: int):
    """List the parts of a run: agent, environment, steps and `Stage.log_std` of each, with
    an evaluation after it."""
    parts = []
    for stage in STAGES.get(name, (Stage(),)):
        agent = eqsim_zoo.PPO(**ppo_settings(name) | SMALL[name] | stage.settings)
        count = max(1, round(stage.share * evaluations))
        part = agent, training_env(name, stage), stage.share * steps / count
        parts += [(*part, stage.log_std), *[(*part, 0.0)] * (count - 1)]
    return parts


def main() -> None:
    options = _options()
    name = options.env
    length, terms = LENGTHS[name], TERMS[name]
    env: Any = eqsim.make(name, **OPTIONS.get(name, {}))
    scale = float(env.dt) if "joystick" in name else 1.0
    largest = np.array([float(vars(env.weights)[term]) * scale for term in terms])

    def row(policy, label, steps):
        returns, lengths, means = evaluate(env, policy, length, terms, options.episodes)
        error = 1.96 * np.std(returns) / np.sqrt(len(returns))
        cells = [label, f"{steps:,}", f"{np.mean(returns):.1f} ± {error:.1f}"]
        cells += [f"{np.mean(lengths):.0f}", *(f"{x:.2f}" for x in means / largest)]
        print(f"| {' | '.join(cells)} |", flush=True)

    titles = " | ".join(f"`{term}`" for term in terms)
    print(f"| policy | steps | return | length | {titles} |\n|---|{5 * '--:|'}")
    if options.evaluations:
        row(Uniform(env.action_range), "uniform actions", 0)
        row(Still(env.action_range), "zero action", 0)
    for seed in range(options.seed, options.seed + options.seeds):
        seconds, state = 0.0, None
        parts = plan(name, options.steps, options.evaluations)
        for k, (agent, trained, steps, quieter) in enumerate(parts):
            begin = time.perf_counter()
            if state is not None and quieter:
                where = lambda s: s.learner.model.log_std
                state = eqx.tree_at(where, state, replace_fn=lambda x: x + quieter)
            run = eqsim_zoo.Run(
                agent,
                trained,
                steps,
                seed=seed * 1000 + k,
                episode_length=length,
                evaluations=0,
            )
            folder = options.out and f"{options.out}/seed_{seed}_part_{k}"
            result = eqsim_zoo.train(run, state=state, out=folder)
            seconds, state = seconds + time.perf_counter() - begin, result.state
            if options.evaluations or k == len(parts) - 1:
                policy = eqsim.agent_policy(agent, state)
                row(policy, f"PPO, seed {seed}", int(state.steps))
        print(f"<!-- seed {seed}: {seconds:.0f} s of training -->", flush=True)
        if options.export is not None:
            file = f"{options.export}_{seed}.onnx"
            export_policy(agent, state, env, file, name=name)
    print(f"jax {jax.__version__}, {platform.machine()}, {jax.default_backend()}")


def _options() -> argparse.Namespace:
    made = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = made.add_argument
    add("--env", default="playground_panda_pick_cube", choices=list(SMALL))
    add("--steps", type=float, default=2e6)
    add("--seed", type=int, default=0, help="the first one")
    add("--seeds", type=int, default=1)
    add("--evaluations", type=int, default=4, help="0: only at the end")
    add("--episodes", type=int, default=64)
    add("--out", help="folder for metrics and checkpoints of all parts")
    add("--export", help="write the policy of each seed to EXPORT_SEED.onnx")
    return made.parse_args()


if __name__ == "__main__":
    main()
