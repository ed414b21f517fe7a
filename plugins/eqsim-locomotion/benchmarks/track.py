"""Train a humanoid to track a motion, and measure how well it does, also in MuJoCo C.

```bash
python benchmarks/track.py --robot g1 --motion walk1_subject1.csv --start 88 --end 93
```

The run is `eqsim train AGENT ROBOT_motion` with its preset, in this process; seconds include
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
import numpy as np

import eqsim_zoo as zoo
from eqsim_zoo.export import export_policy, MujocoRobot, OnnxPolicy


IN_EQSIM, IN_MUJOCO = 256, 32
NAMES = "joints, rad", "links, m", "anchor, m"
STILL = (0.0, 0.0, 0.0)  # Policies that track motions observe no command.


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

    - `robot`, `task`: the robot and its task, for starts, noise and errors.
    - `policy`: the policy.
    """

    def __init__(self, robot, task: loco.MotionTracking, policy: OnnxPolicy):
        self._there = MujocoRobot(loco.menagerie_file(robot.file), task.deployment())
        self._task, self._policy = task, policy
        self._noise = {name: float(width) for name, width in task.noise.items()}
        self._reset = eqx.filter_jit(task.reset)
        self._look = eqx.filter_jit(self._measure)

    def _measure(self, state):
        """Return errors, and whether they are too large."""
        errors = self._task.tracking(state)
        return jnp.stack([errors[name][1] for name in NAMES]), self._task.failed(state)

    def episode(self, key) -> tuple[bool, np.ndarray]:
        """Return whether the robot reaches the end, and errors of each step."""
        there, (state, _) = self._there, self._reset(key)
        there.reset(int(state.frame))
        there.data.qpos[:], there.data.qvel[:] = state.robot.q, state.robot.qd
        there.update()
        rng = np.random.default_rng(np.asarray(jr.key_data(key)))
        noise = lambda part: (
            self._noise.get(part.name, 0.0) * rng.uniform(-1.0, 1.0, part.size)
        )
        action, found = np.zeros(len(there.deployment.joints)), []
        while not there.finished:
            action = np.asarray(self._policy.act(there.observe(STILL, action, noise)))
            there.drive(there.target(action))
            for _ in range(there.substeps):
                there.step()
            there.update()
            there.frame += 1
            where = lambda s: (s.robot.q, s.robot.qd, s.frame)
            places = there.data.qpos, there.data.qvel
            q, qd = (jnp.asarray(x, state.robot.q.dtype) for x in places)
            now = eqx.tree_at(
                where, state, (q, qd, jnp.asarray(there.frame, jnp.int32))
            )
            errors, failed = self._look(now)
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
    parser.add_argument("--agent", default="ppo", help="name of an agent with a preset")
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
            preset = zoo.runs.find_preset(options.agent, name, steps=options.steps)
            if preset is None:
                parser.error(
                    f"{options.agent} has no preset for {name}. Pass a run: `--run`."
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
