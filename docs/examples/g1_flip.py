"""A Unitree G1 does a backflip: iterative LQR replans every 20 ms to track drawn poses.

    python docs/examples/g1_flip.py unitree_g1/scene.xml out/g1_flip.gif

Planned with soft contacts of the feet alone, and simulated with all contacts of the file.
"""

import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from scipy.interpolate import PchipInterpolator

import eqsim
from eqsim import control, kinematics
from eqsim.render import Camera, images, write_gif


DT, HORIZON, STEPS, LIFTS, LANDS = 0.02, 40, 130, 30, 60
JOINTS = "hip_pitch", "knee", "ankle_pitch", "shoulder_pitch", "elbow"
# Time, angles of the joints, pitch of the pelvis: crouch, stretch, tuck, land, stand.
POSES = """0 0 0 0 .2 1.28 0;  .36 -1.3 1.9 -.75 .6 .6 .3;  .42 -1.3 1.9 -.75 -.3 .6 .25;
.48 -1.1 1.7 -.63 -1.4 .62 .15;  .54 -.68 1.1 -.28 -2.2 .7 -.04;  .6 .1 .05 .3 -2.4 .8 -.3;
.7 -.7 .9 .1 -2 .73 -.75;  .85 -2.1 2.5 -.3 -1.05 .6 -1.9;  1 -2.1 2.5 -.3 -.56 .6 -4;
1.2 -.7 .9 -.3 -.3 1 -5.85;  1.4 -1.1 1.6 -.6 -.6 1 -6;  1.9 -.2 .4 -.2 .2 1.28 -6.15;
2.6 -.2 .4 -.2 .2 1.28 -6.28"""


def reference(robot: eqsim.System, stand: jax.Array) -> eqsim.State:
    """Interpolate the poses: feet on the floor, and a ballistic flight in between."""
    poses = np.array([row.split() for row in POSES.split(";")], float)
    at = jnp.asarray(
        PchipInterpolator(poses[:, 0], poses[:, 1:])(DT * np.arange(STEPS))
    )
    q = jnp.tile(stand.at[:3].set(0.0), (STEPS, 1))
    for k, name in enumerate(JOINTS):
        for side in ("left", "right"):
            q = q.at[:, robot.joint(f"{side}_{name}_joint").q.start].set(at[:, k])
    q = q.at[:, 3].set(jnp.cos(at[:, 5] / 2)).at[:, 5].set(jnp.sin(at[:, 5] / 2))
    foot = jax.vmap(lambda q: kinematics.forward(robot, q))(q)
    pos, rot = (x[:, robot.link("left_ankle_roll_link").index] for x in foot)
    ends = pos[:, None] + jnp.array([[-0.05, 0, -0.035], [0.12, 0, -0.035]]) @ rot.mT
    q = q.at[:, 0].add(-ends[..., 0].mean(1)).at[:, 2].add(-ends[..., 2].min(1))
    q, share = (
        q.at[LANDS:, 0].add(-0.25),
        jnp.linspace(0.0, 1.0, LANDS - LIFTS)[:, None],
    )
    com = jax.vmap(lambda q: kinematics.center_of_mass(robot, q))(q)
    path = com[LIFTS] + share * (com[LANDS] - com[LIFTS])
    rise = 4.905 * (DT * (LANDS - LIFTS)) ** 2 * share * (1.0 - share)
    q = q.at[LIFTS:LANDS, :3].add((path - com[LIFTS:LANDS]).at[:, 2:].add(rise))
    qd = jax.vmap(lambda a, b: kinematics.difference(robot, a, b))(q[:-1], q[1:]) / DT
    return jax.vmap(eqsim.State)(q, jnp.pad(qd, ((0, 1), (0, 0))), q[:, :0])


def flip(
    file: str, steps: int = STEPS
) -> tuple[eqsim.System, eqsim.State, eqsim.State]:
    """Simulate the backflip; return the robot, its states, and the reference."""
    spec = mujoco.MjSpec.from_file(file)
    robot, spec.option.timestep = eqsim.load_mjcf(spec), 0.005
    for geom in spec.geoms:
        if geom.name != "floor" and not geom.parent.name.endswith("ankle_roll_link"):
            geom.contype = geom.conaffinity = 0
    wanted = reference(robot, robot.keyframe("stand").q)
    light = [("ankle" in n or "wrist" in n) for n in robot.actuators.names]
    places = [30, 30, 60, 60, 60, 60, *np.where(light, 1, 3)]
    rates = [0.5, 0.5, 2, 0.3, 2, 0.3, *np.full(robot.nu, 0.01)]
    weight = jnp.array([*places, *rates], jnp.float32)
    cost = control.QuadraticCost(wanted, weight, 0.3, 4.0 * weight, wanted.q[:, 7:])
    soft, exact = eqsim.Generalized(smoothing=0.002), eqsim.Generalized()
    model = control.PipelineDynamics(soft, eqsim.load_mjcf(spec), 4)
    problem = control.ControlProblem(control.TimedDynamics(model), cost, HORIZON)
    plan = eqx.filter_jit(control.ILQR(max_steps=10).solve)
    step = eqx.filter_jit(control.PipelineDynamics(exact, robot, 10).step)
    states, actions = [exact.init(robot, wanted.q[0])], wanted.q[1 : HORIZON + 1, 7:]
    for k in range(steps):
        actions = plan(problem, control.Timed(states[-1], k), actions).actions
        states.append(step(states[-1], actions[0]))
        ahead = wanted.q[min(k + HORIZON + 1, STEPS - 1), 7:]
        actions = jnp.concatenate([actions[1:], ahead[None]])
    return robot, jax.tree.map(lambda *x: jnp.stack(x), *states), wanted


if __name__ == "__main__":
    robot, states, _ = flip(sys.argv[1])
    print("pelvis at start, top and end, m:", *(states.q[[0, 48, -1], 2].round(2)))
    camera = Camera((0.0, 0.0, 0.7), 3.2, 90.0, -8.0)
    write_gif(sys.argv[2], images(robot, states.q[::2], camera), 0.04)
