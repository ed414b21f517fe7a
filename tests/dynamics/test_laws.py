"""Laws of mechanics, which need no other simulator."""

import functools as ft

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import systems
from helpers import tree_allclose
from scipy.spatial.transform import Rotation

from eqsim import dynamics, kinematics
from eqsim.model import JointKind


# All kinds of joints are in "forest"; each robot takes long to compile.
each_system = lambda test: pytest.mark.quick_cases("forest")(
    pytest.mark.parametrize("name", systems.NAMES)(test)
)


@ft.lru_cache
def report(name):
    return systems.dynamic_report(systems.system(name), systems.inputs(name))


@each_system
def test_aba_inverts_the_equation_of_motion(name):
    out, x = report(name), systems.inputs(name)
    times = lambda v: np.einsum("kij,kj->ki", out["crba"], v)
    at_rest = out["rnea"] - times(x.qdd)
    assert tree_allclose(times(out["aba"]) + at_rest, np.asarray(x.tau))


@each_system
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
    assert tree_allclose(columns.swapaxes(1, 2), report(name)["crba"])


@each_system
def test_crba_is_symmetric_positive_definite(name):
    matrix = report(name)["crba"]
    assert np.array_equal(matrix, matrix.swapaxes(1, 2))
    assert np.all(np.linalg.eigvalsh(matrix) > 0)


@each_system
def test_kinetic_energy_is_half_of_the_quadratic_form(name):
    out, qd = report(name), systems.inputs(name).qd
    energy = 0.5 * np.einsum("ki,kij,kj->k", qd, out["crba"], qd)
    assert tree_allclose(out["kinetic"], energy)


@each_system
def test_at_rest(name):
    """State 0 does not move."""
    out = report(name)
    assert np.allclose(out["momentum"][0], 0) and out["kinetic"][0] == 0
    assert tree_allclose(out["bias"][0], out["gravity"][0])


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


def turned(sys, x, rotation):
    """The same robot in the same state, in a world that is turned; and the matrix that
    turns `qd`."""
    matrix = rotation.as_matrix()
    turn = lambda v: jnp.asarray(np.asarray(v) @ matrix.T)

    def turn_quat(quat):
        old = Rotation.from_quat(np.asarray(quat), scalar_first=True)
        return jnp.asarray((rotation * old).as_quat(scalar_first=True))

    roots = np.array([parent < 0 for parent in sys.links.parents])[:, None]
    q, ref, spring, velocity = (
        x.q,
        sys.joints.ref,
        sys.joints.spring_ref,
        np.eye(sys.nv),
    )
    starts = zip(sys.joints.kinds, sys.joints.q_starts, sys.joints.v_starts)
    for i, at in [(i, at) for kind, i, at in starts if kind is JointKind.FREE]:
        move = lambda q: (
            q.at[..., i : i + 3]
            .set(turn(q[..., i : i + 3]))
            .at[..., i + 3 : i + 7]
            .set(turn_quat(q[..., i + 3 : i + 7]))
        )
        q, ref, spring = move(q), move(ref), move(spring)
        velocity[at : at + 3, at : at + 3] = matrix
    links = sys.links
    where = lambda s: (
        *(s.links.pos, s.links.quat, s.gravity, s.wind),
        *(s.joints.ref, s.joints.spring_ref),
    )
    new = (
        jnp.where(roots, turn(links.pos), links.pos),
        jnp.where(roots, turn_quat(links.quat), links.quat),
        *(turn(sys.gravity), turn(sys.wind), ref, spring),
    )
    external = turn(x.external.reshape(-1, 3)).reshape(x.external.shape)
    along = lambda v: jnp.asarray(np.asarray(v) @ velocity.T)
    x = x._replace(q=q, qd=along(x.qd), qdd=along(x.qdd), tau=along(x.tau))
    return eqx.tree_at(where, sys, new), x._replace(external=external), velocity


def turned_inertias(rows, matrix):
    """Tensor, moment and mass of links, in axes that are turned."""
    places = np.array([[0, 3, 4], [3, 1, 5], [4, 5, 2]])
    tensor = matrix @ rows[..., places] @ matrix.T
    six = tensor[..., [0, 1, 2, 0, 0, 1], [0, 1, 2, 1, 2, 2]]
    parts = [six, rows[..., 6:9] @ matrix.T, rows[..., 9:]]
    return jnp.asarray(np.concatenate(parts, axis=-1))


@each_system
def test_the_world_can_be_turned(name):
    sys, x = systems.system(name), systems.inputs(name)
    rotation = Rotation.from_rotvec([0.5, -1.0, 2.0])
    sys, x, velocity = turned(sys, x, rotation)
    old, new = dict(report(name)), systems.dynamic_report(sys, x)
    old["crba"] = velocity @ old["crba"] @ velocity.T
    blocks = np.kron(np.eye(2), rotation.as_matrix())
    old["momentum"] = old["momentum"] @ blocks.T
    old["inertias"] = turned_inertias(np.asarray(old["inertias"]), rotation.as_matrix())
    old["velocities"] = old["velocities"] @ blocks.T
    for key in ("rnea", "bias", "gravity", "aba", "passive"):
        old[key] = old[key] @ velocity.T
    del old["actuators"], new["actuators"]
    assert tree_allclose(old, new, rtol=1e-8, atol=1e-9)
