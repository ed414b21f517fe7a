"""Train a humanoid to track a motion, and measure how well it does, also in MuJoCo C.

```bash
python benchmarks/track.py --robot g1 --motion walk1_subject1.csv --start 88 --end 93
```

The run is `eqsim train ppo ROBOT_motion` with its preset, in this process; seconds include
compilation. Then episodes start in random frames, with noise, and go on to the end of the
motion: the share that gets there, and mean errors of steps before a failure: of joint
angles, of the positions of links about the anchor, and of the position of the anchor in the
world. In eqsim these are 256 episodes; in MuJoCo C, in the robot's own scene with the time
step of its file, 32, by the ONNX file of the policy.

Motions of Unitree's G1 and H1 are those of LAFAN1 (Harvey et al., *Robust motion
in-betweening*, 2020), retargeted by Unitree; research data, which does not come with eqsim.
Without `--motion`, the robot does squats.
"""

import argparse
import dataclasses
import tempfile
import time

import eqsim_locomotion as loco
import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import mujoco
import numpy as np

import eqsim
import eqsim_zoo as zoo
from eqsim_zoo.export import export_policy, OnnxPolicy


IN_EQSIM, IN_MUJOCO = 256, 32
NAMES = "joints, rad", "links, m", "anchor, m"


@eqx.filter_jit
def in_eqsim(agent, state, task: loco.MotionTracking, keys):
    """Return the share of episodes that reach the end, and mean errors."""
    last = task.motion.frames - 1
    step, errors = jax.vmap(task.step), jax.vmap(task.tracking)

    def advance(carry, _):
        now, obs, alive = carry
        new, timestep = step(now, agent.act(state, obs))
        within = alive & (new.frame <= last)
        alive = alive & ~(within & timestep.terminated)
        found = jnp.stack([errors(new)[name][1] for name in NAMES])
        return (new, timestep.obs, alive), (within & alive, found)

    now, timestep = jax.vmap(task.reset)(keys)
    alive = jnp.ones(len(keys), bool)
    carry = now, timestep.obs, alive
    (_, _, alive), (counts, found) = jax.lax.scan(advance, carry, None, last)
    total = jnp.sum(found * counts[:, None], axis=(0, 2))
    return jnp.mean(alive), total / jnp.sum(counts)


class InMujoco:
    """Episodes in MuJoCo C.

    **Arguments:**

    - `robot`, `task`: the robot and its task, for observations and targets.
    - `policy`: the policy.
    """

    def __init__(self, robot, task: loco.MotionTracking, policy: OnnxPolicy):
        spec = mujoco.MjSpec.from_file(str(loco.menagerie_file(robot.file)))
        loco.add_servos(spec, robot)
        self._model = spec.compile()
        self._data = mujoco.MjData(self._model)
        self._task, self._policy = task, policy
        self._steps = round(float(task.dt) / self._model.opt.timestep)
        self._reset = eqx.filter_jit(task.reset)
        self._observe = eqx.filter_jit(task.observe)
        self._targets = eqx.filter_jit(task.targets)
        self._look = eqx.filter_jit(self._measure)

    def _measure(self, state):
        """Return errors, and whether they are too large."""
        errors = self._task.tracking(state)
        return jnp.stack([errors[name][1] for name in NAMES]), self._task.failed(state)

    def episode(self, key) -> tuple[bool, np.ndarray]:
        """Return whether the robot reaches the end, and errors of each step."""
        model, data, task = self._model, self._data, self._task
        state, _ = self._reset(key)
        mujoco.mj_resetData(model, data)
        data.qpos[:], data.qvel[:] = state.robot.q, state.robot.qd
        found = []
        while int(state.frame) < task.motion.frames - 1:
            key, key_noise = jr.split(key)
            action = self._policy.act(np.asarray(self._observe(state, key_noise)))
            data.ctrl[:] = self._targets(state, jnp.asarray(action))
            for _ in range(self._steps):
                mujoco.mj_step(model, data)
            dtype = state.robot.q.dtype
            q, qd = jnp.asarray(data.qpos, dtype), jnp.asarray(data.qvel, dtype)
            robot = eqsim.State(q, qd, state.robot.act, state.robot.aux)
            state = loco.TrackingState(robot, key, state.frame + 1, jnp.asarray(action))
            errors, failed = self._look(state)
            if bool(failed):
                return False, np.array(found).reshape(-1, 3)
            found.append(np.asarray(errors))
        return True, np.array(found).reshape(-1, 3)


def report(where: str, share, errors) -> None:
    """Print a row."""
    joints, links, anchor = (float(x) for x in errors)
    print(
        f"| {where} | {100 * share:.0f} % | {joints:.3f} | {100 * links:.1f} | "
        f"{100 * anchor:.1f} |",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--robot", default="g1", choices=loco.ROBOTS)
    parser.add_argument("--motion", help="file of a motion; by default squats")
    parser.add_argument("--start", type=float, default=0.0, help="start of the part, s")
    parser.add_argument("--end", type=float, help="end of the part, s")
    parser.add_argument("--steps", type=float, help="by default those of the preset")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--run", help="folder of a run; by default one is trained")
    parser.add_argument("--out", help="folder of the run that is trained")
    options = parser.parse_args()
    begin, robot = time.time(), loco.ROBOTS[options.robot]
    part = {"start": options.start, "end": options.end}
    with tempfile.TemporaryDirectory() as folder:
        if options.run:
            result = zoo.load_run(options.run)
        else:
            name = f"{robot.name}_motion"
            preset = zoo.runs.find_preset("ppo", name, steps=options.steps)
            if preset is None:
                parser.error(
                    f"PPO has no preset for {name}. Pass a run of it: `--run`."
                )
            run = dataclasses.replace(
                preset,
                seed=options.seed,
                evaluations=0,
                options={"motion": options.motion, **part},
            )
            result = zoo.train(run, out=options.out or f"{folder}/run")
            seconds = time.time() - begin
            print(f"{result.counters.steps:,} steps in {seconds:.0f} s", flush=True)
        agent, state = result.member(0)
        task = loco.MotionTracking(robot, options.motion, **part)
        print("| | to the end | joints, rad | links, cm | anchor, cm |")
        print("|---|--:|--:|--:|--:|", flush=True)
        keys = jr.split(jr.key(1000 + options.seed), IN_EQSIM)
        report("eqsim", *in_eqsim(agent, state, task, keys))
        path = f"{folder}/policy.onnx"
        export_policy(agent, state, result.environment(), path)
        there = InMujoco(robot, task, OnnxPolicy(path))
        ends, errors = zip(*map(there.episode, keys[:IN_MUJOCO]), strict=True)
        report("MuJoCo C", float(np.mean(ends)), np.concatenate(errors).mean(axis=0))


if __name__ == "__main__":
    main()
