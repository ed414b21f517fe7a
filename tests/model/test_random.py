import jax
import jax.random as jr
import mujoco
import numpy as np
import pytest
from helpers import tree_allclose
from hypothesis import given, strategies as st

from eqsim.io import write_mjcf
from eqsim.model import (
    Activation,
    ActivationState,
    Control,
    Gain,
    GeomKind,
    JointKind,
    Transmission,
    validate,
)
from eqsim.testing import random_configuration, random_system


seeds = st.integers(0, 100_000)


@given(seeds, st.integers(1, 12))
def test_systems_make_sense(seed, nlink):
    sys = random_system(seed, nlink, num_roots=1 + seed % nlink)
    validate(sys)
    assert sys.nlink == nlink and sys.nv > 0
    assert sys.links.parents.count(-1) == 1 + seed % nlink


@given(seeds)
def test_mass_matrix_is_well_conditioned(seed):
    sys = random_system(seed)
    m = mujoco.MjModel.from_xml_string(write_mjcf(sys))
    d = mujoco.MjData(m)
    q, qd = random_configuration(seed, sys)
    d.qpos[:], d.qvel[:] = q, qd
    mujoco.mj_forward(m, d)
    matrix = np.zeros((m.nv, m.nv))
    for row, unit in zip(matrix, np.eye(m.nv)):
        mujoco.mj_mulM(m, d, row, unit)
    values = np.linalg.eigvalsh(matrix)
    assert values[0] > 1e-5 and values[-1] / values[0] < 1e6


def test_the_seed_decides():
    same = random_system(3), random_system(3)
    assert tree_allclose(*same, rtol=0, atol=0)
    other = random_system(4)
    assert jax.tree.structure(same[0]) != jax.tree.structure(other)
    key = jr.key(7)
    assert tree_allclose(random_system(key), random_system(key), rtol=0, atol=0)
    assert tree_allclose(random_system(jr.PRNGKey(7)), random_system(key))


def test_everything_appears():
    systems = [random_system(seed, with_fluid=seed % 2 == 0) for seed in range(60)]
    for fact in (
        lambda s: len(set(s.joints.links)) < s.njoint,
        lambda s: set(range(s.nlink)) - set(s.joints.links),
        lambda s: any(s.links.translating) and any(s.joints.has_friction),
        lambda s: s.pairs.geoms and s.excludes,
        lambda s: s.na > 0 and not s.filter_parent,
        lambda s: Transmission.JOINT_IN_PARENT in s.actuators.transmissions,
        lambda s: np.any(s.links.mass == 0),
        lambda s: np.any(s.links.gravity_compensation > 0),
        lambda s: s.has_fluid and any(s.geoms.fluid),
        lambda s: any(s.links.mocap),
    ):
        assert any(map(fact, systems))
    limited = {
        k for s in systems for k, on in zip(s.joints.kinds, s.joints.limited) if on
    }
    assert limited == set(JointKind) - {JointKind.FREE}
    activations = {k for s in systems for k in s.actuators.activation}
    own = {Activation.MUSCLE, Activation.DC_MOTOR, Activation.PID}
    assert activations == set(Activation) - own
    rare = [random_system(seed, with_laws=True).actuators for seed in range(30)]
    assert {k for a in rare for k in a.activation} == set(Activation)
    # Servos of a plugin are not drawn: `tests/dynamics/test_actuators.py` has all settings.
    gains = set(Gain) - {Gain.DISCRETE_PID}
    assert {k for a in rare for k in a.gains} == gains
    assert {c for a in rare for row in a.inputs for c in row} == set(Control)
    states = set(ActivationState) - {ActivationState.STARTED}
    assert {x for a in rare for row in a.states for x in row} == states
    shapes = {k for s in systems for k in s.geoms.kinds}
    assert shapes == set(GeomKind) - {GeomKind.MESH, GeomKind.HFIELD}


def test_transmissions():
    systems = [
        random_system(
            seed, 3, with_tendons=seed % 2 == 0, with_laws=True, with_transmissions=True
        )
        for seed in range(20)
    ]
    actuators = [sys.actuators for sys in systems]
    assert {k for a in actuators for k in a.transmissions} == set(Transmission)
    assert any(a.crank_length is not None for a in actuators)
    assert any(second >= 0 for a in actuators for _, second in a.targets)
    for sys in systems:
        validate(sys)


def test_impossible_requests():
    with pytest.raises(ValueError, match="1 <= num_roots <= nlink"):
        random_system(0, nlink=2, num_roots=3)
    with pytest.raises(ValueError, match="at least one kind"):
        random_system(0, joints=())


@given(seeds)
def test_configurations(seed):
    sys = random_system(seed)
    q, qd = random_configuration(seed, sys)
    assert q.shape == (sys.nq,) and qd.shape == (sys.nv,)
    for kind, start in zip(sys.joints.kinds, sys.joints.q_starts):
        if kind.nq > 1:
            quat = q[start + kind.nq - 4 : start + kind.nq]
            assert np.isclose(np.linalg.norm(quat), 1)
    rest, still = random_configuration(seed, sys, scale=0.0)
    assert np.allclose(rest, sys.joints.ref) and not np.any(still)
