"""Train a robot on rough terrain, and measure where it gets, also in MuJoCo C.

```bash
python benchmarks/climb.py --robot go1
```

The run is `eqsim train ppo ROBOT_velocity_rough` with its preset, in this process; seconds
include compilation. `--more STEPS` continues it where no step is lower than 6 cm, and where
a foot that stumbles costs -2. Then robots start in the middle of each of `TERRAINS`, patches
of 12 m that are drawn anew, and are told to walk ahead with 0.7 m/s for 8 s: how many are upright,
and how far these are from their start on average; 5.6 m is all of it. In eqsim these
are 64 robots with random headings. In MuJoCo C they are 8 along x, by the ONNX file of the
policy, with all contacts of the scene, height scans by `mj_ray`, and noise; there also on stairs
of boxes, whose faces are vertical.
"""

import argparse
import dataclasses
import math
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
from eqsim.io import with_height_field
from eqsim.terrain import (
    Blocks,
    Flat,
    Rough,
    Slope,
    Stairs,
    TerrainGrid,
    with_terrain,
)
from eqsim_zoo.export import export_policy, replay


TERRAINS = {
    "stairs up, 5 cm": Stairs(step_height=0.05, step_width=0.35, up=False),
    "stairs up, 10 cm": Stairs(step_height=0.1, step_width=0.35, up=False),
    "stairs up, 16 cm": Stairs(step_height=0.16, step_width=0.35, up=False),
    "stairs down, 10 cm": Stairs(step_height=0.1, step_width=0.35),
    "stairs down, 16 cm": Stairs(step_height=0.16, step_width=0.35),
    "slope up, 0.4": Slope(slope=0.4, up=False),
    "slope down, 0.4": Slope(slope=0.4),
    "noise, 6 cm": Rough(height=0.06),
    "blocks, 8 cm": Blocks(height=0.08),
}
SPEED, SECONDS = 0.7, 8.0
IN_EQSIM, IN_MUJOCO = 64, 8


def ground(kind) -> TerrainGrid:
    """Return a terrain of one patch."""
    return TerrainGrid((kind,), levels=1, points=240, cell=0.05, border=60)


def in_eqsim(agent, state, env, sys, key) -> tuple[float, ...]:
    """Return how many robots are upright to the end, and their mean distance, m."""
    env = eqx.tree_at(lambda e: e.env.sys, env, sys)
    return tuple(map(float, _walk(agent, state, env, jr.split(key, IN_EQSIM))))


@eqx.filter_jit
def _walk(agent, state, env, keys):
    command = jnp.array([SPEED, 0.0, 0.0])
    step = eqx.filter_vmap(env.step)

    def ahead(now):
        where = lambda s: (s.inner.command, s.inner.command_steps)
        told = jnp.tile(command, (len(keys), 1)), jnp.full(len(keys), 1 << 30)
        return eqx.tree_at(where, now, told)

    def advance(carry, _):
        now, obs, upright = carry
        new, timestep = step(now, agent.act(state, obs))
        return (new, timestep.obs, upright & ~timestep.terminated), None

    now, timestep = eqx.filter_vmap(env.reset)(keys)
    # One step with the command, as observations of the start have another one.
    now, first = ahead(now), now.inner.robot.q[:, :2]
    now, timestep = step(now, agent.act(state, timestep.obs))
    carry = now, timestep.obs, ~timestep.terminated
    length = round(SECONDS / 0.02) - 1
    (now, _, upright), _ = jax.lax.scan(advance, carry, None, length)
    away = jnp.linalg.norm(now.inner.robot.q[:, :2] - first, axis=1)
    return jnp.sum(upright), jnp.mean(away, where=upright)


def in_mujoco(policy: str, spec, top: float = 0.0) -> tuple[int, float]:
    """Return the same in MuJoCo C, in a scene, from the height `top`."""
    found = [
        replay(
            policy,
            spec,
            command=(SPEED, 0.0, 0.0),
            seconds=SECONDS,
            noise=1.0,
            start=(0.0, 0.05 * number, top),
            seed=number,
        )
        for number in range(IN_MUJOCO)
    ]
    away = [each.distance for each in found if not each.falls]
    return len(away), float(np.mean(away)) if away else math.nan


def scene(robot: loco.Robot, heights: np.ndarray):
    """Return the scene of a robot with a terrain in place of its floor; and the height of the
    ground in the middle, m."""
    grid = ground(Flat())
    path = str(loco.menagerie_file(robot.file))
    spec = with_height_field(path, *grid.shape, grid.size, heights=heights)
    return spec, float(heights[heights.shape[0] // 2, heights.shape[1] // 2])


def boxes(robot: loco.Robot, rise: float):
    """Return the scene of a robot with stairs of boxes ahead of it."""
    spec = mujoco.MjSpec.from_file(str(loco.menagerie_file(robot.file)))
    for k in range(14):
        half = 0.5 * (14 - k) * 0.35 + 1.0
        spec.worldbody.add_geom(
            type=mujoco.mjtGeom.mjGEOM_BOX,
            size=[half, 2.0, 0.5 * rise],
            pos=[0.8 + k * 0.35 + half, 0.0, (k + 0.5) * rise],
        )
    return spec


def harder(robot: loco.Robot) -> eqsim.AbstractEnv:
    """Return the task with high steps, and a cost of feet that stumble."""
    grid, weights = loco.rough_terrain(), loco.rough_velocity(robot).env.weights
    kinds = tuple(
        dataclasses.replace(kind, step_height=(0.06, 0.16))
        if isinstance(kind, Stairs)
        else kind
        for kind in grid.kinds
    )
    terrain = dataclasses.replace(grid, kinds=kinds)
    return loco.rough_velocity(
        robot, terrain=terrain, weights=weights | {"stumble": -2.0}
    )


def continued(result, env: eqsim.AbstractEnv, steps: float, seed: int):
    """Train what a run has learned further, in another task, from new episodes."""
    agent, state = result.member(0)
    begun = zoo.train(zoo.Run(agent, env, 1, seed=seed, evaluations=0)).state
    learned = lambda s: (s.learner, s.statistics, s.returns, s.pace)
    state = eqx.tree_at(learned, begun, learned(state))
    run = zoo.Run(agent, env, steps, seed=seed, evaluations=0)
    return zoo.train(run, state=state)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--robot", default="go1", choices=loco.ROBOTS)
    parser.add_argument("--run", help="folder of a run; by default one is trained")
    parser.add_argument("--more", type=float, default=0.0, help="further steps")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    begin, robot = time.time(), loco.ROBOTS[options.robot]
    with tempfile.TemporaryDirectory() as folder:
        if options.run:
            result = zoo.load_run(options.run)
        else:
            name = f"{robot.name}_velocity_rough"
            preset = zoo.runs.find_preset("ppo", name)
            if preset is None:
                parser.error(
                    f"PPO has no preset for {name}. Pass a run of it: `--run`."
                )
            run = dataclasses.replace(preset, seed=options.seed, evaluations=0)
            result = zoo.train(run, out=f"{folder}/run")
        if options.more:
            result = continued(result, harder(robot), options.more, options.seed)
        if options.more or not options.run:
            seconds = time.time() - begin
            print(f"{result.counters.steps:,} steps in {seconds:.0f} s", flush=True)
        agent, state = result.member(0)
        policy = f"{folder}/policy.onnx"
        export_policy(agent, state, result.environment(), policy)
        env = loco.rough_velocity(robot, terrain=ground(Flat()))
        print(f"| terrain | upright of {IN_EQSIM} | distance, m ", end="")
        print(f"| upright of {IN_MUJOCO} in C | distance in C, m |")
        print("|---|--:|--:|--:|--:|", flush=True)
        for number, (name, kind) in enumerate(TERRAINS.items()):
            grid, key = ground(kind), jr.fold_in(jr.key(100 + options.seed), number)
            heights = grid.heights(key)
            found = in_eqsim(agent, state, env, with_terrain(env.sys, heights), key)
            found += in_mujoco(policy, *scene(robot, np.asarray(heights)))
            row = "| {} | {:.0f} | {:.2f} | {:.0f} | {:.2f} |".format(name, *found)
            print(row, flush=True)
        for rise in (0.05, 0.08, 0.1):
            upright, away = in_mujoco(policy, boxes(robot, rise))
            name = f"stairs of boxes, {100 * rise:.0f} cm"
            print(f"| {name} | | | {upright} | {away:.2f} |", flush=True)


if __name__ == "__main__":
    main()
