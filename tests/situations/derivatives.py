"""Derivatives at bounds, at limits of joints and at ties of contacts."""

import functools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from test_derivatives_at_bounds import ALIGNED, ball, LIMITED, STACK

from eqsim import Generalized, load_mjcf, Positional, Spring


PIPELINES = {p.__class__.__name__: p for p in (Generalized(), Positional(), Spring())}


@functools.cache
def _programs(name: str, build, count: int):
    """Return a value, its forward and its reverse derivative, as compiled functions of the
    robot, its state and a number; cached, so that other numbers compile nothing."""
    pipeline = PIPELINES[name]

    def value(sys, state, number):
        start, ctrl = build(state, number)
        step = lambda now, _: (pipeline.step(sys, now, ctrl), None)
        end = lax.scan(step, start, None, count)[0]
        return jnp.sum(end.q * jnp.arange(1.0, 1.0 + end.q.shape[0])) + jnp.sum(end.qd)

    forward = lambda *args: jax.jvp(
        lambda x: value(*args[:2], x), (args[2],), (jnp.ones_like(args[2]),)
    )[1]
    reverse = lambda *args: jax.grad(value, argnums=2)(*args)
    return tuple(eqx.filter_jit(f) for f in (value, forward, reverse))


def _judge(programs, sys, state, at: float, inward: float, what) -> None:
    """Both modes are the one-sided derivative of the inside."""
    value, forward, reverse = programs
    number = jnp.asarray(at)
    size = 1e-5 * inward
    zero, first, second = (value(sys, state, number + k * size) for k in range(3))
    expected = (4.0 * first - 3.0 * zero - second) / (2.0 * size)
    found = forward(sys, state, number)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-7, err_msg=str(what))
    np.testing.assert_allclose(
        reverse(sys, state, number), found, rtol=1e-8, atol=1e-11, err_msg=str(what)
    )


def _by_control(state, ctrl):
    return state, ctrl[None]


@functools.cache
def _actuated(name: str):
    actuator, joint, at, inward = LIMITED[name]
    return ball(f"<actuator>{actuator.format('j')}</actuator>", joint), at, inward


def bound(rng) -> None:
    """The control of an actuator is at a bound of its range, force or activation."""
    name, pipeline = str(rng.choice([*LIMITED])), str(rng.choice([*PIPELINES]))
    sys, at, inward = _actuated(name)
    count = int(rng.choice([1, 7]))
    mass, damping = rng.uniform(0.5, 3.0), rng.uniform(0.0, 2.0)
    where = lambda s: (s.links.mass, s.joints.damping)
    sys = eqx.tree_at(
        where,
        sys,
        tuple(np.multiply(x, y) for x, y in zip(where(sys), (mass, damping))),
    )
    sys = jax.tree.map(jnp.asarray, sys)
    if name in ("ctrlrange", "lower"):
        at = float(rng.normal())
        span = sorted((at, at + inward * rng.uniform(0.1, 2.0)))
        where = lambda s: s.actuators.ctrl_range
        sys = eqx.tree_at(where, sys, jnp.array([span]))
    state = PIPELINES[pipeline].init(sys)
    programs = _programs(pipeline, _by_control, count)
    _judge(programs, sys, state, at, inward, (name, pipeline, count, mass, damping))


def _by_coordinate(state, q):
    return eqx.tree_at(lambda s: s.q, state, q[None]), jnp.zeros(0)


@functools.cache
def _limited():
    return ball(joint='limited="true" range="-30 30"')


def limit(rng) -> None:
    """A joint is exactly at its limit."""
    pipeline, sys = str(rng.choice([*PIPELINES])), _limited()
    low, high = np.sort(rng.uniform(-1.0, 1.0, 2)) + [-0.1, 0.1]
    sys = eqx.tree_at(lambda s: s.joints.range, sys, jnp.array([[low, high]]))
    at, inward = ((low, 1.0), (high, -1.0))[rng.integers(2)]
    programs = _programs(pipeline, _by_coordinate, 1)
    state = PIPELINES[pipeline].init(sys, jnp.array([at]))
    _judge(programs, sys, state, at, inward, (pipeline, low, high))


@functools.cache
def _stacked(name: str):
    lower, upper, height = ALIGNED[name]
    return load_mjcf(STACK.format(lower, upper)), height


def _sideways(state, number):
    q = state.q.at[0].add(number)
    return eqx.tree_at(lambda s: s.q, state, q), jnp.zeros(0)


def tie(rng) -> None:
    """Equal shapes on top of each other: the derivative is that of the motion where both
    sides agree, and between them where they do not."""
    name = str(rng.choice([*ALIGNED]))
    sys, height = _stacked(name)
    depth, turn = rng.uniform(5e-4, 5e-3), 0.5 * math.pi * rng.integers(4)
    q = [
        0.0,
        0.0,
        height + 0.002 - depth,
        math.cos(turn / 2),
        0.0,
        0.0,
        math.sin(turn / 2),
    ]
    friction = rng.uniform(0.3, 1.5)
    where = lambda s: s.geoms.friction
    sys = eqx.tree_at(where, sys, where(sys) * friction)
    state = Generalized().init(sys, jnp.array(q), jnp.array(0.1 * rng.normal(size=6)))
    value, forward, reverse = _programs("Generalized", _sideways, 1)
    zero, size = jnp.asarray(0.0), 1e-6
    at = [value(sys, state, jnp.asarray(k * size)) for k in (-2, -1, 0, 1, 2)]
    left = (3.0 * at[2] - 4.0 * at[1] + at[0]) / (2.0 * size)
    right = (4.0 * at[3] - 3.0 * at[2] - at[4]) / (2.0 * size)
    found = forward(sys, state, zero)
    low, high = np.sort([left, right])
    slack = 1e-3 * max(1.0, abs(low), abs(high))
    what = name, depth, turn, friction, float(left), float(found), float(right)
    assert low - slack <= found <= high + slack, what
    np.testing.assert_allclose(reverse(sys, state, zero), found, rtol=1e-8, atol=1e-11)
