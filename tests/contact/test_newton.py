"""The solver finds the minimum, on full steps and with a line search, in hard cases too."""

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import mujoco
import numpy as np
import pytest

from eqsim import load_mjcf
from eqsim.contact import _newton
from eqsim.contact._active import active_set, forces, residuals
from eqsim.contact._structure import structure
from eqsim.pipelines._forward import derive, forward


# Strong friction, the same contact twice, a large margin, a light link under a body that
# is 10,000 times as heavy, dry friction and a limit.
HARD = """
<mujoco>
  <option timestep="0.004"/>
  <default><geom friction="5"/></default>
  <worldbody>
    <geom type="plane" size="1 1 1"/>
    <body pos="0 0 .1"><freejoint/>
      <geom type="sphere" size=".1" mass=".01"/>
      <geom type="sphere" size=".1" mass=".001" pos="0 0 0.0001"/>
      <geom type="capsule" size=".03 .2" pos="0 0 -.05" euler="85 0 0" mass=".001"
        margin=".05" friction=".3"/>
      {}
    </body>
    {}
  </worldbody>
</mujoco>"""
HINGED = """<body><joint axis="0 1 0" range="-20 20" limited="true" {}/>
  <geom type="sphere" size=".09" pos=".15 0 0" mass="{}"/></body>"""
HEAVY = """<body pos="0 0 .29"><joint type="slide" axis="0 0 1"/><joint axis="1 0 0"/>
  <geom type="sphere" size=".1" mass="100"/></body>"""
MODELS = {
    # Contacts with the world only: the path without a dense matrix.
    "anchored": HARD.format(HINGED.format('frictionloss=".05"', 100), ""),
    # A heavy body rests on a light one.
    "moving": HARD.format("", HEAVY),
}
COUNT = 32


def states(model):
    """Around the reference: slow and fast, shallow and deep."""
    rng, out = np.random.default_rng(0), []
    for k in range(COUNT):
        data = mujoco.MjData(model)
        scale = (0.01, 0.03, 0.1, 0.3)[k % 4]
        mujoco.mj_integratePos(model, data.qpos, scale * rng.normal(size=model.nv), 1.0)
        data.qvel[:] = 10 * scale * rng.normal(size=model.nv)
        mujoco.mj_forward(model, data)
        out.append(data)
    return out


def solve(sys, q, qd):
    """The problem, its solution, and by how much it fails to be one; states along the
    last axis."""
    last = jtu.tree_map(lambda x: x[..., None], sys)
    none = jnp.zeros((0, q.shape[1]))
    now = forward(last, derive(last, jnp.zeros(1)), q, qd, none, none, None)
    facts, problem = structure(last), now.problem
    qdd, active = now.solution
    x = residuals(
        facts, problem.rows, _newton.node_motion(facts, problem.kin, qdd), qdd
    )
    true = forces(problem.rows, active_set(problem.rows, x), x)
    found = forces(problem.rows, active, x)
    return problem, qdd, *gaps(facts, problem, now.solution), true, found


def gaps(facts, problem, solution):
    """What is left of the forces, and what they are without a solution."""
    qdd, active = solution
    none = jtu.tree_map(jnp.zeros_like, active)
    return (
        _newton.residual(facts, problem, qdd, active),
        _newton.residual(facts, problem, 0 * qdd, none),
    )


def again(sys, problem):
    """The solution of a problem that is set up; traced anew in each call."""
    facts = structure(sys)

    @jax.jit
    def run(problem):
        solution = _newton.constrained(facts, problem)
        return solution.qdd, *gaps(facts, problem, solution)

    return run(problem)


@pytest.fixture(scope="module", params=MODELS)
def case(request):
    model = mujoco.MjModel.from_xml_string(MODELS[request.param])
    model.opt.tolerance, model.opt.iterations = 0.0, 500
    model.opt.ls_tolerance, model.opt.ls_iterations = 1e-12, 500
    data = states(model)
    q = jnp.asarray(np.stack([d.qpos for d in data], axis=1))
    qd = jnp.asarray(np.stack([d.qvel for d in data], axis=1))
    return data, load_mjcf(MODELS[request.param]), q, qd


@pytest.fixture(scope="module")
def solved(case):
    _, sys, q, qd = case
    return jtu.tree_map(np.asarray, jax.jit(solve)(sys, q, qd))


def test_is_optimal(case, solved):
    """Forces balance, and are those of the active set at the solution."""
    data, sys, _, _ = case
    _, qdd, gap, size, true, found = solved
    assert qdd.shape == (sys.nv, COUNT) and np.all(np.isfinite(qdd))
    strongest = np.max(np.abs(size), axis=0)
    rows = [np.abs(x) for x in jtu.tree_leaves(true) if x.size]
    strongest = np.maximum(strongest, np.max([np.max(x, axis=0) for x in rows], axis=0))
    assert np.max(np.abs(gap) / strongest) < 1e-9
    for a, b in zip(jtu.tree_leaves(true), jtu.tree_leaves(found)):
        assert np.all(np.abs(a - b) <= 1e-9 * strongest)
    assert np.mean([d.ncon for d in data]) > 2


def test_is_that_of_mujoco(case, solved):
    data, _, _, _ = case
    theirs = np.stack([d.qacc for d in data], axis=1)
    scale = np.maximum(1.0, np.max(np.abs(theirs), axis=0))
    assert np.max(np.abs(solved[1] - theirs) / scale) < 1e-6


def test_line_search(case, solved, monkeypatch):
    """It finds the same minimum, from the point that the first full step has found."""
    monkeypatch.setattr(_newton, "_FULL_STEPS", 1)
    problem, expected = solved[:2]
    qdd, _, _ = again(case[1], problem)
    scale = np.maximum(1.0, np.max(np.abs(expected), axis=0))
    assert np.max(np.abs(qdd - expected) / scale) < 1e-8


def test_line_search_is_needed(case, solved, monkeypatch):
    """Or the test above would say nothing: one full step is not enough here."""
    monkeypatch.setattr(_newton, "_FULL_STEPS", 1)
    monkeypatch.setattr(_newton, "_SEARCHED_STEPS", 0)
    _, gap, size = again(case[1], solved[0])
    assert np.max(np.abs(gap) / np.max(np.abs(size), axis=0)) > 1e-3
