"""A step gives the same numbers however it is called, and is compiled once."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from helpers import tree_allclose

from eqsim import _batching, Generalized, load_mjcf


PIPELINE = Generalized()

# A ball that slides and bounces on the ground, up to a wall.
PUCK = """
<mujoco>
  <option timestep="0.005"/>
  <worldbody>
    <geom type="plane" size="1 1 1"/>
    <body pos="0 0 .1">
      <joint name="x" type="slide" axis="1 0 0" range="-1 1" limited="true"
        damping=".1"/>
      <joint name="z" type="slide" axis="0 0 1"/>
      <geom type="sphere" size=".1" friction=".5"/>
    </body>
  </worldbody>
  <actuator><motor joint="x" gear="10"/></actuator>
</mujoco>"""
SYS = load_mjcf(PUCK)


def draw(*batch, seed=0):
    """Coordinates, velocities and controls: in the air, in contact, at the limit."""
    rng = np.random.default_rng(seed)
    q = rng.uniform([-1.1, -0.01], [1.1, 0.005], size=(*batch, 2))
    rest = rng.normal(size=(*batch, 2)), rng.normal(size=(*batch, 1))
    return tuple(map(jnp.asarray, (q, *rest)))


def step(sys, q, qd, ctrl):
    out = PIPELINE.step(sys, PIPELINE.init(sys, q, qd), ctrl)
    return out.q, out.qd


MANY = jax.jit(jax.vmap(step, in_axes=(None, 0, 0, 0)))


def by_loop(systems, args):
    """One state after the other; `systems` gives the system of each."""
    rows = [step(systems(k), *(x[k] for x in args)) for k in range(len(args[0]))]
    return jtu.tree_map(lambda *x: jnp.stack(x), *rows)


def heavier(scale, sys=SYS):
    """The puck with another mass, friction and gear."""
    where = lambda s: (s.links.mass, s.geoms.friction, s.actuators.gear)
    return eqx.tree_at(where, sys, tuple(scale * x for x in where(sys)))


def test_jit_is_eager():
    args = [x[0] for x in draw(12)]
    assert tree_allclose(jax.jit(step)(SYS, *args), step(SYS, *args), rtol=1e-12)


def test_vmap_is_loop():
    args = draw(12)
    out = MANY(SYS, *args)
    assert tree_allclose(out, by_loop(lambda _: SYS, args), rtol=1e-12)


def test_vmap_over_systems_is_loop():
    scales, args = jnp.linspace(0.5, 2.0, 12), draw(12)
    fleet = jax.vmap(heavier)(scales)
    axes = jtu.tree_map(lambda a, b: 0 if a.ndim > b.ndim else None, fleet, SYS)
    # Numbers that are the same in all systems, and an axis for the others.
    shared = jtu.tree_map(lambda a, b, axis: b if axis is None else a, fleet, SYS, axes)
    for sys, in_axes in ((fleet, 0), (shared, axes)):
        out = jax.jit(jax.vmap(step, in_axes=(in_axes, 0, 0, 0)))(sys, *args)
        expected = by_loop(lambda k: heavier(scales[k]), args)
        assert tree_allclose(out, expected, rtol=1e-12)
    lone = by_loop(lambda _: SYS, args)
    assert not tree_allclose(lone, expected, rtol=1e-6)


def test_two_batch_axes():
    """Systems outside, states inside; and the other way round."""
    scales, args = jnp.linspace(0.5, 2.0, 3), draw(4)
    inner = jax.vmap(step, in_axes=(None, 0, 0, 0))
    outer = jax.vmap(lambda scale, args: inner(heavier(scale), *args), (0, None))
    each = [by_loop(lambda _: heavier(scale), args) for scale in scales]
    expected = jtu.tree_map(lambda *x: jnp.stack(x), *each)
    assert tree_allclose(jax.jit(outer)(scales, args), expected, rtol=1e-12)


def test_single_precision():
    q, qd, ctrl = draw(12)
    single = lambda x: x.astype(jnp.float32) if eqx.is_inexact_array(x) else x
    args = jtu.tree_map(single, (SYS, q, qd, ctrl))
    out, expected = MANY(*args), MANY(SYS, q, qd, ctrl)
    assert all(x.dtype == jnp.float32 for x in out)
    for a, b in zip(out, expected):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-4)


def test_compiled_once_for_all_numbers(tmp_path):
    """Neither another number, nor the file read again, nor another path compiles."""
    file = tmp_path / "puck.xml"
    file.write_text(PUCK)
    traces = 0

    @eqx.filter_jit
    def run(sys, q, qd, ctrl):
        nonlocal traces
        traces += 1
        return step(sys, q, qd, ctrl)

    args = [x[0] for x in draw(1)]
    first = run(SYS, *args)
    before = _batching._compiled.cache_info().misses
    for sys in (heavier(2.0), load_mjcf(PUCK), load_mjcf(file), jtu.tree_map(abs, SYS)):
        run(sys, *args)
        step(sys, *args)
    assert traces == 1
    # The same for calls without `jit`: one program each for constants and step.
    step(SYS, *args)
    calls = _batching._compiled.cache_info().misses - before
    assert calls <= 2
    assert tree_allclose(run(load_mjcf(PUCK), *args), first)
