"""Reports of contacts: compact, sorted, and as MuJoCo has them."""

import functools as ft

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from eqsim import Generalized, load_mjcf, Positional, Spring, State
from eqsim.constraint import Contact
from eqsim.kinematics import integrate
from eqsim.pipelines import contact_wrenches, deepest_contacts
from eqsim.testing import check_kernels


# A capsule on a ball on the ground.
PILE = """
<mujoco>
  <option timestep="0.005" cone="elliptic"/>
  <worldbody>
    <geom type="plane" size="3 3 1"/>
    <body name="ball" pos="-.2 .05 .098"><joint type="slide" axis="0 0 1"/>
      <joint axis="0 1 1"/><geom size=".1" mass="1" condim="4" friction=".5 .01 .01"/></body>
    <body name="bar" pos="0 .05 .286"><joint type="slide" axis=".1 0 1"/>
      <joint axis="0 1 0"/><geom type="capsule" size=".1 .3" euler="0 80 2" mass="1"/></body>
  </worldbody>
</mujoco>"""
SYS = load_mjcf(PILE)
NONE = jnp.zeros(0)
POINTS = ("dist", "pos", "frame", "force", "torque")


def drawn(count=6):
    """States near that of the file."""
    rng = np.random.default_rng(0)
    changes = jnp.asarray(rng.normal(0.0, 0.01, (count, SYS.nv)))
    qd = jnp.asarray(rng.normal(0.0, 0.2, (count, SYS.nv)))
    near = lambda v, qd: State(integrate(SYS, SYS.joints.ref, v), qd, NONE)
    return jax.vmap(near)(changes, qd)


STATES = drawn()


@jax.jit
@jax.vmap
def reported(state):
    return Generalized().contacts(SYS, state, NONE)


def test_rows_without_a_contact():
    contacts = reported(STATES)
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
    full = jax.tree.map(lambda x: x[4], reported(STATES))
    wrench = Generalized().contact_wrenches(SYS, state, NONE)
    short = eqx.filter_jit(Generalized(max_contacts=1).contacts)(SYS, state, NONE)
    assert short.count == full.count > 1
    for name in ("geoms", *POINTS):
        one, other = getattr(short, name), getattr(full, name)[:1]
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)
    less = Generalized(max_contacts=1).contact_wrenches(SYS, state, NONE)
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
    contacts = jax.tree.map(lambda x: x[4], reported(STATES))
    ball, bar = (SYS.link(name).index for name in ("ball", "bar"))
    on = contacts.between(SYS, bar, ball)
    assert np.any(on) and np.all(on == contacts.between(SYS, ball, bar))
    ends = np.asarray(contacts.geoms)[np.asarray(on)]
    names = {SYS.geoms.links[geom] for geom in ends.ravel()}
    assert names == {ball, bar}
    own = contacts.of_link(SYS, ball)
    assert np.all(own[np.asarray(on)]) and np.sum(own) > np.sum(on)
    assert np.any(contacts.between(SYS, ball, -1)) and not np.all(own)


@pytest.mark.slow  # `make test` runs kernels in all tests.
def test_kernels():
    """Reports compile to kernels."""
    state = jax.tree.map(lambda x: x[4], STATES)
    check_kernels(lambda: Generalized().solve(SYS, state, NONE))


def test_deepest_of_points():
    rng = np.random.default_rng(0)
    dist, exists = jnp.asarray(rng.normal(size=9)), jnp.asarray(rng.random(9) < 0.5)
    vector = jnp.asarray(rng.normal(size=(9, 3)))
    geoms = [(2 * k, 2 * k + 1) for k in range(9)]
    frame = jnp.tile(vector[:, None], (1, 3, 1))

    @ft.partial(jax.jit, static_argnums=1)
    def deepest(dist, size):
        given = geoms, exists, dist, vector, frame, vector
        return deepest_contacts(*given, max_contacts=size)

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


@pytest.mark.slow  # Compiles two solvers.
def test_subclasses_are_contacts():
    sys = load_mjcf(
        """<mujoco><worldbody><geom type="plane" size="1 1 1"/><body pos="0 0 .09">
        <joint type="slide" axis="0 0 1"/><geom size=".1"/></body></worldbody></mujoco>"""
    )
    state = Generalized().init(sys)
    found = [
        Generalized(constraints=(kind(),)).solve(sys, state, jnp.zeros(0))
        for kind in (Contact, Renamed)
    ]
    assert found[0].contacts.count > 0
    for one, two in zip(*map(jax.tree.leaves, found), strict=True):
        np.testing.assert_array_equal(one, two)
