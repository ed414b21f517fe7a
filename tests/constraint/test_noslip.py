"""Friction without slip, beside MuJoCo's noslip solver."""

import equinox as eqx
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from helpers import tree_allclose
from trajectories import converged, expected, follow

from eqsim import Generalized, load_mjcf, State
from eqsim.collision.plan import split_plan
from eqsim.io import write_mjcf
from eqsim.testing.comparisons import compare, Function


# A ball on a slope, one that slides, and joints with dry friction, of which some hold, with
# a limit and a coupling.
SLOPE = """
<mujoco>
  <option timestep=".004" cone="{cone}" noslip_iterations="5" impratio="2"/>
  <default><geom condim="{condim}" friction=".7 .05 .01" solimp=".8 .95 .01 .5 2"/></default>
  <worldbody><geom type="plane" size="2 2 .1" euler="0 12 0"
      friction=".75 .06 .02"/>
    <body pos="0 0 .118"><freejoint/><geom size=".12" mass="1"/></body>
    <body pos=".5 .5 -.009"><freejoint/><geom size=".1" mass=".5" friction=".1 .01 .01"/>
      {more}</body>
    <body pos="0 1 1"><joint name="h" axis="0 1 0" frictionloss="2" range="-30 20"
        limited="true"/>
      <geom type="capsule" size=".05 .1" pos=".1 0 0" contype="0" conaffinity="0"/>
      <body pos=".3 0 0"><joint name="k" axis="0 1 .1" frictionloss=".3" damping=".1"/>
        <geom type="capsule" size=".05 .1" pos=".1 0 0" contype="0" conaffinity="0"/>
        <body pos=".2 0 0"><joint name="l" axis="0 1 0"/>
          <geom size=".05" pos=".1 0 0" contype="0" conaffinity="0"/></body>
      </body></body>
  </worldbody>
  <tendon><fixed name="t" frictionloss=".2" armature=".01"><joint joint="h" coef="1"/>
    <joint joint="k" coef="-.5"/></fixed></tendon>
  <equality><joint joint1="l" joint2="k" polycoef="0 .5 0 0 0"/></equality>
</mujoco>"""
# A second link, which is touched by a third one: contacts couple branches.
RIDERS = """
      <body pos="0 0 .2"><joint type="ball" frictionloss=".02"/><geom size=".06"
        friction=".6 .04 .01"/></body>
    </body><body pos=".5 .42 .3"><freejoint/><geom size=".07" mass=".2"/>"""


def slope(cone="pyramidal", condim=3, more=""):
    return SLOPE.format(cone=cone, condim=condim, more=more)


# A ball and a joint.
FEW = """
<mujoco>
  <option timestep=".004" cone="elliptic" noslip_iterations="5" impratio="2"/>
  <worldbody><geom type="plane" size="2 2 .1" euler="0 12 0" friction=".75 .06 .02"/>
    <body pos="0 0 .118"><freejoint/>
      <geom size=".12" mass="1" condim="4" friction=".7 .05 .01"
        solimp=".8 .95 .01 .5 2"/></body>
    <body pos="0 1 1"><joint axis="0 1 0" frictionloss=".3"/>
      <geom size=".05" pos=".1 0 0" contype="0" conaffinity="0"/></body>
  </worldbody>
</mujoco>"""
CASES = {
    "few": FEW,
    "pyramids": slope(),
    "elliptic": slope("elliptic", 4),
    "listed": slope("elliptic", 3, RIDERS),
    "listed, pyramids": slope(condim=6, more=RIDERS),
}
NONE = jnp.zeros(0)


def states(text, count, skip=2):
    """Along a trajectory of MuJoCo, whose sweeps converge."""
    model = converged(mujoco.MjModel.from_xml_string(text))
    model.opt.noslip_iterations, model.opt.noslip_tolerance = 3000, 0.0
    data, rng, found = mujoco.MjData(model), np.random.default_rng(0), []
    data.qvel[:] = 0.1 * rng.normal(size=model.nv)
    for _ in range(count):
        for _ in range(skip):
            mujoco.mj_step(model, data)
        found.append(mujoco.MjData(model))
        found[-1].qpos[:], found[-1].qvel[:] = data.qpos, data.qvel
    return model, found


@pytest.mark.parametrize("name", CASES)
@pytest.mark.quick_cases("few", "listed, pyramids")
def test_accelerations(name):
    text = CASES[name]
    sys, (model, data) = load_mjcf(text), states(text, 20)
    plan, pairs = split_plan(sys)
    assert pairs is not None if "listed" in name else plan.size
    q, qd = (
        jnp.asarray(np.stack([getattr(d, x) for d in data])) for x in ("qpos", "qvel")
    )
    solved = jax.jit(
        jax.vmap(lambda q, qd: Generalized().solve(sys, State(q, qd, NONE), NONE))
    )(q, qd)
    assert np.all(solved.converged)
    changes = 0.0
    for k, d in enumerate(data):
        model.opt.noslip_iterations = 0
        mujoco.mj_forward(model, d)
        slipping = d.qacc.copy()
        model.opt.noslip_iterations = 3000
        mujoco.mj_forward(model, d)
        scale = max(1.0, np.max(np.abs(d.qacc)))
        error = np.abs(np.asarray(solved.qdd[k]) - d.qacc)
        assert np.max(error) < 1e-6 * scale, (k, error)
        changes = max(changes, np.max(np.abs(slipping - d.qacc)) / scale)
        total = np.asarray(solved.constraint_force[k])
        np.testing.assert_allclose(total, d.qfrc_constraint, rtol=1e-5, atol=1e-5)
        force, pushes = np.zeros(6), []
        for number in range(d.ncon):
            mujoco.mj_contactForce(model, d, number, force)
            pushes.append(np.linalg.norm(force[:3]))
        ours = np.linalg.norm(np.asarray(solved.contacts.force[k]), axis=-1)
        ours = np.sort(ours)[::-1][: d.ncon]
        np.testing.assert_allclose(ours, np.sort(pushes)[::-1], rtol=1e-5, atol=1e-5)
    assert changes > 1e-3


@pytest.mark.parametrize("name", CASES)
@pytest.mark.quick_cases("few")
def test_gradients(name):
    text = CASES[name]
    sys, (_, data) = load_mjcf(text), states(text, 12)
    pipeline = Generalized()
    start = pipeline.init(sys, jnp.asarray(data[-1].qpos), jnp.asarray(data[-1].qvel))

    def speed(q, qd, mass, friction, loss, impratio):
        where = lambda s: (
            s.links.mass,
            s.geoms.friction,
            s.joints.frictionloss,
            s.impratio,
        )
        robot = eqx.tree_at(where, sys, (mass, friction, loss, impratio))
        state = eqx.tree_at(lambda s: (s.q, s.qd), start, (q, qd))
        return pipeline.step(robot, state, NONE).qd

    given = sys.links.mass, sys.geoms.friction, sys.joints.frictionloss, sys.impratio
    function = Function.of(speed, start.q, start.qd, *given)
    # Friction is stiff, so differences of accelerations are rounded to 1e-8.
    by_state = dict(eps=2e-6, rtol=1e-4, atol=1e-5)
    sizes = [compare(function, f"[{k}]", **by_state) for k in range(2)]
    by_robot = dict(eps=1e-4, atol=1e-5)
    sizes += [compare(function, f"[{k}]", **by_robot) for k in range(2, 6)]
    assert all(len(size) == 1 and min(size.values()) > 0.0 for size in sizes)


BOX = """
<mujoco><option cone="{}" {}/><worldbody>
  <geom type="plane" size="2 2 .1" euler="0 15 0"/>
  <body pos="0 0 .1035" euler="0 15 0"><freejoint/><geom type="box" size=".1 .1 .1"/></body>
</worldbody></mujoco>"""


@pytest.mark.parametrize("cone", ("pyramidal", "elliptic"))
@pytest.mark.quick_cases("elliptic")
def test_a_box_does_not_creep(cone):
    slips = mujoco.MjModel.from_xml_string(BOX.format(cone, ""))
    data = [mujoco.MjData(slips)]
    creeping = expected(slips, data, 300)[0, -1, -6:]
    sys = load_mjcf(BOX.format(cone, 'noslip_iterations="3"'))
    resting = follow(sys, [mujoco.MjData(slips)], 300)[0, -1, -6:]
    assert np.linalg.norm(resting) < 1e-6 < 1e-4 < np.linalg.norm(creeping)


def test_files():
    """The number of sweeps is kept; a note says that only its sign counts."""
    sys = load_mjcf(CASES["pyramids"])
    assert sys.noslip_iterations == 5 and "without slip" in str(sys)
    assert any("noslip_iterations" in note for note in sys.notes)
    again = load_mjcf(write_mjcf(sys))
    assert tree_allclose(sys.without_pattern(), again.without_pattern(), atol=1e-12)
