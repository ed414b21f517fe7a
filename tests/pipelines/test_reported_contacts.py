"""Reports of contacts: compact, sorted, and as MuJoCo has them."""

import equinox as eqx
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from helpers import check_gradients
from parity.reference import converge

from eqsim import Generalized, load_mjcf, Positional, Spring, State
from eqsim._calls import rows_together
from eqsim.constraint import Contact
from eqsim.pipelines import contact_wrenches, deepest_contacts, Euler
from eqsim.pipelines._generalized import _compute_fn, _prepared
from eqsim.testing import check_kernels


# Pairs that are listed, of two dimensions of the contact space, and spheres on the ground,
# which are not; a link without joint.
PILE = """
<mujoco>
  <option timestep="0.005" cone="elliptic"/>
  <worldbody>
    <geom type="plane" size="3 3 1"/>
    <body name="base" pos="0 0 .1"><freejoint/>
      <geom type="box" size=".3 .2 .1" mass="3" condim="4" friction=".8 .02 .01"/></body>
    <body name="bar" pos=".1 .05 .29"><freejoint/>
      <geom type="capsule" size=".1 .15" euler="88 3 0" mass="1"/>
      <body name="tip" pos="0 0 .15"><geom type="box" size=".06 .05 .07" mass=".5"/></body>
    </body>
    <body name="ball" pos="-.2 .05 .297"><freejoint/>
      <geom size=".1" mass="1" condim="4" friction=".5 .01 .01"/></body>
    <body name="low" pos=".5 0 .097"><freejoint/><geom size=".1" mass="2"/></body>
  </worldbody>
</mujoco>"""
SYS = load_mjcf(PILE)
# Joints and pairs of shapes more take long to compile: a capsule on a ball.
SMALL = """
<mujoco>
  <option timestep="0.005" cone="elliptic"/>
  <worldbody>
    <geom type="plane" size="3 3 1"/>
    <body pos="-.2 0 .098"><joint type="slide" axis="0 0 1"/><joint axis="0 1 1"/>
      <geom size=".1" mass="1" condim="4" friction=".5 .01 .01"/></body>
    <body pos="0 .05 .286"><joint type="slide" axis=".1 0 1"/><joint axis="0 1 0"/>
      <geom type="capsule" size=".1 .3" euler="0 80 2" mass="1"/></body>
  </worldbody>
</mujoco>"""
small_first = pytest.mark.parametrize(
    "text",
    (SMALL, pytest.param(PILE, marks=pytest.mark.slow)),
    ids=("small", "pile"),
)
NONE = jnp.zeros(0)
POINTS = ("dist", "pos", "frame", "force", "torque")


def drawn(count=6):
    """States near that of the file, and MuJoCo's solutions."""
    model = converge(mujoco.MjModel.from_xml_string(PILE))
    rng, found = np.random.default_rng(0), []
    for _ in range(count):
        data = mujoco.MjData(model)
        change = rng.normal(0.0, 0.01, model.nv)
        mujoco.mj_integratePos(model, data.qpos, change, 1.0)
        data.qvel[:] = rng.normal(0.0, 0.2, model.nv)
        mujoco.mj_forward(model, data)
        mujoco.mj_rnePostConstraint(model, data)
        found.append(data)
    return model, found


MODEL, DATA = drawn()
STATES = [State(jnp.asarray(d.qpos), jnp.asarray(d.qvel), NONE) for d in DATA]
STATES = jax.tree.map(lambda *xs: jnp.stack(xs), *STATES)


@jax.jit
@jax.vmap
def reported(state):
    pipeline = Generalized()
    wrench = pipeline.contact_wrenches(SYS, state, NONE)
    return pipeline.contacts(SYS, state, NONE), wrench


def test_are_mujocos():
    contacts, wrench = jax.tree.map(np.asarray, reported(STATES))
    seen = set()
    for k, data in enumerate(DATA):
        own = jax.tree.map(lambda x, k=k: x[k], contacts)
        assert own.count == data.ncon > 1 and np.sum(own.geoms[:, 0] >= 0) == data.ncon
        left = list(range(data.ncon))
        for i, contact in enumerate(data.contact):
            pair = tuple(int(g) for g in contact.geom)
            same = [j for j in left if tuple(own.geoms[j]) == pair]
            apart = [np.linalg.norm(own.pos[j] - contact.pos) for j in same]
            j = same[int(np.argmin(apart))]
            left.remove(j)
            force, frame = np.zeros(6), contact.frame.reshape(3, 3)
            mujoco.mj_contactForce(MODEL, data, i, force)
            close = lambda a, b, atol: np.testing.assert_allclose(a, b, 0, atol)
            close(own.dist[j], contact.dist, 1e-11)
            close(own.pos[j], contact.pos, 1e-9)
            close(own.frame[j, 0], frame[0], 1e-9)
            scale = max(1.0, np.max(np.abs(force)))
            close(own.force[j], frame.T @ force[:3], 1e-7 * scale)
            close(own.torque[j], frame.T @ force[3:], 1e-7 * scale)
            seen.add(pair)
        assert np.all(np.diff(own.dist[: data.ncon]) >= 0.0)
        theirs = data.cfrc_ext[1:]
        scale = max(1.0, np.max(np.abs(theirs)))
        np.testing.assert_allclose(wrench[k], theirs, 1e-7, 1e-7 * scale)
    assert len(seen) >= 4, seen


def test_rows_without_a_contact():
    contacts = reported(STATES)[0]
    used = np.asarray(contacts.exists)
    assert used.shape == contacts.dist.shape and not used.all()
    assert np.all(contacts.geoms[~used] == -1)
    assert np.all(contacts.dist[~used] == np.inf)
    for name in POINTS[1:]:
        assert not np.any(getattr(contacts, name)[~used])


@pytest.mark.slow  # `test_deepest_of_points` is the quick one.
def test_the_deepest_are_kept():
    """A limit changes neither the physics nor the wrenches."""
    state = jax.tree.map(lambda x: x[4], STATES)
    full, wrench = jax.tree.map(lambda x: x[4], reported(STATES))
    short = eqx.filter_jit(Generalized(max_contacts=3).contacts)(SYS, state, NONE)
    assert short.count == full.count > 3
    for name in ("geoms", *POINTS):
        one, other = getattr(short, name), getattr(full, name)[:3]
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)
    less = Generalized(max_contacts=3).contact_wrenches(SYS, state, NONE)
    np.testing.assert_allclose(less, wrench, rtol=1e-12, atol=1e-12)
    # Those of a report are the sum of its contacts.
    total = contact_wrenches(SYS, state.q, full)
    np.testing.assert_allclose(wrench, total, rtol=1e-12, atol=1e-10)
    none = Generalized(max_contacts=0)
    shape = eqx.filter_eval_shape(none.contacts, SYS, state, NONE).geoms.shape
    assert shape == (0, 2)


@pytest.mark.parametrize("pipeline", (Generalized, Spring, Positional))
@pytest.mark.parametrize("number", (-1, True))
def test_a_limit_is_a_count(pipeline, number):
    with pytest.raises(
        ValueError, match="max_contacts` must be an integer of at least 0"
    ):
        pipeline(max_contacts=number)


def test_by_link():
    contacts = jax.tree.map(lambda x: x[4], reported(STATES)[0])
    base, bar = (SYS.link(name).index for name in ("base", "bar"))
    on = contacts.between(SYS, bar, base)
    assert np.any(on) and np.all(on == contacts.between(SYS, base, bar))
    ends = np.asarray(contacts.geoms)[np.asarray(on)]
    names = {SYS.geoms.links[geom] for geom in ends.ravel()}
    assert names == {base, bar}
    own = contacts.of_link(SYS, base)
    assert np.all(own[np.asarray(on)]) and np.sum(own) > np.sum(on)
    assert np.any(contacts.between(SYS, base, -1)) and not np.all(own)


def beginning(text):
    """The robot, and a state of it that moves."""
    sys = load_mjcf(text)
    return sys, State(sys.joints.ref, 0.1 * jnp.cos(jnp.arange(sys.nv)), NONE)


@small_first
@pytest.mark.slow  # `test_contacts.py` has the quick one.
def test_gradients(text):
    """Of all values, by state and parameters, forward, reverse and by differences."""
    robot, state = beginning(text)
    if text is PILE:
        state = jax.tree.map(lambda x: x[1], STATES)
    where = lambda s: (s.links.mass, s.geoms.size, s.geoms.friction)

    @jax.jit
    def measure(q, qd, mass, size, friction):
        sys = eqx.tree_at(where, robot, (mass, size, friction))
        pipeline, now = Generalized(max_contacts=12), State(q, qd, NONE)
        found = pipeline.contacts(sys, now, NONE)
        dist = jnp.where(found.exists, found.dist, 0.0)
        values = [getattr(found, name) for name in POINTS[1:]]
        return dist, values, pipeline.contact_wrenches(sys, now, NONE)

    given = state.q, state.qd, *where(robot)
    largest = check_gradients(measure, *given, rtol=2e-5, atol=2e-4)
    assert all(value > 0.0 for value in largest.values())


@small_first
def test_kernels(text):
    """Reports compile to kernels."""
    robot, state = beginning(text)
    check_kernels(lambda: Generalized().solve(robot, state, NONE))


@pytest.mark.slow  # `collision/test_rows_together.py` is the quick one.
def test_groups():
    """In groups, as on a GPU, reports are the same."""
    state = jax.tree.map(lambda x: x[0], STATES)
    arguments = _prepared(Generalized(), SYS, state, NONE, None)
    solve = lambda together: _grouped(arguments, together)
    one, other = solve(False), solve(True)
    for a, b in zip(*map(jax.tree.leaves, (one, other)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-9)


def _grouped(arguments, together):
    dynamic, static = eqx.partition(arguments, eqx.is_array)

    def run(dynamic):
        with rows_together(together):
            wanted = ("contacts", "contact_wrenches")
            return _compute_fn(wanted, Euler(), 16, *eqx.combine(dynamic, static))

    return jax.jit(run)(dynamic)


def test_deepest_of_points():
    rng = np.random.default_rng(0)
    dist, exists = jnp.asarray(rng.normal(size=9)), jnp.asarray(rng.random(9) < 0.5)
    vector = jnp.asarray(rng.normal(size=(9, 3)))
    geoms = [(2 * k, 2 * k + 1) for k in range(9)]
    frame = jnp.tile(vector[:, None], (1, 3, 1))
    deepest = lambda dist, size: deepest_contacts(
        geoms, exists, dist, vector, frame, vector, max_contacts=size
    )
    number = int(np.sum(exists))
    order = sorted(np.flatnonzero(exists), key=lambda k: dist[k])
    for size in (2, 9):
        found, kept = deepest(dist, size), np.array(order[:size])
        assert found.count == number and np.sum(found.exists) == min(number, size)
        np.testing.assert_array_equal(found.geoms[: len(kept), 0], 2 * kept)
        np.testing.assert_array_equal(found.pos[: len(kept)], vector[kept])
        assert np.all(np.isinf(found.dist[len(kept) :]))
    rate = jax.grad(lambda x: deepest(x, 9).dist[0])(dist)
    assert rate[order[0]] == 1.0 and np.sum(rate != 0.0) == 1


class Renamed(Contact):
    """Contacts by another name."""


def test_subclasses_are_contacts():
    sys = load_mjcf(SMALL)
    state = Generalized().init(sys)
    found = [
        Generalized(constraints=(kind(),)).solve(sys, state, jnp.zeros(0))
        for kind in (Contact, Renamed)
    ]
    assert found[0].contacts.count > 0
    for one, two in zip(*map(jax.tree.leaves, found), strict=True):
        np.testing.assert_array_equal(one, two)
