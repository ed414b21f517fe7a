"""Dynamics: agreement with MuJoCo C, laws of mechanics, derivatives, and refusals.

Relations between values in one state, such as the symmetry of the inertia matrix, follow
from the agreement with MuJoCo.
"""

import functools as ft

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
import pytest
import reference
import systems
from helpers import check_gradients, tree_allclose

from eqsim import dynamics, kinematics, load_mjcf, State


def compare(model, name):
    reference.check_report(systems.dynamic_report, reference.dynamic, model, name)


@pytest.mark.parametrize("name", systems.NAMES)
@pytest.mark.quick_cases("floating")
def test_random_systems(name):
    compare(reference.random_model(name), name)


@pytest.mark.slow
@pytest.mark.parametrize("name", ("swimmer", "half_cheetah"))
def test_files(name):
    compare(reference.file_model(name), name)


# All kinds of joints are in "forest"; each robot takes long to compile.
@pytest.mark.parametrize("name", systems.NAMES)
@pytest.mark.quick_cases("forest")
def test_rnea_inverts_aba_and_gives_the_columns_of_crba(name):
    sys, x = systems.system(name), systems.inputs(name)

    @jax.jit
    @jax.vmap
    def relations(x):
        qdd = dynamics.aba(sys, x.q, x.qd, x.tau, x.external)
        force = lambda qdd: dynamics.rnea(sys, x.q, x.qd, qdd, x.external)
        accelerations = jnp.concatenate([qdd[None], 0.0 * qdd[None], jnp.eye(sys.nv)])
        return jax.vmap(force)(accelerations)

    forces = np.asarray(relations(x))
    assert tree_allclose(forces[:, 0], np.asarray(x.tau))
    columns = forces[:, 2:] - forces[:, 1:2]
    report = systems.dynamic_report(sys, x)
    assert tree_allclose(columns.swapaxes(1, 2), report["crba"])


def conservative(sys):
    """Springs everywhere, and nothing that takes or adds energy."""
    return eqx.tree_at(
        lambda s: (
            s.links.gravity_compensation,
            s.joints.damping,
            s.density,
            s.viscosity,
            s.joints.stiffness,
        ),
        sys,
        (
            jnp.zeros(sys.nlink),
            jnp.zeros(sys.nv),
            jnp.array(0.0),
            jnp.array(0.0),
            1.0 + jnp.arange(1.0 * sys.njoint),
        ),
    )


def floating(sys):
    """Neither springs nor gravity, and no inertia beside that of the links."""
    return eqx.tree_at(
        lambda s: (s.gravity, s.joints.stiffness, s.joints.armature),
        conservative(sys),
        (jnp.zeros(3), jnp.zeros(sys.njoint), jnp.zeros(sys.nv)),
    )


@ft.lru_cache
def free_motion(name, length=200, dt=1e-3):
    """A program that returns energy and momentum, before and after some free motion."""

    def rate(sys, q, qd):
        return qd, dynamics.aba(sys, q, qd, dynamics.passive_forces(sys, q, qd))

    def step(sys, state, _):
        q, qd = state
        move = lambda v, a: (kinematics.integrate(sys, q, dt * v), qd + dt * a)

        def stage(slope, share):
            slope = rate(sys, *move(*(share * x for x in slope)))
            return slope, slope

        # A loop, so that one stage is compiled and not four.
        shares = jnp.array([0.0, 0.5, 0.5, 1.0])
        _, slopes = jax.lax.scan(stage, (0.0 * qd, 0.0 * qd), shares)
        weights = jnp.array([1 / 6, 1 / 3, 1 / 3, 1 / 6])
        return move(*(weights @ x for x in slopes)), 0

    def measure(sys, q, qd):
        energy = dynamics.kinetic_energy(sys, q, qd) + dynamics.potential_energy(sys, q)
        return energy, dynamics.momentum(sys, q, qd)

    @jax.jit
    def run(sys, q, qd):
        end, _ = jax.lax.scan(ft.partial(step, sys), (q, qd), None, length)
        return end, measure(sys, q, qd), measure(sys, *end)

    return run


def test_energy_is_conserved():
    name = "floating"
    sys, x = conservative(systems.system(name)), systems.inputs(name)
    end, (before, _), (after, _) = free_motion(name)(sys, x.q[3], x.qd[3])
    assert np.max(np.abs(end[0] - x.q[3])) > 0.1
    assert np.isclose(before, after, rtol=1e-7)


def test_momentum_is_conserved():
    name = "floating"
    sys, x = floating(systems.system(name)), systems.inputs(name)
    end, before, after = free_motion(name)(sys, x.q[3], x.qd[3])
    assert np.max(np.abs(end[0] - x.q[3])) > 0.1
    assert tree_allclose(before, after, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("name", ("fixed", "floating"))
@pytest.mark.quick_cases("floating")
def test_forces_are_gradients_of_the_potential(name):
    sys = conservative(systems.system(name))

    def one(x):
        at = lambda v: dynamics.potential_energy(sys, kinematics.integrate(sys, x.q, v))
        springs = dynamics.passive_forces(sys, x.q, jnp.zeros(sys.nv))
        slope = jax.grad(at)(jnp.zeros(sys.nv))
        return slope, dynamics.gravity_forces(sys, x.q) - springs

    slope, force = jax.jit(jax.vmap(one))(systems.inputs(name))
    assert tree_allclose(slope, force)


LEG = """
<body name="leg" pos="0.1 0.2 -0.1">
  <joint name="knee" type="hinge" axis="0 1 1" armature="0.01"/>
  <joint name="rail" type="slide" axis="1 0 0"/>
  <inertial pos="0 0.1 0" mass="0.7" diaginertia="0.02 0.03 0.04"/>
</body>"""
ARM = """
<body name="arm" pos="-0.1 0.2 0.1">
  <joint name="shoulder" type="ball" pos="0 0 0.1" damping="0.1"/>
  <inertial pos="0.1 0 0" mass="0.5" diaginertia="0.02 0.03 0.02"/>
</body>"""
TORSO = """
<body name="torso" pos="0 0 1">
  <freejoint name="root"/>
  <inertial pos="0 0 0.05" mass="2" diaginertia="0.1 0.2 0.2"/>{}
</body>"""
BLOCK = """
<body name="block" pos="1 0 0">
  <joint name="guide" type="slide" axis="0 1 1" stiffness="3"/>
  <inertial pos="0.1 0 0" mass="0.4" diaginertia="0.01 0.01 0.01"/>
</body>"""


def load(*bodies):
    return load_mjcf(f"<mujoco><worldbody>{''.join(bodies)}</worldbody></mujoco>")


def places(sys, order):
    """Where the coordinates, velocities and links of `order` stand in `sys`."""
    joints = sys.joints
    q, v = [], []
    for name in order.joints.names:
        j = joints.names.index(name)
        q += range(joints.q_starts[j], joints.q_starts[j] + joints.kinds[j].nq)
        v += range(joints.v_starts[j], joints.v_starts[j] + joints.kinds[j].nv)
    links = [sys.links.names.index(name) for name in order.links.names]
    return np.array(q), np.array(v), np.array(links)


def test_order_of_siblings():
    one, other = (
        load(TORSO.format(LEG + ARM), BLOCK),
        load(BLOCK, TORSO.format(ARM + LEG)),
    )
    q_at, v_at, links_at = places(other, one)

    @jax.jit
    def compute(sys, q, qd, tau):
        return {
            "qdd": dynamics.aba(sys, q, qd, tau),
            "momentum": dynamics.momentum(sys, q, qd),
            "poses": kinematics.forward(sys, q),
        }

    q = other.joints.ref + systems.normal(0, other.nq)
    qd, tau = systems.normal(1, other.nv), systems.normal(2, other.nv)
    expected = compute(one, q[q_at], qd[v_at], tau[v_at])
    out = compute(other, q, qd, tau)
    out["qdd"] = out["qdd"][v_at]
    out["poses"] = jax.tree.map(lambda x: x[links_at], out["poses"])
    assert tree_allclose(expected, out)


UNREAD = {
    f"[0].{name}"
    for name in (
        *("joints.range", "joints.limit_margin", "joints.limit_solref"),
        *("joints.limit_solimp", "joints.frictionloss", "joints.friction_solref"),
        *("joints.friction_solimp", "impratio"),
        *(f"geoms.{k}" for k in ("pos", "quat", "size", "friction", "solref")),
        "geoms.fluid_coefficients",
        *(f"geoms.{k}" for k in ("solimp", "solmix", "margin")),
        *(f"pairs.{k}" for k in ("friction", "solref", "solref_friction", "solimp")),
        *("pairs.margin", "equalities.active", "sensors.cutoff"),
        *(f"keyframes.{k}" for k in ("q", "qd", "act", "ctrl")),
        *("actuators.time_constant", "actuators.act_range", "dt"),
    )
} | {"[1].point", "[1].v"}
# Of these robots: neither hinge nor slide; no spring, medium or activation.
WITHOUT = {
    "buoy": {
        *("[0].joints.axis", "[0].joints.ref"),
        *("[0].actuators.ctrl_range", "[0].actuators.force_range"),
    },
    "stacked": {
        *("[0].joints.spring_ref", "[0].wind", "[0].density", "[0].viscosity"),
        "[1].act",
    },
}


SOME = ("aba", "potential", "passive", "actuators")
REST = ("rnea", "crba", "kinetic", "momentum", "inertias", "velocities")


@pytest.mark.parametrize("wanted", (SOME, REST), ids=("some", "rest"))
@pytest.mark.parametrize("name", ("buoy", "stacked"))
@pytest.mark.slow  # `pipelines/test_gradients.py` differentiates steps by everything.
def test_all(name, wanted):
    """Also in the first state: at rest, where all rotations are the identity."""
    sys, x = systems.system(name), systems.inputs(name, 3)
    fn = jax.vmap(lambda sys, x: systems.dynamic(sys, x, wanted), (None, 0))
    largest = check_gradients(fn, sys, x, atol=1e-6)
    leaves = jtu.tree_leaves_with_path((sys, x))
    absent = {jtu.keystr(path) for path, leaf in leaves if leaf.size == 0}
    zero = {k for k, v in largest.items() if v == 0} - absent
    if wanted == SOME:
        assert zero == (UNREAD | WITHOUT[name] | {"[1].qdd"}) - absent
    else:
        assert (UNREAD | WITHOUT[name]) - absent <= zero
        assert not zero & {f"[0].links.{k}" for k in ("mass", "com", "inertia", "pos")}


SYS = systems.system("stacked")
Q, V, U = jnp.zeros(SYS.nq), jnp.zeros(SYS.nv), jnp.zeros(SYS.nu)
BAD, BAD_EXTERNAL = jnp.zeros(99), jnp.zeros((9, 6))
CALLS = {
    "rnea q": lambda: dynamics.rnea(SYS, BAD, V, V),
    "rnea qd": lambda: dynamics.rnea(SYS, Q, BAD, V),
    "rnea qdd": lambda: dynamics.rnea(SYS, Q, V, BAD),
    "rnea external": lambda: dynamics.rnea(SYS, Q, V, V, BAD_EXTERNAL),
    "aba tau": lambda: dynamics.aba(SYS, Q, V, BAD),
    "aba qd": lambda: dynamics.aba(SYS, Q, BAD, V),
    "aba external": lambda: dynamics.aba(SYS, Q, V, V, BAD_EXTERNAL),
    "bias_forces qd": lambda: dynamics.bias_forces(SYS, Q, BAD),
    "gravity_forces q": lambda: dynamics.gravity_forces(SYS, BAD),
    "crba q": lambda: dynamics.crba(SYS, BAD),
    "kinetic_energy qd": lambda: dynamics.kinetic_energy(SYS, Q, BAD),
    "potential_energy q": lambda: dynamics.potential_energy(SYS, BAD),
    "momentum qd": lambda: dynamics.momentum(SYS, Q, BAD),
    "passive_forces qd": lambda: dynamics.passive_forces(SYS, Q, BAD),
    "actuator_forces ctrl": lambda: dynamics.actuator_forces(
        SYS, State(Q, V, V[:0]), BAD
    ),
    "actuator_forces act": lambda: dynamics.actuator_forces(SYS, State(Q, V, BAD), U),
}


@pytest.mark.parametrize("case", CALLS)
def test_wrong_shape(case):
    """It is named, with what was expected, before anything is compiled."""
    name = case.split()[1]
    # Where several arguments share a size, the type checker is the first to see it.
    with pytest.raises((ValueError, TypeError), match=rf"{name}\b.*\b(99|9)\b"):
        CALLS[case]()
