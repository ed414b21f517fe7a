"""Hulls of meshes that touch balls and ellipsoids, in a robot."""

import equinox as eqx
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from trajectories import converged

from eqsim import Generalized, load_mjcf, Spring, State
from eqsim.testing import check_kernels
from eqsim.testing.component_laws import contact_points


WEDGE = "-.3 -.2 0  .3 -.2 0  .3 .2 0  -.3 .2 0  -.3 0 .25  .3 0 .2"
ROCK = ".1 0 0  -.1 .05 0  0 -.1 .02  0 .02 .15  .05 .05 -.1  -.04 -.03 -.12"
SCENE = """
<mujoco><option timestep="0.004" ccd_tolerance="1e-12" ccd_iterations="200"/>
  <asset><mesh name="wedge" vertex="{wedge}"/><mesh name="rock" vertex="{rock}"/></asset>
  <worldbody>
    <geom name="ground" type="mesh" mesh="wedge" condim="{condim}"/>
    <body pos="0 .03 {height}"><freejoint/>
      <geom name="ball" type="{kind}" size="{size}" condim="{condim}"
        contype="5" conaffinity="3"/></body>
    <body pos=".25 .2 .05" euler="10 20 30"><freejoint/>
      <geom name="rock" type="mesh" mesh="rock" contype="2" conaffinity="4"/></body>
  </worldbody>
</mujoco>"""
KINDS = {"sphere": (".1", 0.33), "ellipsoid": (".1 .06 .08", 0.3)}


def robot(kind, condim=3):
    """A ball between a wedge that stands still and a rock; only the ball touches both."""
    size, height = KINDS[kind]
    text = SCENE.format(
        wedge=WEDGE, rock=ROCK, kind=kind, size=size, height=height, condim=condim
    )
    return load_mjcf(text), converged(mujoco.MjModel.from_xml_string(text))


def states(model, count, seed=0):
    rng = np.random.default_rng(seed)
    out = []
    for _ in range(count):
        data = mujoco.MjData(model)
        data.qpos[:] += 0.03 * rng.normal(size=model.nq)
        data.qvel[:] = 0.3 * rng.normal(size=model.nv)
        mujoco.mj_forward(model, data)
        out.append(data)
    return out


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("condim", (1, 3))
@pytest.mark.quick_cases("3-ellipsoid")
def test_accelerations(kind, condim):
    sys, model = robot(kind, condim)
    found = states(model, 60)
    assert sum(data.ncon > 0 for data in found) > 15
    q, qd = (jnp.asarray([getattr(d, k) for d in found]) for k in ("qpos", "qvel"))
    none = jnp.zeros(0)
    solve = lambda q, qd: Generalized().acceleration(sys, State(q, qd, none), none)
    qdd = np.asarray(jax.jit(jax.vmap(solve))(q, qd))
    for data, own in zip(found, qdd, strict=True):
        # Of smooth shapes, MuJoCo's normal has the root of the error of its distance.
        atol = 5e-4 if kind == "ellipsoid" else 1e-5
        size = max(1.0, np.max(np.abs(data.qacc)))
        np.testing.assert_allclose(own, data.qacc, rtol=0, atol=atol * size)


@pytest.mark.slow  # `make test` runs kernels in all tests.
def test_without_fallback():
    sys, _ = robot("sphere")
    for pipeline in (Generalized(), Spring()):
        check_kernels(pipeline.step, sys, pipeline.init(sys), jnp.zeros(0))


@pytest.mark.slow  # `test_manifold.py` has points of hulls.
def test_mirrored_meshes():
    """Two directions are equally deep. Beside this tie contacts are those of MuJoCo, and
    on it those of one side."""
    sign = np.stack(np.meshgrid([-1, 1], [-1, 1], [0, 1], indexing="ij"), -1)
    sign = sign.reshape(-1, 3)
    finger = sign * [0.01, 0.008, 0.05] * (1 - sign[:, 2:] * [0.3, 0.2, 0])
    finger += 1e-3 * np.random.default_rng(14).normal(size=finger.shape)
    finger -= finger[:, 1].max() * np.array([0.0, 1.0, 0.0])
    words = [" ".join(map(str, (finger * [1, s, 1]).ravel())) for s in (1, -1)]
    bodies = "".join(
        f'<body name="{k}"><freejoint/><geom type="mesh" mesh="{k}" mass="1"/></body>'
        for k in "ab"
    )
    text = f"""<mujoco><option ccd_tolerance="1e-14" ccd_iterations="200"/><asset>
      <mesh name="a" vertex="{words[0]}"/><mesh name="b" vertex="{words[1]}"/></asset>
      <worldbody>{bodies}</worldbody></mujoco>"""
    sys, pipeline = load_mjcf(text), Generalized()
    model = mujoco.MjModel.from_xml_string(text)
    data, found = mujoco.MjData(model), []
    at = lambda q: pipeline.init(sys, q, jnp.zeros(12))
    contacts = eqx.filter_jit(lambda q: pipeline.contacts(sys, at(q), jnp.zeros(0)))
    for turn in (-1e-6, 0.0, 1e-6):
        data.qpos[:] = [0, 2e-3, 0, 1, 0, 0, 0, 0, -2e-3, 0, 1, turn, 0, 0]
        mujoco.mj_forward(model, data)
        near = np.sort([contact.dist for contact in data.contact])
        dist = np.asarray(contacts(jnp.array(data.qpos)).dist)
        found.append(np.sort(dist[np.isfinite(dist)]))
        if turn:
            np.testing.assert_allclose(found[-1], near, rtol=0, atol=1e-9)
    before, tie, after = found
    assert len(before) != len(after)
    beside = before if len(before) == len(tie) else after
    np.testing.assert_allclose(tie, beside, rtol=0, atol=1e-6)


def test_derivatives_at_small_facets_in_single_precision():
    """At edges and corners of facets of a millimeter, the area between the vertices that
    touch is rounding, and its inverse square overflows."""
    rng = np.random.default_rng(0)
    turns = rng.normal(size=(264, 3))
    turns /= np.linalg.norm(turns, axis=1, keepdims=True)
    stone, way = 0.005 * turns[:200], turns[200:]
    text = f"""
    <mujoco>
      <asset><mesh name="stone" vertex="{" ".join(map(str, stone.ravel()))}"/></asset>
      <worldbody>
        <geom type="mesh" mesh="stone"/>
        <body><freejoint/><geom type="sphere" size="0.01"/></body>
      </worldbody>
    </mujoco>"""
    with jax.enable_x64(False):
        sys = load_mjcf(text)
        turn = np.tile([1.0, 0.0, 0.0, 0.0], (len(way), 1))
        q = jnp.asarray(np.hstack([0.0148 * way, turn]), jnp.float32)
        slope = jax.jit(jax.vmap(jax.grad(lambda q: contact_points(sys, q)[0][0])))(q)
    np.testing.assert_allclose(np.linalg.norm(slope[:, :3], axis=1), 1.0, atol=1e-3)
