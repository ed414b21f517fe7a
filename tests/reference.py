"""What MuJoCo C computes, under the names of `systems.kinematic` and `dynamic`."""

import assets
import jax
import mujoco
import numpy as np
import systems

from eqsim.io import write_mjcf


def at_state(model, x, k):
    """MuJoCo's data at state `k` of some `Inputs`."""
    data = mujoco.MjData(model)
    data.qpos[:], data.qvel[:] = x.q[k], x.qd[k]
    data.act[:], data.ctrl[:] = x.act[k], x.ctrl[k]
    model.opt.enableflags |= mujoco.mjtEnableBit.mjENBL_ENERGY
    mujoco.mj_forward(model, data)
    mujoco.mj_subtreeVel(model, data)
    return data


def kinematic(model, x, k):
    """The kinematics of state `k`."""
    data, nlink = at_state(model, x, k), model.nbody - 1
    pos, rot = data.xpos[1:], data.xmat[1:].reshape(-1, 3, 3)
    velocity = np.zeros((nlink, 6))
    for link in range(nlink):
        kind = mujoco.mjtObj.mjOBJ_XBODY
        mujoco.mj_objectVelocity(model, data, kind, link + 1, velocity[link], 0)
    jacobian, com_jacobian = np.zeros((6, model.nv)), np.zeros((3, model.nv))
    point = pos[-1] + rot[-1] @ np.asarray(x.point[k])
    mujoco.mj_jac(model, data, jacobian[3:], jacobian[:3], point, nlink)
    mujoco.mj_jacSubtreeCom(model, data, com_jacobian, 0)
    moved, difference = np.array(x.q[k]), np.zeros(model.nv)
    mujoco.mj_integratePos(model, moved, np.array(x.v[k]), 1.0)
    mujoco.mj_differentiatePos(model, difference, 1.0, np.array(x.q[k]), moved)
    return {
        "poses": (pos, rot),
        "velocities": (velocity[:, :3], velocity[:, 3:]),
        "jacobian": jacobian,
        "center_of_mass": data.subtree_com[0],
        "com_velocity": data.subtree_linvel[0],
        "com_jacobian": com_jacobian,
        "moved": moved,
        "difference": difference,
    }


def dynamic(model, x, k):
    """The dynamics of state `k`."""
    data = at_state(model, x, k)
    matrix, pull = np.zeros((model.nv, model.nv)), np.zeros(model.nv)
    mujoco.mj_fullM(model, data, matrix)
    for body, (torque, force) in enumerate(
        np.asarray(x.external[k]).reshape(-1, 2, 3), 1
    ):
        point = data.xipos[body].copy()
        mujoco.mj_applyFT(model, data, force, torque, point, body, pull)
    bias = data.qfrc_bias.copy()
    linear = data.subtree_linvel[0] * model.body_subtreemass[0]
    out = {
        "rnea": matrix @ np.asarray(x.qdd[k]) + bias - pull,
        "bias": bias,
        "crba": matrix,
        "aba": np.linalg.solve(matrix, np.asarray(x.tau[k]) - bias + pull),
        "kinetic": data.energy[1],
        "potential": data.energy[0],
        "momentum": np.concatenate([data.subtree_angmom[0], linear]),
        "passive": data.qfrc_passive.copy(),
        "actuators": data.qfrc_actuator.copy(),
        "inertias": data.cinert[1:].copy(),
        "velocities": data.cvel[1:].copy(),
    }
    data.qvel[:] = 0.0
    mujoco.mj_forward(model, data)
    return out | {"gravity": data.qfrc_bias.copy()}


def worst(ours, theirs, count):
    """The largest relative difference of each quantity, over all states.

    **Arguments:**

    - `ours`: a report of `systems`.
    - `theirs`: the same for one state, given its number.
    """
    errors = {}
    for k in range(count):
        expected = theirs(k)
        for name, value in ours.items():
            mine = [x[k] for x in jax.tree.leaves(value)]
            for a, b in zip(mine, jax.tree.leaves(expected[name]), strict=True):
                scale = max(1.0, np.max(np.abs(b), initial=0.0))
                error = np.max(np.abs(a - b), initial=0.0) / scale
                errors[name] = max(errors.get(name, 0.0), float(error))
    return errors


def check_report(report, expected, model, name):
    """Compare a report of `systems` with MuJoCo, in all its states."""
    x = systems.inputs(name)
    ours = report(systems.system(name), x)
    errors = worst(ours, lambda k: expected(model, x, k), len(x.q))
    assert all(error < 1e-12 for error in errors.values()), errors


def random_model(name):
    """MuJoCo's model of a random system."""
    return mujoco.MjModel.from_xml_string(write_mjcf(systems.system(name)))


def file_model(name):
    """MuJoCo's model of a file of Gymnasium."""
    return mujoco.MjModel.from_xml_path(str(assets.path(name)))
