"""Compare observations and rewards with those of MuJoCo Playground, step by step.

```bash
python tests/parity.py --markdown PARITY.md
```

Playground runs on MJX in double precision, with a converged solver, without noise, and
with sensors evaluated at the state after each step. It must be installed with its
dependencies; Menagerie is needed only for the Panda.
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
Each task is compared with that of MuJoCo Playground from several random initial states, over
control steps with random actions (at most 0.3 for the Go1, so that it does not fall), in double
precision. Playground runs on MJX with a converged solver, without noise, and reads sensors and
forces in the state after each step. Each step begins in Playground's state. Differences are
relative to max(1, |Playground's value|); the table shows the largest over all entries, steps and
initial states.

- `run`: number of initial states, and of control steps from each.
- `reset`: difference of the first observation.
- `task`: differences of observation, reward terms and reward if Playground evaluates them in the
  state after a step of eqsim. They measure the difference between the definitions of the tasks.
- `step`: differences of observation and reward from those after a step of MJX, median over steps
  and largest. They include differences of the physics: for boxes, MJX finds other contact points
  than MuJoCo C, with which the tests compare eqsim.
"""


def ours(name: str):
    """Create eqsim's task without noise, with all observations of Playground."""
    if name == TASKS[0]:
        return Go1Joystick(noise=JoystickNoise(*(0.0,) * 5), privileged=True)
    return PandaPickCube(sample_orientation=name == TASKS[2])


def imitate(env, state):
    """Return eqsim's state for a state of Playground."""
    data, info = state.data, state.info
    robot = env.pipeline.init(env.sys, data.qpos, data.qvel)
    if isinstance(env, PandaPickCube):
        reached = jnp.asarray(info["reached_box"]) > 0.0
        quat = data.mocap_quat[0]
        return PickState(robot, data.ctrl, info["target_pos"], quat, reached)
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
    """Compute one row of the table."""
    began, env, theirs = time.time(), ours(name), Theirs(name)
    step, convert = eqx.filter_jit(env.step), eqx.filter_jit(imitate)
    resets, tasks, physics = [], [], []
    rng = np.random.default_rng(0)
    # The reward of a Go1 that has fallen is 0.
    spread = 0.3 if name == TASKS[0] else 1.0
    for seed in range(seeds):
        state, seen = theirs.reset(jr.key(seed))
        state = double(state)
        resets.append(off(observed(env, convert(env, state)), flat(seen)))
        for _ in range(steps):
            action = jnp.asarray(spread * rng.uniform(-1.0, 1.0, env.sys.nu))
            new, timestep = step(convert(env, state), action)
            robot = new.robot
            judged = theirs.judge(state, action, robot.q, robot.qd)
            tasks.append(differences(timestep, judged))
            state, made = theirs.step(state, action)
            state = double(state)
            physics.append(differences(timestep, made))
    print(f"{name}: {time.time() - began:.0f} s", flush=True)
    tasks, physics = np.array(tasks), np.array(physics)
    largest, middle = np.max(physics, axis=0), np.median(physics, axis=0)
    numbers = {
        "reset": max(resets),
        **dict(
            zip(("task: obs", "task: terms", "task: reward"), np.max(tasks, axis=0))
        ),
        **{"step: obs, median": middle[0], "step: obs": largest[0]},
        **{"step: reward, median": middle[2], "step: reward": largest[2]},
    }
    shown = {key: f"{value:.1e}" for key, value in numbers.items()}
    return {"task": name, "run": f"{seeds} x {steps}", **shown}


def flat(obs):
    """Return the largest part of an observation."""
    return obs["privileged_state"] if isinstance(obs, dict) else obs


def observed(env, state):
    """Return the observation of a state at the start of an episode."""
    if isinstance(env, PandaPickCube):
        return eqx.filter_jit(lambda env, s: env._observe(s))(env, state)
    read = lambda env, s: env.begin(jr.key(0), s.robot)[1]["privileged_state"]
    obs = eqx.filter_jit(read)(env, state)
    # Commands are drawn separately.
    return obs.at[45:48].set(state.command)


def differences(timestep, made) -> tuple[float, float, float]:
    """Return differences of observation, reward terms and reward, and true if both
    terminate alike."""
    if bool(timestep.terminated) != bool(made.done):
        raise AssertionError("one of the two tasks has ended and the other has not")
    pairs = [(timestep.terms[name], value) for name, value in made.terms.items()]
    obs = timestep.obs
    return (
        off(flat(obs), flat(made.obs)),
        max(off(*pair) for pair in pairs),
        off(timestep.reward, made.reward),
    )


def off(ours, theirs) -> float:
    """Return the largest relative difference."""
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
