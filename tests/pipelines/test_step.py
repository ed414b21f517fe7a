"""A step gives the same numbers however it is called, and is compiled once."""

import functools as ft

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
import pytest
from helpers import tree_allclose

import eqsim
from eqsim import _batching, Generalized, load_mjcf
from eqsim._primitive import rows_together
from eqsim.testing import random_configuration, random_system


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


BATCH = 5


def stepped(seed):
    """The next states of a random robot, by a program that is compiled for the call."""
    sys = random_system(seed, 1 + seed % 4, num_roots=1, with_fluid=seed % 3 == 0)
    pairs = [random_configuration(BATCH * seed + k, sys, 0.3) for k in range(BATCH)]
    q, qd = map(jnp.stack, zip(*pairs, strict=True))
    ctrl = jnp.asarray(np.random.default_rng(seed).normal(size=(BATCH, sys.nu)))
    act = jnp.zeros((BATCH, sys.na))
    step = lambda *x: eqsim.Generalized().step(sys, eqsim.State(*x[:3]), x[3])
    new = jax.jit(jax.vmap(step))(q, qd, act, ctrl)
    return np.concatenate([new.q, new.qd], axis=1)


GROUPS = [range(k, k + 10) for k in range(0, 200, 10)]


@pytest.mark.slow  # Each compiles everything twice; the tests above are quick.
@pytest.mark.parametrize("seeds", GROUPS, ids=lambda seeds: f"from {seeds.start}")
def test_kernels_and_xla(seeds, monkeypatch):
    """Both simulate the same robots, to rounding."""
    failed = {}
    for seed in seeds:
        monkeypatch.setenv("EQSIM_KERNELS", "on")
        kernels = stepped(seed)
        monkeypatch.setenv("EQSIM_KERNELS", "off")
        xla = stepped(seed)
        scale = np.maximum(1.0, np.abs(xla).max(axis=1, keepdims=True))
        error = np.max(np.abs(kernels - xla) / scale)
        if not error <= 1e-12:
            failed[seed] = error
    assert not failed, failed


SHAPES = {
    "box": 'type="box" size=".1 .08 .12"',
    "cylinder": 'type="cylinder" size=".1 .1"',
    "hull": 'type="mesh" mesh="small"',
    "large hull": 'type="mesh" mesh="large"',
    "capsule": 'type="capsule" size=".06 .1"',
}
SCENE = """
<mujoco>
  <option cone="{cone}"/>
  <asset><mesh name="small" vertex="{small}"/><mesh name="large" vertex="{large}"/></asset>
  <worldbody>
    <geom type="plane" size="5 5 1"/><geom type="box" size=".3 .3 .1" pos="0 0 .1"/>
    {bodies}
  </worldbody>
</mujoco>"""


def hull(count):
    points = np.random.default_rng(count).normal(size=(count, 3))
    points *= 0.12 / np.linalg.norm(points, axis=1, keepdims=True)
    return " ".join(f"{x:.5f}" for x in points.ravel())


def scene(shapes, cone):
    body = '<body><freejoint/><geom {} density="300"/></body>'
    bodies = "".join(body.format(SHAPES[name]) for name in shapes)
    text = SCENE.format(cone=cone, small=hull(30), large=hull(300), bodies=bodies)
    rng = np.random.default_rng(0)
    q = rng.normal(size=(6, len(shapes), 7))
    q[..., :3] = rng.uniform(-0.15, 0.15, (6, len(shapes), 3)) + [0, 0, 0.3]
    q[..., 3:] /= np.linalg.norm(q[..., 3:], axis=-1, keepdims=True)
    qd = 0.1 * rng.normal(size=(6, 6 * len(shapes)))
    return eqsim.load_mjcf(text), jnp.asarray(q.reshape(6, -1)), jnp.asarray(qd)


def steps(sys, q, qd):
    none = jnp.zeros(0)
    one = lambda q, qd: eqsim.Generalized().step(sys, eqsim.State(q, qd, none), none)
    new = jax.vmap(one)(q, qd)
    return new.q, new.qd


def loss(sys, friction, q, qd):
    sys = eqx.tree_at(lambda sys: sys.geoms.friction, sys, friction)
    return sum(jnp.sum(x**2) for x in steps(sys, q, qd))


def both(function, given, monkeypatch):
    """Return the results of kernels and of lanes."""
    run = lambda: jax.tree.map(np.asarray, jax.jit(lambda *xs: function(*xs))(*given))
    kernels = run()
    monkeypatch.setenv("EQSIM_KERNELS", "off")
    monkeypatch.setattr("eqsim._lists.MOST_LANES", 4)
    monkeypatch.setattr("eqsim._lists.MOST_IN_NEED", 2)
    with rows_together():
        return kernels, run()


@pytest.mark.slow
@pytest.mark.parametrize("cone", ("pyramidal", "elliptic"))
@pytest.mark.parametrize(
    "shapes", (("box", "hull"), ("cylinder", "cylinder"), ("large hull", "capsule"))
)
def test_steps(shapes, cone, monkeypatch):
    """As on a GPU, with more near pairs than a chunk has lanes."""
    sys, q, qd = scene(shapes, cone)
    kernels, lanes = both(ft.partial(steps, sys), (q, qd), monkeypatch)
    for one, two in zip(kernels, lanes, strict=True):
        np.testing.assert_allclose(two, one, rtol=1e-9, atol=1e-9)


@pytest.mark.slow
def test_gradients(monkeypatch):
    sys, q, qd = scene(("box", "hull"), "pyramidal")
    gradient = jax.grad(ft.partial(loss, sys), (0, 1, 2))
    given = sys.geoms.friction, q, qd
    kernels, lanes = both(gradient, given, monkeypatch)
    for one, two in zip(kernels, lanes, strict=True):
        assert np.any(one)
        np.testing.assert_allclose(two, one, rtol=1e-7, atol=1e-8)
