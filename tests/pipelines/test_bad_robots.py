"""Robots that overlap beyond measure, lie at one place, have no size or are not finite:
the others of a batch stay as they are, bit by bit, and what is not finite is reported."""

import functools as ft
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from eqsim import Generalized, load_mjcf, State


ROWS, BAD = 5, 2
GOOD = np.delete(np.arange(ROWS), BAD)
REPORTED = 8
SPHERES = 45
SCENE = """
<mujoco>
  <option timestep=".002" cone="{cone}"/>
  <asset><mesh name="rock" vertex="{rock}"/></asset>
  <worldbody>
    <geom type="plane" size="5 5 1"/>
    <body pos="0 0 1"><freejoint/>{shapes}</body>
    <body pos="1 0 1"><freejoint/>{shapes}</body>
  </worldbody>
</mujoco>"""
ROCK = ".1 0 0  -.1 .05 0  0 -.1 .02  0 .02 .15  .05 .05 -.1  -.04 -.03 -.12"
SPHERE = (("sphere", ".1"),)
OTHERS = (
    ("capsule", ".05 .1"),
    ("box", ".1 .08 .12"),
    ("ellipsoid", ".1 .06 .08"),
    ("cylinder", ".08 .1"),
    ("mesh", None),
)


def crowd():
    """Two bodies of many spheres: if one is at the place of the other, all touch."""
    rng = np.random.default_rng(0)
    places = rng.uniform(-0.05, 0.05, (SPHERES, 3))
    shapes = "".join(f'<geom size=".1" pos="{x} {y} {z}"/>' for x, y, z in places)
    return SCENE.format(cone="pyramidal", rock=ROCK, shapes=shapes)


def pile(kinds):
    """Two bodies with one shape of each kind."""
    shapes = "".join(
        f'<geom type="{kind}" pos="0 0 {0.2 * k}" '
        + ('mesh="rock"/>' if size is None else f'size="{size}"/>')
        for k, (kind, size) in enumerate(kinds)
    )
    return SCENE.format(cone="elliptic", rock=ROCK, shapes=shapes)


class Found(NamedTuple):
    """Results of a batch: the next state, the solution, and the gradient by the state."""

    new: State
    solved: Any
    gradient: tuple


@ft.lru_cache(maxsize=4)
def robot(text):
    sys = load_mjcf(text)
    pipeline = Generalized(max_contacts=REPORTED)

    def one(size, q, qd):
        own = eqx.tree_at(lambda s: s.geoms.size, sys, size)
        return pipeline.advance(own, State(q, qd, jnp.zeros(0)), jnp.zeros(0))

    def loss(size, q, qd):
        new = pipeline.step(
            eqx.tree_at(lambda s: s.geoms.size, sys, size),
            State(q, qd, jnp.zeros(0)),
            jnp.zeros(0),
        )
        return jnp.sum(new.q**2) + jnp.sum(new.qd**2)

    @jax.jit
    @jax.vmap
    def run(size, q, qd):
        return Found(*one(size, q, qd), jax.grad(loss, (0, 1, 2))(size, q, qd))

    return sys, run


def ordinary(sys):
    """Robots whose bodies fall, lie on the ground, or touch each other a little."""
    rng = np.random.default_rng(1)
    q = np.tile(np.asarray(Generalized().init(sys).q), (ROWS, 1))
    q[:, 7:] += 0.05 * rng.normal(size=(ROWS, 7))
    q[1::2, 2] = 0.098
    q[3:, 7:10] = q[3:, :3] + [0.195, 0.0, 0.02]
    size = np.tile(np.asarray(sys.geoms.size), (ROWS, 1, 1))
    return [size, q, 0.1 * rng.normal(size=(ROWS, sys.nv))]


def check(text, spoil):
    """Replace one robot of a batch; return the results of this robot.

    **Arguments:**

    - `spoil`: changes sizes, coordinates and velocities of the batch in place.
    """
    sys, run = robot(text)
    expected = jax.device_get(run(*ordinary(sys)))
    arrays = ordinary(sys)
    spoil(*(x[BAD] for x in arrays))
    found = jax.device_get(run(*arrays))
    for one, other in zip(*map(jax.tree.leaves, (expected, found)), strict=True):
        np.testing.assert_array_equal(one[GOOD], other[GOOD])
    assert all(np.all(np.isfinite(x[GOOD])) for x in jax.tree.leaves(found.gradient))
    assert np.all(found.solved.converged[GOOD]) and np.any(found.solved.contacts.count)
    bad = jax.tree.map(lambda x: x[BAD], found)
    finite = np.all(np.isfinite(bad.new.q)) and np.all(np.isfinite(bad.new.qd))
    # What is not finite is reported.
    assert finite or not bad.solved.converged
    return bad, finite


# Compiles a large program; `make test-all` runs it.
@pytest.mark.slow
def test_thousands_of_touching_pairs():
    """All contacts act, those with rows in the report are the deepest, and the number of
    all is reported."""

    def spoil(size, q, qd):
        q[7:] = q[:7]
        q[7] += 1e-3

    bad, finite = check(crowd(), spoil)
    model = mujoco.MjModel.from_xml_string(crowd())
    data = mujoco.MjData(model)
    arrays = ordinary(load_mjcf(crowd()))
    spoil(*(x[BAD] for x in arrays))
    data.qpos[:] = arrays[1][BAD]
    mujoco.mj_fwdPosition(model, data)
    between = [c.dist for c in data.contact if 0 not in c.geom]
    assert finite and len(between) == SPHERES**2 and bad.solved.contacts.count > 1800
    assert bad.solved.contacts.count == data.ncon
    dist = bad.solved.contacts.dist
    assert len(dist) == REPORTED
    np.testing.assert_allclose(dist, np.sort(data.contact.dist)[:REPORTED], atol=1e-12)


kinds_of_shapes = pytest.mark.parametrize(
    "kinds",
    (SPHERE, pytest.param(OTHERS, marks=pytest.mark.slow)),
    ids=("sphere", "others"),
)


@kinds_of_shapes
@pytest.mark.parametrize("value", (np.nan, np.inf, 1e200))
@pytest.mark.parametrize("where", ("position", "orientation", "velocity", "size"))
@pytest.mark.slow  # One long compilation for 24 cases.
def test_not_finite(kinds, value, where):
    """The solver has not converged, and so are numbers whose squares overflow."""

    def spoil(size, q, qd):
        if where == "position":
            q[8] = value
        elif where == "orientation":
            q[3] = value
        elif where == "velocity":
            qd[1] = value
        else:
            size[1, 0] = value

    bad, finite = check(pile(kinds), spoil)
    if not np.isfinite(value) and where in ("position", "velocity"):
        assert not finite and not bad.solved.converged


@kinds_of_shapes
def test_coincident_centers(kinds):
    """Both bodies are at one place, in one orientation."""

    def spoil(size, q, qd):
        q[7:] = q[:7]
        qd[:] = 0.0

    _, finite = check(pile(kinds), spoil)
    assert finite


@kinds_of_shapes
@pytest.mark.parametrize("apart", (0.0, 0.1))
def test_shapes_of_size_zero(kinds, apart):
    """All shapes but the plane are points; they may be at one place."""

    def spoil(size, q, qd):
        size[1:] = 0.0
        q[7:] = q[:7]
        q[7] += apart

    _, finite = check(pile(kinds), spoil)
    assert finite
