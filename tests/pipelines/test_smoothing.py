"""Gradients before contact: a width over which contacts begin."""

import jax
import jax.numpy as jnp
import pytest
from helpers import check_gradients

import eqsim
from eqsim import Generalized, load_mjcf, State


RADIUS = 0.1
SYS = load_mjcf(f"""
<mujoco>
  <option timestep="0.005" gravity="0 0 0"/>
  <worldbody>
    <geom name="wall" type="plane" size="5 5 1" friction="0.7"/>
    <body pos="0 0 1"><freejoint/><geom type="sphere" size="{RADIUS}"/></body>
  </worldbody>
</mujoco>""")
NOTHING = jnp.zeros(0)


def ball(gap, speed=-0.0):
    """Flying along the wall."""
    q = jnp.array([0.0, 0.0, RADIUS, 1.0, 0.0, 0.0, 0.0]).at[2].add(gap)
    qd = jnp.array([1.0, 0.0, 0.0, 0.0, 0.0, 0.0]).at[2].set(speed)
    return State(q, qd, NOTHING)


@jax.jit
def leaves_with(gap, width):
    """Velocity away from the wall after four steps."""
    pipeline = Generalized(smoothing=width)
    step = lambda state, _: (pipeline.step(SYS, state, NOTHING), None)
    return eqsim.scan(step, ball(gap), length=4)[0].qd[2]


@jax.jit
def acceleration(gap, width):
    state = ball(gap, -0.1)
    return Generalized(smoothing=width).acceleration(SYS, state, NOTHING)[2]


def test_a_ball_that_misses_a_wall():
    """By 5 mm: nothing at width zero; with a width of 2 mm, the closer the stronger."""
    gap = jnp.array(5e-3)
    value, slope = jax.value_and_grad(leaves_with)(gap, jnp.array(0.0))
    assert value == 0.0 and slope == 0.0
    value, slope = jax.value_and_grad(leaves_with)(gap, jnp.array(2e-3))
    assert value > 1e-4 and slope < -0.1
    further, _ = jax.value_and_grad(leaves_with)(2 * gap, jnp.array(2e-3))
    assert 0.0 < further < value


LISTED = """
<mujoco>
  <option timestep="0.005" gravity="0 0 0"/>
  <asset><hfield name="flat" nrow="5" ncol="5" size="1 1 1 1"/></asset>
  <worldbody>
    <geom {wall}/>
    <body pos="0 0 1"><freejoint/><geom {shape}/></body>
  </worldbody>
</mujoco>"""
PAIRS = {
    "hfield-sphere": ('type="hfield" hfield="flat"', 'size=".1"'),
    "box-ellipsoid": (
        'type="box" size="1 1 1" pos="0 0 -1"',
        'type="ellipsoid" size=".2 .2 .1"',
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("pair", PAIRS)
def test_gradients_of_listed_pairs(pair):
    """Before contact, too, where the shapes are farther apart than their margin."""
    wall, shape = PAIRS[pair]
    sys, pipeline = (
        load_mjcf(LISTED.format(wall=wall, shape=shape)),
        Generalized(smoothing=2e-3),
    )
    step = lambda state, _: (pipeline.step(sys, state, NOTHING), None)

    def leaves(gap):
        start = ball(gap)
        start = State(start.q.at[:2].set(jnp.array([0.11, 0.07])), start.qd, NOTHING)
        return eqsim.scan(step, start, length=4)[0].qd[2]

    gaps = jnp.array([-2e-3, 3e-3, 5e-3])
    each = jax.jit(jax.vmap(leaves))
    assert jnp.all(jax.vmap(jax.grad(leaves))(gaps) < -0.1)
    check_gradients(each, gaps)


def test_gradients():
    """Forward, reverse and finite differences agree on both sides of the surface."""
    gaps, width = jnp.array([-2e-3, -1e-6, 0.0, 3e-3]), jnp.array(2e-3)
    each = jax.vmap(leaves_with, in_axes=(0, None))
    check_gradients(each, gaps, width)
    # As above, so that it is compiled once.
    assert all(jax.value_and_grad(leaves_with)(gap, width)[1] != 0.0 for gap in gaps)


def test_width_and_bias():
    """The exact model in the limit: exponentially away from the surface, and to first
    order at it."""
    gaps, exact = jnp.array([-4e-3, 4e-3]), jnp.array(0.0)
    for gap in gaps:
        bias = [
            abs(acceleration(gap, w) - acceleration(gap, exact))
            for w in (1e-3, 5e-4, 2.5e-4)
        ]
        assert bias[0] > 20 * bias[1] > 400 * bias[2]
    at = [acceleration(jnp.array(-1e-9), w) for w in (1e-3, 1e-4, 1e-5)]
    assert abs(at[1] - at[2]) < 0.2 * abs(at[0] - at[1])


@pytest.mark.parametrize("width", (-1e-3, float("nan"), [1e-3, 2e-3]))
def test_bad_width(width):
    with pytest.raises(
        ValueError, match="`Generalized.smoothing` must be one width in met"
    ):
        Generalized(smoothing=width)
