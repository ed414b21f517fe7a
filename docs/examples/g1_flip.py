"""A Unitree G1 does a backflip: iterative LQR replans every 20 ms to track keyframes.

    python docs/examples/g1_flip.py unitree_g1/scene.xml out/g1_flip.gif

The planner uses smoothed contacts of the feet only; the simulation uses all contacts.
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


DT, STEPS, HORIZON, TAKEOFF, LANDING = 0.02, 130, 40, 30, 60
JOINTS = "hip_pitch", "knee", "ankle_pitch", "shoulder_pitch", "elbow"
# Time, s; angles of these joints on both sides, and pitch of the pelvis, rad.
KEYFRAMES = [
    [0, 0, 0, 0, 0.2, 1.28, 0],
    [0.36, -1.3, 1.9, -0.75, 0.6, 0.6, 0.3],
    [0.42, -1.3, 1.9, -0.75, -0.3, 0.6, 0.25],
    [0.48, -1.1, 1.7, -0.63, -1.4, 0.62, 0.15],
    [0.54, -0.68, 1.1, -0.28, -2.2, 0.7, -0.04],
    [0.6, 0.1, 0.05, 0.3, -2.4, 0.8, -0.3],
    [0.7, -0.7, 0.9, 0.1, -2, 0.73, -0.75],
    [0.85, -2.1, 2.5, -0.3, -1.05, 0.6, -1.9],
    [1, -2.1, 2.5, -0.3, -0.56, 0.6, -4],
    [1.2, -0.7, 0.9, -0.3, -0.3, 1, -5.85],
    [1.4, -1.1, 1.6, -0.6, -0.6, 1, -6],
    [1.9, -0.2, 0.4, -0.2, 0.2, 1.28, -6.15],
    [2.6, -0.2, 0.4, -0.2, 0.2, 1.28, -6.2832],
]
# Heel and toe in the frame of a foot, m.
SOLE = [[-0.05, 0.0, -0.035], [0.12, 0.0, -0.035]]


def reference(robot: eqsim.System, stand: jax.Array) -> eqsim.State:
    """Interpolate the keyframes: feet on the floor, and a ballistic flight in between."""
    time, *angles = np.array(KEYFRAMES).T
    at = PchipInterpolator(time, np.stack(angles, axis=1))(DT * np.arange(STEPS))
    q = jnp.tile(stand.at[:3].set(0.0), (STEPS, 1))
    for k, name in enumerate(JOINTS):
        for side in ("left", "right"):
            q = q.at[:, robot.joint(f"{side}_{name}_joint").q].set(at[:, k : k + 1])
    q = q.at[:, 3].set(np.cos(at[:, 5] / 2)).at[:, 5].set(np.sin(at[:, 5] / 2))
    links = jax.vmap(lambda q: kinematics.forward(robot, q))(q)
    pos, rot = (x[:, robot.link("left_ankle_roll_link").index] for x in links)
    sole = pos[:, None] + jnp.asarray(SOLE, q.dtype) @ rot.mT
    q = q.at[:, 0].add(-sole[..., 0].mean(1)).at[:, 2].add(-sole[..., 2].min(1))
    q = q.at[LANDING:, 0].add(-0.25)
    share = jnp.linspace(0.0, 1.0, LANDING - TAKEOFF, dtype=q.dtype)[:, None]
    height = 4.905 * (DT * (LANDING - TAKEOFF)) ** 2 * share * (1.0 - share)
    com = jax.vmap(lambda q: kinematics.center_of_mass(robot, q))(q)
    path = com[TAKEOFF, None] + share * (com[LANDING] - com[TAKEOFF])[None]
    change = (path - com[TAKEOFF:LANDING]).at[:, 2:].add(height)
    q = q.at[TAKEOFF:LANDING, :3].add(change)
    qd = jax.vmap(lambda a, b: kinematics.difference(robot, a, b))(q[:-1], q[1:]) / DT
    return jax.vmap(eqsim.State)(q, jnp.pad(qd, ((0, 1), (0, 0))), q[:, :0])


def flip(
    file: str, steps: int = STEPS
) -> tuple[eqsim.System, eqsim.State, eqsim.State]:
    """Simulate the backflip; return the robot, its states, and the reference."""
    spec = mujoco.MjSpec.from_file(file)
    robot = eqsim.load_mjcf(spec)
    spec.option.timestep = 0.005
    for geom in spec.geoms:
        if geom.name != "floor" and not geom.parent.name.endswith("ankle_roll_link"):
            geom.contype = geom.conaffinity = 0
    wanted = reference(robot, robot.keyframe("stand").q)
    light = [("ankle" in name or "wrist" in name) for name in robot.actuators.names]
    # Position and rotation of the pelvis and angles, then their rates.
    weight = [30, 30, 60, 60, 60, 60, *np.where(light, 1, 3)]
    weight += [0.5, 0.5, 2, 0.3, 2, 0.3, *np.full(robot.nu, 0.01)]
    weight = jnp.asarray(weight, wanted.q.dtype)
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
    up = 1.0 - 2.0 * jnp.sum(states.q[:, 4:6] ** 2, axis=1)
    print(f"cosine of the tilt: least {up.min():.2f}, at the end {up[-1]:.2f}")
    print(f"height of the pelvis at the end: {states.q[-1, 2]:.2f} m")
    camera = Camera((0.0, 0.0, 0.7), 3.2, 90.0, -8.0)
    write_gif(sys.argv[2], images(robot, states.q[::2], camera), 0.04)
