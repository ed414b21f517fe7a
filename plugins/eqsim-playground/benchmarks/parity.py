"""Compares observations and rewards with those of MuJoCo Playground, step by step.

```bash
python benchmarks/parity.py --markdown PARITY.md
```

Playground runs on MJX in double precision, with a converged solver, without noise, and
reads its sensors in the state after each step. It must be installed with its own
dependencies; Menagerie is needed for the Panda only.
"""

import argparse
import importlib.metadata
import pathlib
import platform
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np


jax.config.update("jax_enable_x64", True)

from _playground import double, Theirs
from eqsim_playground import (
    Go1Joystick,
    JoystickNoise,
    JoystickState,
    PandaPickCube,
    PickState,
)


TASKS = (
    "playground_go1_joystick_flat",
    "playground_panda_pick_cube",
    "playground_panda_pick_cube_orientation",
)
PACKAGES = "eqsim", "playground", "mujoco", "mujoco-mjx", "jax"
EXPLANATION = """\
Each task from several random starts of MuJoCo Playground, some control steps under random
actions; double precision. Playground runs on MJX with a converged solver, without noise, and
reads sensors and forces in the state after each step. Differences are relative to max(1,
|Playground's number|); the largest of all numbers, steps and starts is shown.

- `run`: number of starts, and of control steps from each.
- `reset`: the observation of the start.
- `one step`: each step from Playground's state: the difference of the tasks.
- `alone`: both run on their own from the same start, with the same commands.
- `part at`: the first step at which the observations of `alone` differ by more than 1e-05, if
  they do.
"""


def ours(name: str):
    """The task of ours without noise, with all that Playground observes."""
    if name == TASKS[0]:
        return Go1Joystick(noise=JoystickNoise(*(0.0,) * 5), privileged=True)
    return PandaPickCube(sample_orientation=name == TASKS[2])


def imitate(env, state, own=None):
    """Our state for a state of Playground; with `own`, that with their commands."""
    data, info = state.data, state.info
    robot = env.pipeline.init(env.sys, data.qpos, data.qvel)
    if isinstance(env, PandaPickCube):
        if own is not None:
            return own
        reached = jnp.asarray(info["reached_box"]) > 0.0
        quat = data.mocap_quat[0]
        return PickState(robot, data.ctrl, info["target_pos"], quat, reached)
    if own is not None:
        return eqx.tree_at(lambda s: s.command, own, info["command"])
    return JoystickState(
        robot=robot,
        key=jr.key(0),
        command=info["command"],
        command_steps=jnp.full((), 10_000, jnp.int32),
        last_action=info["last_act"],
        air_time=info["feet_air_time"],
        swing_peak=info["swing_peak"],
        last_contact=info["last_contact"],
        push=None,
    )


def compare(name: str, seeds: int, steps: int) -> dict[str, str]:
    """One row of the table."""
    began, env, theirs = time.time(), ours(name), Theirs(name)
    step, convert = eqx.filter_jit(env.step), eqx.filter_jit(imitate)
    begin = eqx.filter_jit(lambda env, state: env.begin(jr.key(0), state.robot)[0])
    of = lambda obs: obs["privileged_state"] if isinstance(obs, dict) else obs
    resets, forced, alone, parts = [], [], [], []
    rng = np.random.default_rng(0)
    for seed in range(seeds):
        state, seen = theirs.reset(jr.key(seed))
        state = double(state)
        own = convert(env, state)
        first, _ = env.reset(jr.key(0), {"q": own.robot.q, "qd": own.robot.qd})
        resets.append(off(observed(env, own), of(seen)))
        first = begin(env, own)
        apart, single = own, None
        for k in range(steps):
            action = jnp.asarray(rng.uniform(-1.0, 1.0, env.sys.nu))
            guided = convert(env, state)
            apart = convert(env, state, apart)
            state, made = theirs.step(state, action)
            state = double(state)
            _, near = step(guided, action)
            apart, far = step(apart, action)
            forced.append(differences(near, made, of))
            alone.append(differences(far, made, of))
            if single is None and alone[-1][0] > 1e-5:
                single = k + 1
        parts.append(single)
    del first
    seconds = time.time() - began
    print(f"{name}: {seconds:.0f} s", flush=True)
    ends = [part for part in parts if part is not None]
    show = lambda rows, column: f"{max(row[column] for row in rows):.1e}"
    return {
        "task": name,
        "run": f"{seeds} x {steps}",
        "reset": f"{max(resets):.1e}",
        "one step: obs": show(forced, 0),
        "one step: terms": show(forced, 1),
        "one step: reward": show(forced, 2),
        "alone: obs": show(alone, 0),
        "alone: reward": show(alone, 2),
        "part at": str(min(ends)) if ends else "never",
    }


def observed(env, state):
    """What the task observes of a state at the beginning of an episode."""
    if isinstance(env, PandaPickCube):
        return eqx.filter_jit(lambda env, s: env._observe(s))(env, state)
    read = lambda env, s: env.begin(jr.key(0), s.robot)[1]["privileged_state"]
    obs = eqx.filter_jit(read)(env, state)
    # Commands are drawn by each side.
    return obs.at[45:48].set(state.command)


def differences(timestep, made, of) -> tuple[float, float, float]:
    """Of observation, terms of the reward and reward; and both end alike."""
    if bool(timestep.terminated) != bool(made.done):
        raise AssertionError("one of both tasks has ended, the other one goes on")
    pairs = [(timestep.terms[name], value) for name, value in made.terms.items()]
    obs = timestep.obs
    return (
        off(of(obs), of(made.obs)),
        max(off(*pair) for pair in pairs),
        off(timestep.reward, made.reward),
    )


def off(ours, theirs) -> float:
    """Largest relative difference."""
    ours, theirs = np.asarray(ours, float), np.asarray(theirs, float)
    return float(np.max(np.abs(ours - theirs) / np.maximum(1.0, np.abs(theirs))))


def main() -> None:
    options = _options()
    rows = [compare(name, options.seeds, options.steps) for name in options.tasks]
    names = list(rows[0])
    lines = [names, ["---"] + ["--:"] * (len(names) - 1)]
    lines += [list(row.values()) for row in rows]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    versions = ", ".join(f"{p} {importlib.metadata.version(p)}" for p in PACKAGES)
    where = f"{versions}; Python {platform.python_version()}; {jax.default_backend()}."
    text = f"# Parity with MuJoCo Playground\n\n{EXPLANATION}\n{table}\n\n{where}\n"
    print(text)
    if options.markdown is not None:
        options.markdown.write_text(text)


def _options() -> argparse.Namespace:
    made = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = made.add_argument
    add("--tasks", nargs="*", default=list(TASKS), choices=TASKS)
    add("--seeds", type=int, default=3, help="random starts of each")
    add("--steps", type=int, default=50)
    add("--markdown", type=pathlib.Path, help="file to write")
    return made.parse_args()


if __name__ == "__main__":
    main()
