"""The robots that laws are tested on, and all that is computed of their states.

They are small, and together they hold every joint. Compilation is most of the cost of a
test, so everything is computed at once, for several states, by one program per robot.
"""

import functools as ft
from typing import NamedTuple

import assets
import jax
import jax.numpy as jnp
import numpy as np

from eqsim import dynamics, kinematics
from eqsim.io import load_mjcf
from eqsim.model import JointKind, State
from eqsim.testing import random_configuration, random_system


_RANDOM = {
    # hinge and slide in one link, then hinges; the last link has no mass
    "stacked": (2, 3, (JointKind.REVOLUTE, JointKind.PRISMATIC), 1, False),
    # a free link that carries a fixed one, and a hinge
    "floating": (3, 3, (JointKind.FREE, JointKind.REVOLUTE), 1, False),
    # links fixed to the world that carry a ball and a hinge; a slide; a medium
    "fixed": (0, 5, tuple(JointKind), 2, True),
    # two trees with free, ball and slide joints; a medium; activations
    "forest": (8, 5, tuple(JointKind), 2, True),
}
NAMES = tuple(_RANDOM)
# Two hinges, where many programs are compiled of one function.
_RANDOM["tiny"] = (1, 2, (JointKind.REVOLUTE,), 1, False)
# A free link that carries a ball joint, in a medium.
_RANDOM["buoy"] = (10, 2, (JointKind.FREE, JointKind.SPHERICAL), 1, True)


@ft.lru_cache
def system(name):
    """One of the robots in `NAMES`, or of gymnasium's files."""
    if name not in _RANDOM:
        return load_mjcf(assets.path(name))
    seed, nlink, joints, num_roots, fluid = _RANDOM[name]
    return random_system(seed, nlink, joints, num_roots, with_fluid=fluid)


class Inputs(NamedTuple):
    """Arguments of the functions under test, each with an axis of states in front."""

    q: jax.Array
    qd: jax.Array
    qdd: jax.Array
    tau: jax.Array
    external: jax.Array
    point: jax.Array
    v: jax.Array
    act: jax.Array
    ctrl: jax.Array


def normal(seed, *shape):
    """Random numbers."""
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape))


@ft.lru_cache
def inputs(name, count=6):
    """States of a robot: the first is the reference at rest, the next are wilder."""
    sys = system(name)
    scales = [0.0, *np.linspace(0.3, 2.0, count - 1)]
    states = [random_configuration(k, sys, scale) for k, scale in enumerate(scales)]
    return Inputs(
        q=jnp.stack([q for q, _ in states]),
        qd=jnp.stack([qd for _, qd in states]),
        qdd=normal(1, count, sys.nv),
        tau=normal(2, count, sys.nv),
        external=normal(3, count, sys.nlink, 6),
        point=0.3 * normal(4, count, 3),
        v=0.3 * normal(5, count, sys.nv),
        act=normal(6, count, sys.na),
        ctrl=normal(7, count, sys.nu),
    )


def kinematic(sys, x):
    """All of `eqsim.kinematics` at one state."""
    moved = kinematics.integrate(sys, x.q, x.v)
    return {
        "poses": kinematics.forward(sys, x.q),
        "velocities": kinematics.forward_velocity(sys, x.q, x.qd),
        "jacobian": kinematics.jacobian(sys, x.q, sys.nlink - 1, x.point),
        "center_of_mass": kinematics.center_of_mass(sys, x.q),
        "com_velocity": kinematics.com_velocity(sys, x.q, x.qd),
        "com_jacobian": kinematics.com_jacobian(sys, x.q),
        "moved": moved,
        "difference": kinematics.difference(sys, x.q, moved),
    }


def dynamic(sys, x, wanted=None):
    """All of `eqsim.dynamics` at one state, or what is wanted of it."""
    calls = {
        "rnea": lambda: dynamics.rnea(sys, x.q, x.qd, x.qdd, x.external),
        "bias": lambda: dynamics.bias_forces(sys, x.q, x.qd),
        "gravity": lambda: dynamics.gravity_forces(sys, x.q),
        "crba": lambda: dynamics.crba(sys, x.q),
        "aba": lambda: dynamics.aba(sys, x.q, x.qd, x.tau, x.external),
        "kinetic": lambda: dynamics.kinetic_energy(sys, x.q, x.qd),
        "potential": lambda: dynamics.potential_energy(sys, x.q),
        "momentum": lambda: dynamics.momentum(sys, x.q, x.qd),
        "passive": lambda: dynamics.passive_forces(sys, x.q, x.qd),
        "actuators": lambda: dynamics.actuator_forces(
            sys, State(x.q, x.qd, x.act), x.ctrl
        ),
        "inertias": lambda: dynamics.centered_inertias(sys, x.q),
        "velocities": lambda: dynamics.centered_velocities(sys, x.q, x.qd),
    }
    return {name: calls[name]() for name in wanted or calls}


_kinematic = jax.jit(jax.vmap(kinematic, in_axes=(None, 0)))
_dynamic = jax.jit(jax.vmap(dynamic, in_axes=(None, 0)))


def kinematic_report(sys, x):
    """`kinematic` at all states, as numbers."""
    return jax.tree.map(np.asarray, _kinematic(sys, x))


def dynamic_report(sys, x):
    """`dynamic` at all states, as numbers."""
    return jax.tree.map(np.asarray, _dynamic(sys, x))
