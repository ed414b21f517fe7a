"""Contacts that pull, beside MuJoCo C: also within a gap, and by actuators."""

import re

import equinox as eqx
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from helpers import check_gradients, tree_allclose
from trajectories import converged, expected, follow

from eqsim import Generalized, load_mjcf, Positional, Spring, State
from eqsim.collision.plan import split_plan
from eqsim.io import write_mjcf


# Under a ceiling: a box that hangs, one within the gap, one that slips, and one that falls.
# Some contacts have the adhesion of one shape, others of both or of a pair.
CEILING = """
<mujoco>
  <option timestep=".004" cone="{cone}"/>
  <default><geom condim="{condim}" solimp=".8 .95 .01 .5 2" mass=".4"/></default>
  <worldbody>
    <geom name="ceiling" type="box" size="3 3 .1" pos="0 0 .6" adhesion="3" gap=".01"
      friction=".8"/>
    <body pos="0 0 .4005"><freejoint/><geom type="{kind}" size=".08 .09 .1"/></body>
    <body pos=".6 0 .394"><freejoint/><geom size=".1" adhesion="2" gap=".004"/></body>
    <body pos="1.2 0 .4004"><freejoint/><geom size=".1" adhesion="2.5" priority="1"/></body>
    <body pos="1.8 0 .4002"><freejoint/><geom name="own" size=".1"/></body>
    <body pos="-.6 0 .37"><freejoint/><geom size=".1" margin=".005"/></body>
    {more}
  </worldbody>
  <contact><pair geom1="ceiling" geom2="own" adhesion="3" gap=".012" margin=".002"
    condim="{condim}"/></contact>
</mujoco>"""
# Two links that stick to each other, on a chain.
STUCK = """
    <body pos="-1.2 0 .2"><joint axis="0 1 0"/><geom type="capsule" size=".05 .1"/>
      <body pos=".11 0 0"><joint axis="0 1 0"/><geom size=".02" pos=".1 0 0" contype="0"
          conaffinity="0"/>
        <body pos="0 0 .05"><joint type="slide" axis="1 0 .1"/><joint axis="0 0 1"/>
          <geom name="stuck" size=".055" adhesion="4" gap=".02" friction=".7"/>
        </body></body></body>"""


def ceiling(cone="pyramidal", condim=3, kind="sphere", more=""):
    return CEILING.format(cone=cone, condim=condim, kind=kind, more=more)


CTRL = jnp.zeros(0)
# Three bodies: one hangs, one is within the gap, one has the adhesion of a pair.
FEW = re.sub('<body pos="(1.2|-.6) .*</body>', "", ceiling())
CASES = {
    "pyramids": ceiling(),
    "elliptic": ceiling("elliptic", 6),
    "without friction": ceiling(condim=1),
    "listed": ceiling("elliptic", 4, "box", STUCK),
    "listed, pyramids": ceiling(condim=6, kind="capsule", more=STUCK),
}


def states(model, count, scale=0.3):
    """Along a trajectory, pushed."""
    data, rng, found = mujoco.MjData(model), np.random.default_rng(0), []
    data.qvel[:] = scale * rng.normal(size=model.nv)
    for _ in range(count):
        mujoco.mj_step(model, data)
        found.append(mujoco.MjData(model))
        found[-1].qpos[:], found[-1].qvel[:] = data.qpos, data.qvel
    return found


@pytest.mark.parametrize("name", CASES)
@pytest.mark.quick_cases("pyramids", "without friction", "listed")
def test_steps(name):
    """Single steps, in contact and within the gap; and the forces of contacts."""
    text = CASES[name]
    sys, model = load_mjcf(text), converged(mujoco.MjModel.from_xml_string(text))
    assert not sys.notes
    data = states(model, 25)
    solve = jax.jit(jax.vmap(lambda *x: Generalized().solve(sys, State(*x), CTRL)))
    arrays = (np.stack([getattr(d, x) for d in data]) for x in ("qpos", "qvel", "act"))
    solved = solve(*map(jnp.asarray, arrays))
    within = beyond = 0
    for k, d in enumerate(data):
        mujoco.mj_forward(model, d)
        scale = max(1.0, np.max(np.abs(d.qacc)))
        assert np.max(np.abs(np.asarray(solved.qdd[k]) - d.qacc)) < 1e-9 * scale
        force, total = np.zeros(6), []
        for number, contact in enumerate(d.contact):
            mujoco.mj_contactForce(model, d, number, force)
            if contact.efc_address >= 0:
                total.append(force[0])
                within += contact.dist < contact.includemargin
                beyond += contact.dist >= contact.includemargin
        frame = solved.contacts.frame[k][:, 0]
        ours = np.sum(np.asarray(solved.contacts.force[k]) * frame, axis=-1)
        ours = np.sort(ours[np.abs(ours) > 1e-10])
        theirs = np.sort([x for x in total if abs(x) > 1e-10])
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-8)
        assert theirs[0] < 0.0
    assert within > 2 and beyond > 5, (within, beyond)


@pytest.mark.slow  # `test_steps` compares single steps.
def test_trajectory():
    text = CASES["elliptic"]
    sys, model = load_mjcf(text), converged(mujoco.MjModel.from_xml_string(text))
    start = states(model, 1)
    ours, theirs = follow(sys, start, 30), expected(model, start, 30)
    np.testing.assert_allclose(ours, theirs, rtol=1e-8, atol=1e-8)


def test_cases_are_computed_both_ways():
    for name, text in CASES.items():
        plan, pairs = split_plan(load_mjcf(text))
        assert pairs is not None if "listed" in name else plan.size


def changed(sys, adhesion, gap, pull, margin, solimp):
    where = lambda s: (
        s.geoms.adhesion,
        s.geoms.gap,
        s.pairs.adhesion,
        s.geoms.margin,
        s.geoms.solimp,
    )
    return eqx.tree_at(where, sys, (adhesion, gap, pull, margin, solimp))


@pytest.mark.parametrize("width", (None, 1e-3))
@pytest.mark.parametrize("name", ("few", "pyramids", "listed"))
@pytest.mark.quick_cases("few-0.001")
def test_gradients(name, width):
    text = FEW if name == "few" else CASES[name]
    sys, model = load_mjcf(text), mujoco.MjModel.from_xml_string(text)
    data, pipeline = states(model, 9)[-1], Generalized(smoothing=width)
    start = pipeline.init(sys, jnp.asarray(data.qpos), jnp.asarray(data.qvel))

    def speed(q, *parameters):
        state = eqx.tree_at(lambda s: s.q, start, q)
        return pipeline.step(changed(sys, *parameters), state, CTRL).qd

    geoms, pull = sys.geoms, sys.pairs.adhesion
    given = geoms.adhesion, geoms.gap, pull, geoms.margin, geoms.solimp
    sizes = check_gradients(eqx.filter_jit(speed), start.q, *given)
    slopes = dict(
        zip(("q", "adhesion", "gap", "pair", "margin", "solimp"), sizes.values())
    )
    assert slopes["adhesion"] > 1e-6 and slopes["pair"] > 1e-6, slopes
    assert (slopes["gap"] > 0.0) == (width is not None)


def test_smoothing_tends_to_mujoco():
    sys, model = load_mjcf(FEW), mujoco.MjModel.from_xml_string(FEW)
    data = states(model, 9)[-1]
    state = Generalized().init(sys, jnp.asarray(data.qpos), jnp.asarray(data.qvel))
    sharp = np.asarray(Generalized().step(sys, state, CTRL).qd)
    speeds = jax.vmap(lambda w: Generalized(smoothing=w).step(sys, state, CTRL).qd)
    smooth = np.asarray(jax.jit(speeds)(jnp.array([1e-4, 1e-6, 1e-9])))
    gaps = np.max(np.abs(smooth - sharp), axis=1)
    assert gaps[2] < 1e-6 and gaps[1] < gaps[0]


GRIPPER = """
<mujoco><option timestep=".004"/>
<worldbody><geom type="plane" size="1 1 1" gap=".02" margin=".001"/>
  <body name="foot" pos="0 0 .11"><freejoint/><geom size=".1"/>
    <geom size=".1" pos=".3 0 .015" adhesion="{}"/>
    <body name="hand" pos=".5 0 0"><joint/><geom size=".1" gap=".01"/></body></body>
  </worldbody>
<actuator><adhesion body="foot" ctrlrange="0 1" gain="5"/>
  <adhesion body="hand" ctrlrange="0 1" gain="20"/></actuator></mujoco>"""


@pytest.mark.parametrize("adhesion", (0, 3))
def test_actuators_act_within_the_gap(adhesion):
    text = GRIPPER.format(adhesion)
    sys, model = load_mjcf(text), converged(mujoco.MjModel.from_xml_string(text))
    data, step = mujoco.MjData(model), eqx.filter_jit(Generalized().step)
    data.ctrl[:], state = 1.0, Generalized().init(sys)
    active = 0
    for _ in range(20):
        mujoco.mj_step(model, data)
        state, active = step(sys, state, jnp.ones(2)), active + len(data.contact)
    assert active > 20 and np.any(data.qfrc_actuator)
    assert tree_allclose(state.q, jnp.asarray(data.qpos), rtol=1e-9, atol=1e-9)
    assert tree_allclose(state.qd, jnp.asarray(data.qvel), rtol=1e-8, atol=1e-8)


def test_round_trip():
    sys = load_mjcf(CASES["listed"])
    again = load_mjcf(write_mjcf(sys))
    assert tree_allclose(sys.without_pattern(), again.without_pattern(), atol=1e-12)


def test_gaps_without_adhesion_are_noted():
    text = re.sub(' adhesion="[^"]*"', "", CASES["listed"])
    sys = load_mjcf(text)
    assert sys.geoms.gap is None and sys.pairs.gap is None and len(sys.notes) == 2


@pytest.mark.parametrize("pipeline", (Spring(), Positional()))
def test_maximal_pipelines_refuse_it(pipeline):
    with pytest.raises(ValueError, match="Contacts adhere"):
        pipeline.init(load_mjcf(CASES["pyramids"]))
