"""Unknowns keep physics true, and name what cannot be a start (I10)."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import check_gradients
from hypothesis import given, strategies as st
from recorded_arm import ARM

import eqsim
from eqsim import identify
from eqsim.estimate.stochastic_model import Orientation
from eqsim.identify._inertia import (
    free_of_matrix,
    link_of_free,
    link_values,
    pseudo_inertia,
)
from eqsim.identify._unknowns import Model, Signals


SYS = eqsim.load_mjcf(ARM)
WIDTHS = {"ctrl": 2, "q": 2}


def _put(unknown, free):
    """The arm with other free numbers."""
    return unknown.apply(Model(SYS, Signals()), jnp.asarray(free)).sys


@given(st.lists(st.floats(-3.0, 3.0), min_size=10, max_size=10))
def test_inertia_is_always_physical(free):
    """Any ten numbers are a body that can exist, and the way back is exact."""
    free = np.array(free)
    value = np.asarray(link_of_free(jnp.asarray(free)))
    assert value[0] == pytest.approx(np.exp(2 * free[0]))
    np.testing.assert_array_equal(value[1:4], free[7:])
    xx, yy, zz, xy, xz, yz = value[4:]
    moments = np.linalg.eigvalsh([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
    # Principal moments are positive, and none exceeds the sum of the others.
    tolerance = 1e-12 * moments[2]
    assert moments[0] > 0 and moments[0] + moments[1] > moments[2] - tolerance
    back = free_of_matrix(np.asarray(pseudo_inertia(jnp.asarray(value))))
    np.testing.assert_allclose(back, free, atol=1e-4)
    np.testing.assert_allclose(
        link_of_free(jnp.asarray(back)), value, rtol=1e-6, atol=1e-9
    )


_PLACE = st.tuples(*[st.floats(-2.0, 2.0)] * 3)


@given(st.lists(st.tuples(st.floats(0.1, 5.0), _PLACE), min_size=5, max_size=9))
def test_inertia_of_solids(points):
    """Mass, center and inertia of any cloud of points come back from the free numbers."""
    mass = np.array([m for m, _ in points])
    # A ball around each point, so that points in a plane are a solid as well.
    place, ball = np.array([x for _, x in points]), 0.1
    center = mass @ place / mass.sum()
    away = place - center
    second = np.einsum("k,ki,kj->ij", mass, away, away) + ball * mass.sum() * np.eye(3)
    inertia = np.trace(second) * np.eye(3) - second
    six = inertia[[0, 1, 2, 0, 0, 1], [0, 1, 2, 1, 2, 2]]
    value = np.concatenate([[mass.sum()], center, six])
    free = free_of_matrix(np.asarray(pseudo_inertia(jnp.asarray(value))))
    np.testing.assert_allclose(
        link_of_free(jnp.asarray(free)), value, rtol=1e-9, atol=1e-9
    )


def test_inertia_keeps_the_robot():
    """Applied at its start, an inertia changes nothing but rounding."""
    unknown = identify.Inertia()
    free = jnp.asarray(unknown.start("inertia", SYS, WIDTHS))
    new = _put(unknown, free)
    for k in range(SYS.nlink):
        old, value = link_values(SYS, k), link_values(new, k)
        np.testing.assert_allclose(value, old, rtol=3e-6, atol=1e-8)
    np.testing.assert_allclose(
        unknown.values(free)[:10], link_values(SYS, 0), rtol=1e-9, atol=1e-12
    )


# Compiles eigenvectors in two modes.
@pytest.mark.slow
def test_inertia_gradient():
    """Also at equal principal moments, where axes are not unique."""
    unknown = identify.Inertia(links=("upper",))
    free = jnp.asarray(unknown.start("inertia", SYS, WIDTHS))

    def matrix(free):
        return link_values(_put(unknown, free), 0)

    forward, reverse = jax.jacfwd(matrix)(free), jax.jacrev(matrix)(free)
    np.testing.assert_allclose(forward, reverse, atol=1e-8)
    # The values are the parameters themselves, whatever the axes are.
    np.testing.assert_allclose(forward, jax.jacfwd(link_of_free)(free), atol=1e-6)


def test_log_det_prior(getkey):
    """It is zero at the start, positive elsewhere, and the same in any frame."""
    prior = identify.LogDetPrior(2.0)
    value = link_of_free(0.3 * jax.random.normal(getkey(), (10,)))
    start = link_of_free(0.3 * jax.random.normal(getkey(), (10,)))
    assert float(prior.cost(start, start)) == pytest.approx(0.0, abs=1e-12)
    assert float(prior.cost(value, start)) > 0
    moved = lambda x: x.at[1:4].add(jnp.array([0.3, -0.2, 0.5]))
    turned = float(prior.cost(moved(value), moved(start)))
    assert turned == pytest.approx(float(prior.cost(value, start)))
    check_gradients(lambda x: prior.cost(x, start), value)


FLAT = eqx.tree_at(
    lambda s: s.links.inertia, SYS, SYS.links.inertia.at[0].set([0.0, 0.0, 1e-3])
)
POSITIVE = identify.Positive
STARTS = {
    r"'x': x\[0\] starts at 0, at or below its bound zero": POSITIVE(
        lambda s: s.joints.frictionloss, initial=0.0
    ),
    r"x\[1\] starts at 0, at or below": POSITIVE(lambda s: s.joints.armature),
    r"x\[0\] starts at 0.05, which is not within": identify.Bounded(
        lambda s: s.joints.damping, 0.06, 1.0
    ),
    "x starts at -0.001, which is not within": identify.ChannelDelay(initial=-1e-3),
    "must be finite, got nan": identify.Custom(lambda s, v: s, np.nan),
    "'torque', which is not measured": identify.ChannelGain("torque"),
    r"columns \(2,\) of channel 'q'": identify.ChannelBias("q", columns=(2,)),
    "numbers that are all zero": identify.Tied(lambda s: s.joints.stiffness),
    "start at different values": POSITIVE(lambda s: s.links.mass, shared=True),
    "link 'upper' starts with a mass of 0.6 kg": identify.Inertia(),
}


@pytest.mark.parametrize("message", STARTS)
def test_bad_starts(message):
    unknown = STARTS[message]
    sys = FLAT if isinstance(unknown, identify.Inertia) else SYS
    with pytest.raises(ValueError, match=message):
        unknown.start("x", sys, WIDTHS)


def test_starts_at_bounds():
    """A fit may continue from a value that stopped there."""
    for delay in (0.0, 0.02):
        found = identify.ChannelDelay(initial=delay).start("x", SYS, WIDTHS)
        np.testing.assert_array_equal(found, delay)


@pytest.mark.parametrize("width", (0.0, -1.0))
def test_widths_of_losses(width):
    for loss in (identify.HuberLoss, identify.CauchyLoss, identify.GemanMcClureLoss):
        with pytest.raises(ValueError, match=f"`{loss.__name__}.width` .*positive"):
            loss(width=width)


def test_orientation_steps():
    """A step from one orientation to another leads there, up to sign."""
    space = Orientation()
    a = jnp.array([0.8, 0.6, 0.0, 0.0])
    b = -jnp.array([0.5, 0.5, 0.5, 0.5])
    there = space.integrate(a, space.difference(a, b))
    assert abs(float(there @ b)) == pytest.approx(1.0)
    assert float(jnp.linalg.norm(space.difference(b, -b))) == pytest.approx(0.0)


def test_entries_and_ties():
    """Entries choose, shared values are equal, and a tie is a factor."""
    com = identify.Unbounded(lambda s: s.links.com, entries=((0, 2), (1, 2)))
    assert com.labels("com", SYS, WIDTHS) == ("com[0,2]", "com[1,2]")
    new = _put(com, jnp.array([-0.2, -0.3]))
    np.testing.assert_allclose(new.links.com[:, 2], [-0.2, -0.3])
    np.testing.assert_allclose(new.links.com[:, :2], SYS.links.com[:, :2])
    shared = identify.Positive(lambda s: s.joints.damping, shared=True, initial=0.1)
    assert shared.start("x", SYS, WIDTHS).shape == (1,)
    new = _put(shared, jnp.log(jnp.array([0.2])))
    np.testing.assert_allclose(new.joints.damping, 0.2)
    tied = identify.Tied(lambda s: (s.links.mass, s.links.inertia), entries=(1,))
    new = _put(tied, jnp.log(jnp.array([2.0])))
    np.testing.assert_allclose(new.links.mass, SYS.links.mass * jnp.array([1.0, 2.0]))
    np.testing.assert_allclose(new.links.inertia[1], 2 * SYS.links.inertia[1])
    with pytest.raises(ValueError, match="select entries with `entries`"):
        identify.Unbounded(lambda s: s.links.com[0]).labels("com", SYS, WIDTHS)
