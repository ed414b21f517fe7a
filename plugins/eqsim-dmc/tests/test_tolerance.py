"""`tolerance` beside that of dm_control, and `touch` beside the sensor of MuJoCo."""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from eqsim_dmc import sigmoids, tolerance, touch
from jax.test_util import check_grads

import eqsim


NAMES = (
    "cosine",
    "gaussian",
    "hyperbolic",
    "linear",
    "long_tail",
    "quadratic",
    "reciprocal",
    "tanh_squared",
)
TAKE_ZERO = "cosine", "linear", "quadratic"
BOUNDS = (0.0, 0.0), (-0.5, 1.5), (0.3, np.inf), (-np.inf, -0.2)
X = np.concatenate([np.linspace(-4.0, 4.0, 161), [-50.0, 50.0]])

each = pytest.mark.parametrize("name", NAMES)


def sigmoid(name):
    return vars(sigmoids)[name]


@each
@pytest.mark.parametrize("bounds", BOUNDS)
def test_values(name, bounds):
    rewards = pytest.importorskip("dm_control.utils.rewards")
    for margin in (0.0, 0.4, 3.0):
        for value in (0.0, 0.1, 0.7):
            if value == 0.0 and name not in TAKE_ZERO:
                continue
            ours = tolerance(jnp.asarray(X), bounds, margin, sigmoid(name), value)
            theirs = rewards.tolerance(X, bounds, margin, name, value)
            np.testing.assert_allclose(ours, theirs, 1e-12, 1e-12)


@each
def test_definition(name):
    """1 inside and at the bounds, the value at the margin, less and less beyond."""
    x = jnp.asarray([-1.0, 0.0, 0.5, 1.0, 3.0])
    near = tolerance(x, (-1.0, 1.0), 2.0, sigmoid(name), 0.3)
    np.testing.assert_allclose(near, [1.0, 1.0, 1.0, 1.0, 0.3], 1e-12)
    x = jnp.linspace(1.0, 9.0, 60)
    far = tolerance(x, (-1.0, 1.0), 2.0, sigmoid(name), 0.3)
    assert np.all(np.diff(far) <= 0.0) and np.all(far >= 0.0)
    np.testing.assert_allclose(far, tolerance(-x, (-1.0, 1.0), 2.0, sigmoid(name), 0.3))


@each
def test_gradients(name):
    """By the number, the bounds, the margin and the value, against differences."""

    @jax.jit
    def value(x, low, high, margin, least):
        return tolerance(x, (low, high), margin, sigmoid(name), least)

    for x in (-1.3, -0.4, 0.2, 1.7):
        numbers = tuple(jnp.asarray(a) for a in (x, -0.5, 1.0, 1.5, 0.2))
        check_grads(value, numbers, order=1, modes=("fwd", "rev"), rtol=1e-5)


@each
def test_gradients_are_finite(name):
    """With infinite bounds, far away, at the bounds and without margin."""
    for bounds in BOUNDS:
        for margin in (0.0, 1.0):
            slope = jax.grad(lambda x: tolerance(x, bounds, margin, sigmoid(name), 0.1))
            slopes = jax.jit(jax.vmap(slope))(
                jnp.asarray([*X, 0.3, -0.2, 1.5, -1e9, 1e9])
            )
            assert np.all(np.isfinite(slopes))


def test_single_precision():
    x = jnp.asarray([0.0, 2.0], jnp.float32)
    assert tolerance(x, (0.0, 1.0), 1.0).dtype == jnp.float32


def test_errors():
    x = jnp.zeros(())
    with pytest.raises(ValueError, match=r"ascending order, got \(1.0, 0.0\)"):
        tolerance(x, (1.0, 0.0))
    with pytest.raises(ValueError, match="`margin` must be at least 0, got -1.0"):
        tolerance(x, margin=-1.0)
    with pytest.raises(ValueError, match="0 < value < 1 for `gaussian`, got 0.0"):
        tolerance(x, margin=1.0, value_at_margin=0.0)
    with pytest.raises(ValueError, match="0 <= value < 1 for `linear`, got 1.0"):
        tolerance(x, margin=1.0, sigmoid=sigmoids.linear, value_at_margin=1.0)


# Inside of a zone, before it, behind it, and beside it; on a link that touches the ground
# as second shape, and another link as first.
PLACES = [
    (0.0, 0.0, -0.1),
    (0.0, 0.0, 0.0),
    (0.3, 0.0, -0.4),
    (0.3, 0.05, -0.3),
    (-0.3, 0.0, 0.3),
    (0.0, 0.6, 0.0),
]
RADII = [0.25, 0.05, 0.12, 0.2, 0.15, 0.1]
SITES = "".join(
    f'<site name="s{k}" pos="{x} {y} {z}" size="{radius}"/>'
    for k, ((x, y, z), radius) in enumerate(zip(PLACES, RADII))
)
XML = f"""
<mujoco>
  <option><flag multiccd="disable"/></option>
  <worldbody>
    <geom type="plane" size="5 5 1"/>
    <body name="low"><freejoint/>{SITES}
      <geom type="capsule" size="0.1" fromto="-0.3 0 0 0.3 0 0"/></body>
    <body name="high"><freejoint/><geom type="sphere" size="0.2"/></body>
  </worldbody>
  <sensor>{"".join(f'<touch site="s{k}"/>' for k in range(len(PLACES)))}</sensor>
</mujoco>
"""


def test_touch():
    model = mujoco.MjModel.from_xml_string(XML)
    model.opt.tolerance, model.opt.iterations = 0.0, 100
    data, sys = mujoco.MjData(model), eqsim.load_mjcf(XML)
    pipeline, rng, felt = eqsim.Generalized(), np.random.default_rng(0), []

    @jax.jit
    def feel(q, qd):
        state = pipeline.init(sys, q, qd)
        found = pipeline.contacts(sys, state, jnp.zeros(0))
        zones = zip(PLACES, RADII)
        at = lambda place, r: (jnp.asarray(place), jnp.asarray(r))
        return jnp.stack([touch(sys, q, found, 0, *at(*zone)) for zone in zones])

    for _ in range(20):
        turn = np.array([1.0, *rng.normal(0.0, 0.15, 3)])
        q = np.concatenate([[0, 0, 0.09], turn / np.linalg.norm(turn)])
        above = rng.uniform(-0.2, 0.2, 2)
        q = np.concatenate([q, [above[0], above[1] / 4, 0.36], [1, 0, 0, 0]])
        data.qpos[:], data.qvel[:] = q, rng.normal(0.0, 0.3, model.nv)
        mujoco.mj_forward(model, data)
        ours = feel(jnp.asarray(q), jnp.asarray(data.qvel))
        np.testing.assert_allclose(ours, data.sensordata, 1e-6, 1e-6)
        felt.append(data.sensordata > 0.0)
    # Zones feel something at times, and nothing at others.
    share = np.mean(felt, axis=0)
    assert np.sum((share > 0.0) & (share < 1.0)) >= 3
