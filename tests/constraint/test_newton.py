"""The solver finds the minimum, on full steps and with a line search, in hard cases too."""

from collections import OrderedDict

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import mujoco
import numpy as np
import pytest

from eqsim import Generalized, load_mjcf, State
from eqsim.constraint import ALL, Newton, newton
from eqsim.model import tree
from eqsim.pipelines.forward_dynamics import (
    derive,
    forward_dynamics,
    Prepared,
    Settings,
    StepInputs,
)


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
ELLIPTIC = HARD.replace("<option ", '<option cone="elliptic" impratio="3" ')
ROLLING = ELLIPTIC.replace("friction=", 'condim="6" friction=')
HINGE = HINGED.format('frictionloss=".05"', 100)
MODELS = {
    # Contacts with the world only: the path without a dense matrix.
    "anchored": HARD.format(HINGE, ""),
    # A heavy body rests on a light one.
    "moving": HARD.format("", HEAVY),
    "anchored, elliptic": ELLIPTIC.format(HINGE, ""),
    "moving, elliptic": ELLIPTIC.format("", HEAVY),
    "anchored, elliptic, rolling": ROLLING.format(HINGE, ""),
    "moving, elliptic, rolling": ROLLING.format("", HEAVY),
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
    settings = Settings(ALL, Newton(), jnp.zeros(1))
    prepared = Prepared(last, settings, derive(last, settings))
    now = forward_dynamics(prepared, StepInputs(q, qd, none, none, None))
    nodes, problem = tree(last), now.problem
    qdd, pieces, converged = now.solution
    motion = newton.node_motion(nodes, problem.kin, qdd)
    every = problem.every_row
    x = [rows.residuals(motion, qdd) for rows in every]
    true = [rows.forces(rows.pieces(y), y) for rows, y in zip(every, x)]
    forces = newton.row_forces(problem, motion, qdd, pieces)
    found = [force for own in forces.values() for force in own]
    return problem, qdd, *gaps(nodes, problem, now.solution), true, found, converged


def gaps(nodes, problem, solution):
    """What is left of the forces, and what they are without a solution."""
    free = problem._replace(rows=OrderedDict())
    return (
        newton.residual(nodes, problem, solution.qdd, solution.pieces),
        newton.residual(nodes, free, 0 * solution.qdd, OrderedDict()),
    )


def again(sys, problem, settings):
    """The solution of a problem that is set up, with other settings."""
    nodes = tree(sys)

    @jax.jit
    def run(problem):
        solution = newton.constrained(nodes, problem, settings)
        return solution.qdd, *gaps(nodes, problem, solution), solution.converged

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


@pytest.mark.quick_cases("anchored")
def test_is_optimal(case, solved):
    """Forces balance, and are those of the pieces at the solution."""
    data, sys, _, _ = case
    _, qdd, gap, size, true, found, converged = solved
    assert qdd.shape == (sys.nv, COUNT) and np.all(np.isfinite(qdd))
    assert np.all(converged)
    strongest = np.max(np.abs(size), axis=0)
    rows = [np.abs(x) for x in jtu.tree_leaves(true)]
    strongest = np.maximum(strongest, np.max([np.max(x, axis=0) for x in rows], axis=0))
    assert np.max(np.abs(gap) / strongest) < 1e-9
    for a, b in zip(jtu.tree_leaves(true), jtu.tree_leaves(found)):
        assert np.all(np.abs(a - b) <= 1e-9 * strongest)
    assert np.mean([d.ncon for d in data]) > 2


@pytest.mark.quick_cases("anchored")
def test_is_that_of_mujoco(case, solved):
    data, _, _, _ = case
    theirs = np.stack([d.qacc for d in data], axis=1)
    scale = np.maximum(1.0, np.max(np.abs(theirs), axis=0))
    assert np.max(np.abs(solved[1] - theirs) / scale) < 1e-6


@pytest.mark.quick_cases("anchored")
def test_line_search(case, solved):
    """It finds the same minimum, from the point that the first full step has found."""
    problem, expected = solved[:2]
    qdd, _, _, converged = again(case[1], problem, Newton(max_full_steps=1))
    scale = np.maximum(1.0, np.max(np.abs(expected), axis=0))
    assert np.max(np.abs(qdd - expected) / scale) < 1e-7
    assert np.all(converged)


@pytest.mark.quick_cases("anchored")
def test_slopes_on_a_line(case, solved):
    """Those of the cost: what is left of the forces, along the line."""
    nodes, problem = tree(case[1]), solved[0]

    @jax.jit
    def slopes(problem, share):
        rows = tuple(each.for_solver() for each in problem.every_row)
        now = newton._first_iterate(problem, rows)
        end, _ = newton._minimum(nodes, problem, rows, now)
        search = newton._search(nodes, problem, rows, now, end)
        qdd = now.qdd + share[None] * (end - now.qdd)
        motion = newton.node_motion(nodes, problem.kin, qdd)
        pieces = OrderedDict(
            (kind, tuple(each.pieces(each.residuals(motion, qdd)) for each in own))
            for kind, own in problem.rows.items()
        )
        left = newton.residual(nodes, problem, qdd, pieces)
        return newton._slope(rows, search, share), jnp.sum(-left * end, axis=0)

    size = np.abs(slopes(problem, jnp.zeros(COUNT))[1])
    for share in (0.0, 0.01, 0.3, 1.0):
        found, expected = slopes(problem, jnp.full(COUNT, share))
        assert np.max(np.abs(found - expected) / (size + np.abs(expected))) < 1e-8


@pytest.mark.quick_cases("anchored")
def test_line_search_is_needed(case, solved):
    """Or the test above would say nothing: one full step is not enough here, and the
    solver says so."""
    settings = Newton(max_full_steps=1, max_searched_steps=0)
    _, gap, size, converged = again(case[1], solved[0], settings)
    left = np.max(np.abs(gap) / np.max(np.abs(size), axis=0), axis=0)
    assert np.max(left) > 1e-3 and not np.any(converged[left > 1e-3])


@pytest.mark.parametrize(
    "settings, message",
    [
        (dict(max_full_steps=0), "an integer of at least 1, or None"),
        (dict(max_searched_steps=-1), "an integer of at least 0"),
        (dict(tolerance=0.0), "must be positive or None, got 0.0"),
    ],
)
def test_refuses_settings(settings, message):
    with pytest.raises(ValueError, match=message):
        Newton(**settings)


RAIL = """
<mujoco>
  <option timestep="0.002" cone="elliptic" iterations="1000" tolerance="0"/>
  <worldbody>
    <geom name="floor" type="plane" size="3 3 1"/>
    <body pos="0 0 .095"><freejoint/>
      <geom name="skate" type="box" size=".2 .1 .1" mass="1"/></body>
  </worldbody>
  <contact><pair geom1="floor" geom2="skate" friction="{} 1 .005 .0001 .0001"/></contact>
</mujoco>"""


@pytest.mark.parametrize("friction", (0.0, 1e-4))
@pytest.mark.quick_cases("0.0")
def test_friction_far_below_that_of_another_direction(friction):
    """Stiffnesses of the cone differ by up to 1e10. MuJoCo raises 0 to 1e-5."""
    text = RAIL.format(friction)
    model = mujoco.MjModel.from_xml_string(text)
    data, rng, found = mujoco.MjData(model), np.random.default_rng(0), []
    for _ in range(40):
        mujoco.mj_resetData(model, data)
        data.qpos[2] += rng.uniform(-0.03, 0.006)
        data.qpos[3:] += 0.03 * rng.normal(size=4)
        data.qpos[3:] /= np.linalg.norm(data.qpos[3:])
        data.qvel[:] = rng.normal(size=6) * 10.0 ** rng.uniform(-3.0, 0.5)
        mujoco.mj_forward(model, data)
        found.append((data.qpos.copy(), data.qvel.copy(), data.qacc.copy()))
    sys, pipeline, (q, qd, qacc) = (
        load_mjcf(text),
        Generalized(),
        map(np.array, zip(*found)),
    )

    @jax.jit
    @jax.vmap
    def solve(q, qd):
        return pipeline.solve(sys, State(q, qd, jnp.zeros(0)), jnp.zeros(0))

    solved = solve(jnp.asarray(q), jnp.asarray(qd))
    assert np.all(solved.converged)
    largest = 1.0 + np.max(np.abs(qacc), axis=1, keepdims=True)
    assert np.max(np.abs(solved.qdd - qacc) / largest) < 1e-7
