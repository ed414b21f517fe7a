"""Train robots to follow commands, and measure how well they do, also in MuJoCo C.

```bash
python benchmarks/walk.py --robots go1 go2 --seeds 3
```

Each run is `eqsim train ppo ROBOT_velocity` with its preset, in a process of its own, with a
cold cache of programs: seconds are those of the whole process until the last step. Then 256
episodes of 20 s without exploration, with noise: falls, and the mean absolute error of the
velocity at each control step, also in the moments after a new command.

The policy is then exported to ONNX (`gap`: the largest difference of its actions from those
of the agent, on 1000 observations), and follows each of `COMMANDS`, times the speed of the
robot, for 10 s in MuJoCo C in the scene of Menagerie as it is, with noise: falls, and mean
errors of horizontal velocity and yaw rate.
"""

import argparse
import dataclasses
import itertools
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time


EPISODES, SECONDS = 256, 20.0
COMMANDS = (
    *((0.5, 0.0, 0.0), (1.0, 0.0, 0.0), (-0.5, 0.0, 0.0), (-1.0, 0.0, 0.0)),
    *((0.0, 0.5, 0.0), (0.0, 0.0, 1.0), (0.5, 0.3, -0.5), (0.0, 0.0, 0.0)),
)


def run_one(robot: str, seed: int, steps: float | None, since: float, out: str) -> None:
    """Train and evaluate, and write the numbers to a file.

    **Arguments:**

    - `steps`: steps of training; by default those of the preset.
    - `since`: time at which the process was started.
    - `out`: folder of the run and of the file.
    """
    import eqsim_zoo as zoo

    preset = zoo.runs.presets()["ppo", f"{robot}_velocity"]
    preset = preset() if steps is None else preset(steps)
    run = dataclasses.replace(preset, seed=seed, evaluations=0)
    result = zoo.train(run, out=f"{out}/run")
    seconds = time.time() - since
    found = {
        "robot": robot,
        "seed": seed,
        "steps": result.counters.steps,
        "seconds": round(seconds),
        **in_eqsim(result, robot, seed),
        **in_mujoco(result, robot, out),
    }
    pathlib.Path(out, "found.json").write_text(json.dumps(found))


def in_eqsim(result, robot: str, seed: int) -> dict[str, float]:
    """Count falls and measure errors, in episodes of the task with its default options, with
    other keys than those of training."""
    import jax.random as jr

    import eqsim
    from eqsim_zoo.training.evaluation import (
        episode_keys,
        evaluate_members,
        evaluate_tracking,
    )

    env, length = eqsim.make(f"{robot}_velocity"), round(SECONDS / 0.02)
    keys = episode_keys(result.members, lambda _: jr.key(1000 + seed), EPISODES)
    args = result.members, result.state, env, keys, length
    falls = int(evaluate_members(*args).terminated.sum())
    (found,) = evaluate_tracking(*args)
    names = ("forward", "lateral", "yaw")
    errors = zip(names, found.error().values(), strict=True)
    return {"falls": falls} | {name: round(x, 3) for name, x in errors}


def in_mujoco(result, robot: str, out: str) -> dict[str, float]:
    """Export the policy, and run it in MuJoCo C in the own scene of the robot."""
    import eqsim_locomotion as loco
    import jax.random as jr
    import numpy as np

    from eqsim_zoo.export import export_policy, OnnxPolicy, replay

    (agent, state), env = result.member(0), result.environment()
    export_policy(agent, state, env, f"{out}/policy.onnx")
    policy = OnnxPolicy(f"{out}/policy.onnx")
    size = env.reset(jr.key(0))[1].obs.shape[0]
    obs = np.asarray(2.0 * jr.normal(jr.key(1), (1000, size)))
    gaps = np.stack([policy.act(row) for row in obs]) - agent.act(state, obs)
    about = loco.ROBOTS[robot]
    scene, speed = loco.menagerie_file(about.file), about.speed
    commands = [tuple(speed * value for value in command) for command in COMMANDS]
    found = [
        replay(policy, scene, command=command, seconds=10.0, noise=1.0)
        for command in commands
    ]
    return {
        "gap": float(f"{np.max(np.abs(gaps)):.1g}"),
        "falls in C": sum(each.falls for each in found),
        "velocity": round(float(np.mean([each.velocity_error for each in found])), 3),
        "yaw rate": round(float(np.mean([each.yaw_error for each in found])), 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--robots", nargs="+", default=["go1", "go2"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=float, help="by default those of the preset")
    parser.add_argument("--out", help="folder of the runs; by default a temporary one")
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        robot, seed, since, out = options.one
        run_one(robot, int(seed), options.steps, float(since), out)
        return
    columns = "robot", "seed", "steps", "seconds", "falls", "forward", "lateral", "yaw"
    columns += "gap", "falls in C", "velocity", "yaw rate"
    print("|", " | ".join(columns), "|")
    print("|---" + "|--:" * (len(columns) - 1) + "|", flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        for robot, seed in itertools.product(options.robots, range(options.seeds)):
            out = pathlib.Path(options.out or temporary, f"{robot}_{seed}")
            out.mkdir(parents=True)
            command = [sys.executable, __file__]
            if options.steps is not None:
                command += ["--steps", str(options.steps)]
            command += ["--one", robot, str(seed), str(time.time()), str(out)]
            cold = os.environ | {"EQSIM_KERNELS_CACHE": str(out / "kernels")}
            subprocess.run(command, check=True, env=cold, stdout=sys.stderr)
            found = json.loads((out / "found.json").read_text())
            print("|", " | ".join(map(str, found.values())), "|", flush=True)


if __name__ == "__main__":
    main()
