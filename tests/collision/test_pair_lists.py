"""Lists of near pairs and of contacts: the same contacts as from all pairs, and as MuJoCo has."""

import functools as ft

import jax
import jax.numpy as jnp
import jax.random as jr
import mujoco
import numpy as np
import pytest

import eqsim
from eqsim._batching import batch_last, full_batch
from eqsim._primitive import rows_together
from eqsim.collision import contact_plan, in_contact
from eqsim.collision.detection import split_frames
from eqsim.collision.pair_lists import list_contacts
from eqsim.collision.plan import split_plan
from eqsim.kinematics.link_motion import frames, kinematics
from eqsim.model import tree
from eqsim.testing import check_kernels


SCENE = """
<mujoco>
  <asset><mesh name="m" vertex="{mesh}"/></asset>
  <worldbody>
    <geom name="floor" type="plane" size="5 5 1"/>
    <geom type="box" size=".3 .3 .1" pos="0 0 .1"/>
    {bodies}
  </worldbody>
  <contact><pair geom1="g0" geom2="g3" margin=".2" condim="1"/></contact>
</mujoco>"""
SHAPES = (
    'type="sphere" size=".12"',
    'type="box" size=".1 .08 .12" margin=".02"',
    'type="mesh" mesh="m"',
    'type="box" size=".1 .1 .1" condim="4"',
)


def scene():
    rng = np.random.default_rng(0)
    points = rng.normal(size=(40, 3))
    points *= 0.12 / np.linalg.norm(points, axis=1, keepdims=True)
    bodies = "".join(
        f'<body><freejoint/><geom name="g{k}" {shape}/></body>'
        for k, shape in enumerate(SHAPES)
    )
    mesh = " ".join(f"{x:.5f}" for x in points.ravel())
    return SCENE.format(mesh=mesh, bodies=bodies)


def poses(model, count):
    """Return poses in which some shapes touch, and some do not."""
    rng, found = np.random.default_rng(1), []
    for k in range(count):
        data = mujoco.MjData(model)
        data.qpos = rng.normal(size=model.nq)
        for free in data.qpos.reshape(-1, 7):
            free[:3] = rng.uniform(-0.3, 0.3, 3) * (1 + k % 3) + [0, 0, 0.3]
            free[3:] /= np.linalg.norm(free[3:])
        found.append(data.qpos.copy())
    return np.array(found)


@ft.lru_cache(maxsize=1)
def robot():
    model = mujoco.MjModel.from_xml_string(scene())
    model.opt.ccd_tolerance, model.opt.ccd_iterations = 1e-12, 500
    return eqsim.load_mjcf(scene()), model, poses(model, 24)


def _listed_fn(sys, q):
    (q,) = full_batch((q,), sys)
    nodes, (_, plan) = tree(sys), split_plan(sys)
    fixed = frames(sys, nodes)
    kin = kinematics(sys, nodes, fixed, q)
    listing = list_contacts(sys, plan, split_frames(sys, fixed).listed, kin, None)
    return {
        condim: (own.count[None], own.pair, own.dist)
        for condim, own in listing.contacts.items()
    }


listed = batch_last(_listed_fn)


def distances(found, plan):
    """Return sorted distances of the contacts of each pair of shapes, for each pose."""
    each = []
    for k in range(len(found[3][0])):
        own = {}
        for count, pair, dist in found.values():
            for number, depth in zip(pair[k], dist[k][: count[k, 0]]):
                ends = plan.first[number], plan.second[number]
                shapes = tuple(plan.geoms[end] for end in ends)
                own.setdefault(shapes, []).append(float(depth))
        each.append({shapes: sorted(x) for shapes, x in own.items()})
    return each


@pytest.mark.parametrize("together", (False, True))
@pytest.mark.quick_cases("False")
def test_contacts(together):
    """The lists hold the contacts that MuJoCo finds, in kernels and in groups of rows."""
    sys, model, q = robot()
    plan = split_plan(sys)[1]
    pairs = zip(plan.first, plan.second, strict=True)
    pairs = {(plan.geoms[one], plan.geoms[two]) for one, two in pairs}
    assert set(plan.condim) == {1, 3, 4}
    found = jax.vmap(lambda q: listed(sys, q))(jnp.asarray(q))
    if together:
        with rows_together():
            one = jax.jit(ft.partial(_listed_fn, sys))
            each = [one(jnp.asarray(x)) for x in q[:6]]
        found, q = jax.tree.map(lambda *xs: jnp.stack(xs), *each), q[:6]
    errors = []
    for pose, own in zip(q, distances(jax.device_get(found), plan), strict=True):
        data = mujoco.MjData(model)
        data.qpos = pose
        mujoco.mj_forward(model, data)
        expected = {}
        for contact in data.contact:
            shapes = tuple(contact.geom.tolist())
            if shapes not in pairs:
                continue  # Points against the world that are always computed.
            expected.setdefault(shapes, []).append(contact.dist)
        assert own.keys() == expected.keys()
        for shapes, depths in expected.items():
            # The deepest point is unique.
            errors.append(abs(own[shapes][0] - min(depths)))
    # XLA without optimization may end one search of deep hulls at a neighboring face.
    exact = np.array(errors) < 1e-6
    assert len(exact) > 10 and np.sum(~exact) <= together and max(errors) < 5e-3


CHAIN = """
<mujoco>
  <worldbody>
    <geom type="plane" size="5 5 1"/>
    <geom type="box" size=".1 .1 .1" pos="1 0 .1"/>
    <body pos="0 0 1">
      {joint}
      <geom type="sphere" size=".1"/>
      <geom type="capsule" size=".1 .2" pos="0 0 .1"/>
      <body pos="0 0 .5">
        <joint type="{second}"/>
        <geom type="sphere" size=".1"/>
        <geom type="box" size=".1 .1 .1"/>
      </body>
    </body>
    <body pos="2 0 1"><freejoint/><geom type="box" size=".2 .2 .2"/></body>
  </worldbody>
</mujoco>"""


@pytest.mark.parametrize(
    "joint, leaves",
    (
        ("<freejoint/>", True),
        ('<joint type="slide"/><joint type="hinge"/>', True),
        ('<joint type="hinge"/>', False),
        ("", True),
    ),
)
def test_spheres_of_robots_that_can_leave_their_place_are_not_listed(joint, leaves):
    """The two spheres on the plane: a robot without a base joint begins with a slide."""
    second = "hinge" if joint else "slide"
    sys = eqsim.io.load_mjcf(CHAIN.format(joint=joint, second=second))
    dense, listed = split_plan(sys)
    assert listed is not None
    names = {(a.name, b.name) for a, b in dense.kinds}
    assert (("PLANE", "SPHERE") in names) == leaves
    total = sum(map(len, dense.group_pairs)) + len(listed.first)
    assert total == len(contact_plan(sys).pairs)


XML = """
<mujoco>
  <worldbody>
    <geom type="plane" size="1 1 1" margin="0.05"/>
    <body name="one" pos="0 0 0.5"><freejoint/>
      <geom type="box" size="0.1 0.2 0.15" margin="0.02"/></body>
    <body name="two" pos="0.3 0 0.5"><freejoint/>
      <geom type="capsule" size="0.1 0.2"/>
      <body pos="0 0 0.2"><joint axis="0 1 0"/>
        <geom type="sphere" size="0.1" pos="0 0 0.1"/></body></body>
  </worldbody>
</mujoco>
"""


def test_in_contact(getkey):
    """Where MuJoCo has contacts. With margins; links that are joined do not touch."""
    model = mujoco.MjModel.from_xml_string(XML)
    data, sys = mujoco.MjData(model), eqsim.load_mjcf(XML)
    noise = 0.3 * np.asarray(jr.normal(getkey(), (200, model.nq)))
    q = jnp.asarray(model.qpos0 + noise)
    found = jax.jit(jax.vmap(lambda q: in_contact(sys, q)))(q)
    expected = []
    for row in np.asarray(q):
        data.qpos[:] = row
        mujoco.mj_forward(model, data)
        expected.append(data.ncon > 0)
    np.testing.assert_array_equal(found, expected)
    assert 0.2 < np.mean(expected) < 0.8


def test_nothing_to_touch():
    sys = eqsim.load_mjcf(
        '<mujoco><worldbody><body><joint/><geom size="1"/></body></worldbody></mujoco>'
    )
    assert not in_contact(sys, jnp.zeros(1))


@pytest.mark.slow  # `make test` runs kernels in all tests.
def test_kernels():
    sys = eqsim.load_mjcf(XML)
    check_kernels(lambda q: in_contact(sys, q), jnp.zeros(sys.nq))
