"""What MuJoCo C computes of sites and tendons, and what eqsim does."""

import jax
import mujoco
import numpy as np

from eqsim import dynamics, kinematics
from eqsim._batching import batch_last
from eqsim.dynamics.articulated import node_bodies
from eqsim.dynamics.weights import inverse_weights
from eqsim.io import write_mjcf
from eqsim.kinematics.link_motion import frames
from eqsim.model import tree
from eqsim.testing import random_configuration, random_system


def draw(seed):
    """A random robot with tendons, and MuJoCo's model of it."""
    rng = np.random.default_rng(seed)
    nlink = int(rng.integers(1, 5))
    sys = random_system(
        seed,
        nlink,
        num_roots=1,
        with_geoms=False,
        with_actuators=False,
        with_tendons=True,
    )
    return sys, mujoco.MjModel.from_xml_string(write_mjcf(sys))


def ours(sys, q, qd):
    """Everything that tendons and sites enter, at one state."""
    return {
        "site_xpos": kinematics.site_poses(sys, q).pos,
        "site_xmat": kinematics.site_poses(sys, q).rot,
        "length": kinematics.tendon_lengths(sys, q),
        "jacobian": kinematics.tendon_jacobian(sys, q),
        "velocity": kinematics.tendon_velocities(sys, q, qd),
        "passive": dynamics.passive_forces(sys, q, qd),
        "inertia": dynamics.crba(sys, q),
        "bias": dynamics.bias_forces(sys, q, qd),
        "potential": dynamics.potential_energy(sys, q),
        "kinetic": dynamics.kinetic_energy(sys, q, qd),
    }


def _weights(sys):
    nodes = tree(sys)
    fixed = frames(sys, nodes)
    found = inverse_weights(sys, nodes, fixed, node_bodies(sys, nodes, fixed))
    return found._asdict()


weights = batch_last(_weights)
"""Inverse weights at the reference."""


def theirs(model, q, qd):
    """The same of MuJoCo."""
    model.opt.enableflags |= mujoco.mjtEnableBit.mjENBL_ENERGY
    data = mujoco.MjData(model)
    data.qpos[:], data.qvel[:] = q, qd
    mujoco.mj_forward(model, data)
    matrix = np.zeros((model.nv, model.nv))
    mujoco.mj_fullM(model, data, matrix)
    return {
        "site_xpos": data.site_xpos,
        "site_xmat": data.site_xmat.reshape(-1, 3, 3),
        "length": data.ten_length,
        "jacobian": tendon_jacobian(model, data),
        "velocity": data.ten_velocity,
        "passive": data.qfrc_passive,
        "inertia": matrix,
        "bias": data.qfrc_bias,
        "potential": data.energy[0],
        "kinetic": data.energy[1],
    }


def tendon_jacobian(model, data):
    """`ten_J`, dense."""
    out = np.zeros((model.ntendon, model.nv))
    if model.nJten:
        sparse = model.ten_J_rownnz, model.ten_J_rowadr, model.ten_J_colind
        mujoco.mju_sparse2dense(out, data.ten_J, *sparse)
    return out


def errors(sys, model, count=4):
    """The largest relative difference of each quantity, over some states."""
    states = [random_configuration(k, sys, 0.4 * k) for k in range(count)]
    compiled = jax.jit(ours)
    worst: dict[str, float] = {}
    for q, qd in states:
        expected = theirs(model, np.asarray(q), np.asarray(qd))
        for name, value in compiled(sys, q, qd).items():
            scale = max(1.0, np.max(np.abs(expected[name]), initial=0.0))
            error = np.max(np.abs(value - expected[name]), initial=0.0) / scale
            worst[name] = max(worst.get(name, 0.0), float(error))
    return worst
