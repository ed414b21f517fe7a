"""Softness of rows as MuJoCo documents it, sparse Jacobians, and the line search."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from helpers import check_gradients

from eqsim import Generalized, load_mjcf
from eqsim.constraint import DenseJacobian, rows, sparse_jacobian
from eqsim.constraint.costs import impedance, softness
from eqsim.constraint.newton import least_share
from eqsim.constraint.rows import total
from eqsim.dynamics.joint_space import symmetric_matrix
from eqsim.spatial import Motion, Vec3


DT = jnp.array(0.002)


def soft(solref=(0.02, 1.0), solimp=(0.9, 0.95, 0.001, 0.5, 2.0), safe=True):
    array = lambda values: [jnp.asarray(float(x)) for x in values]
    return softness(array(solref), array(solimp), DT, safe)


def documented(violation, d0, width_d, width, midpoint, power):
    """*Modeling*, "Solver parameters": $d(r)$, written as there."""
    x = abs(violation) / width
    if x >= 1.0:
        return width_d
    if x <= midpoint:
        y = x**power / midpoint ** (power - 1)
    else:
        y = 1 - (1 - x) ** power / (1 - midpoint) ** (power - 1)
    return d0 + y * (width_d - d0)


@pytest.mark.parametrize(
    "solimp",
    (
        (0.9, 0.95, 0.001, 0.5, 2.0),
        (0.2, 0.99, 0.01, 0.3, 1.0),
        (0.2, 0.99, 0.01, 0.7, 6.0),
        (0.95, 0.5, 0.02, 0.5, 1.5),
    ),
)
def test_impedance(solimp):
    violations = -np.linspace(0.0, 1.5, 31) * solimp[2]
    curve = jax.vmap(lambda r: impedance(soft(solimp=solimp), r))
    expected = [documented(r, *solimp) for r in violations]
    np.testing.assert_allclose(curve(jnp.asarray(violations)), expected, rtol=1e-12)


def test_impedance_out_of_range():
    """Numbers outside of their range are clipped, and a width of zero is the mean."""
    bad = soft(solimp=(-1.0, 2.0, 0.01, 3.0, 0.5))
    expected = documented(-0.004, 1e-4, 0.9999, 0.01, 0.9999, 1.0)
    assert float(impedance(bad, jnp.array(-0.004))) == pytest.approx(expected)
    flat = soft(solimp=(0.8, 0.9, 0.0, 0.5, 2.0))
    assert float(impedance(flat, jnp.array(-0.1))) == pytest.approx(0.85)


def value(solimp, violation):
    return impedance(softness([DT * 10, DT], solimp, DT, True), violation)


# Compiled once for all cases.
SLOPES = jax.jit(jax.grad(value, argnums=(0, 1)))


@pytest.mark.parametrize("power", (1.0, 1.5, 2.0, 3.0))
@pytest.mark.parametrize("depth", (0.0, 0.004, 0.005, 0.007, 0.01, 0.02))
@pytest.mark.quick_cases("0.0-1.0", "0.005-1.5", "0.007-2.0", "0.02-3.0")
def test_derivatives_are_finite(power, depth):
    """Also at the start, where the pieces meet, and at the width."""
    solimp = [jnp.asarray(x) for x in (0.8, 0.95, 0.01, 0.5, power)]
    grads = SLOPES(solimp, jnp.array(-depth))
    assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves(grads))
    if depth in (0.004, 0.007) and power > 1.0:
        largest = check_gradients(value, solimp, jnp.array(-depth))
        assert all(x > 0 for x in largest.values())


def test_reference_acceleration():
    """*Modeling*, "Solver parameters": stiffness and damping from `solref`."""
    dmax = 0.95
    standard = soft((0.03, 0.7))
    assert float(standard.b) == pytest.approx(2 / (dmax * 0.03))
    assert float(standard.k) == pytest.approx(1 / (dmax**2 * 0.03**2 * 0.7**2))
    direct = soft((-100.0, -5.0))
    assert float(direct.b) == pytest.approx(5 / dmax)
    assert float(direct.k) == pytest.approx(100 / dmax**2)


def test_short_time_constants():
    """They are raised to two time steps, unless that is switched off."""
    short, limit = soft((0.001, 1.0)), soft((0.004, 1.0))
    assert float(short.k) == float(limit.k) and float(short.b) == float(limit.b)
    free = soft((0.001, 1.0), safe=False)
    assert float(free.b) == pytest.approx(2 / (0.95 * 0.001))


def test_mixed_formats_are_the_default():
    for mixed in ((-0.1, 1.0), (0.05, -1.0)):
        assert float(soft(mixed).k) == float(soft((0.02, 1.0)).k)


NV, ROWS = 7, 6
SLIDING = """
<mujoco><default><geom friction=".5" solref="-5000 -20"/></default><worldbody>
  <geom type="plane" size="2 2 1"/>
  <body pos="0 0 .098"><joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 0 1"/>
    <geom size=".1" mass="1"/></body>
</worldbody></mujoco>"""
MIXED = {
    "friction": (lambda sys: sys.geoms.friction, 0),
    "stiffness": (lambda sys: sys.geoms.solref, 0),
}


@pytest.mark.parametrize("kernels", ("on", "off"))
@pytest.mark.parametrize("name", MIXED)
@pytest.mark.quick_cases("friction-on")
def test_equal_shapes_share_the_derivative(name, kernels, monkeypatch):
    """Of the larger friction, and of the smaller `solref` of the direct format, each of two
    equal shapes has half of the derivative: that is its central difference."""
    monkeypatch.setenv("EQSIM_KERNELS", kernels)
    (where, column), sys = MIXED[name], load_mjcf(SLIDING)
    start = Generalized().init(sys)
    start = eqx.tree_at(lambda s: s.qd, start, jnp.array([1.0, -0.1]))
    at = where(sys)[:, column]

    @jax.jit
    def acceleration(values):
        changed = eqx.tree_at(where, sys, where(sys).at[:, column].set(values))
        return Generalized().acceleration(changed, start, jnp.zeros(0))[0]

    found = jax.jit(jax.grad(acceleration))(at)
    steps = 1e-6 * at[0] * np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    differences = np.array(
        [(acceleration(at + h) - acceleration(at - h)) / 2e-6 for h in steps]
    )
    expected = np.stack([*found, jnp.sum(found)]) * at[0]
    np.testing.assert_allclose(expected, differences, rtol=1e-5)
    np.testing.assert_array_equal(found[0], found[1])
    assert abs(found[0]) > 1e-6
    np.testing.assert_allclose(jax.jit(jax.jacfwd(acceleration))(at), found, rtol=1e-9)


DOFS = (0, 3), (1,), (), (2, 3, 6), (0, 3), (3, 5)


@pytest.fixture(scope="module")
def pair():
    full = jr.normal(jr.key(0), (ROWS, NV, 2))
    mask = np.array([[dof in own for dof in range(NV)] for own in DOFS], float)
    full = full * mask[..., None]
    return sparse_jacobian(full, DOFS), DenseJacobian((full,))


def matrix(terms):
    parts = [symmetric_matrix(values, places, NV) for values, places in terms.entries]
    return sum(parts, jnp.zeros((NV, NV, 2)))


def test_products(pair):
    """Of sparse Jacobians, beside dense ones."""
    zero = Vec3(*3 * [jnp.zeros((1, 2))])
    still, qdd = Motion(zero, zero), jr.normal(jr.key(1), (NV, 2))
    force = (jr.normal(jr.key(2), (ROWS, 2)),)
    times = [each.times(still, qdd)[0] for each in pair]
    np.testing.assert_allclose(*times, rtol=1e-12, atol=1e-14)
    found, expected = (total(each.transpose(force).dofs, NV) for each in pair)
    assert found is not None and expected is not None
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("most", (1024, 12, 1))
def test_stiffness(pair, most, monkeypatch):
    """As one array, or several of at most so many products."""
    monkeypatch.setattr(rows, "_MOST_PRODUCTS", most)
    weights = ((jr.uniform(jr.key(3), (ROWS, 2)),),)
    sparse, dense = (each.weigh(weights) for each in pair)
    np.testing.assert_allclose(matrix(sparse), matrix(dense), rtol=1e-12, atol=1e-14)
    for _, places in sparse.entries:
        assert len(set(places)) == len(places)


def test_many_rows_on_one_dof():
    """More rows than are padded together."""
    full = jnp.asarray(np.random.default_rng(0).normal(size=(9, NV, 2)))
    only = (np.arange(NV) == 4).astype(float)
    full = full * only[None, :, None]
    sparse, dense = sparse_jacobian(full, [(4,)] * 9), DenseJacobian((full,))
    weights = ((jnp.ones((9, 2)),),)
    found, expected = (matrix(each.weigh(weights)) for each in (sparse, dense))
    np.testing.assert_allclose(found, expected, rtol=1e-12)


COUNT = 2000


def test_it_decreases_the_cost():
    """Never more than at the start, and mostly nearly as much as possible."""
    rng = np.random.default_rng(0)
    kink = 10.0 ** rng.uniform(-6.0, -0.1, (COUNT, 8))
    weight = 10.0 ** rng.uniform(-2.0, 6.0, (COUNT, 8))

    def slope(share):
        beyond = jnp.maximum(share[:, None] - kink, 0.0)
        return -1.0 + 0.3 * share + jnp.sum(weight * beyond, axis=1)

    def cost(share):
        beyond = np.maximum(share[:, None] - kink, 0.0)
        return -share + 0.15 * share**2 + 0.5 * np.sum(weight * beyond**2, axis=1)

    low, high = np.zeros(COUNT), np.ones(COUNT)
    rising = jax.jit(lambda x: slope(x) > 0.0)
    for _ in range(80):
        middle = 0.5 * (low + high)
        above = np.asarray(rising(middle))
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    found = np.asarray(jax.jit(lambda one: least_share(slope, one))(jnp.ones(COUNT)))
    share = cost(found) / cost(low)
    assert np.min(share) > 0.0 and np.median(share) > 0.999
    assert np.quantile(share, 0.1) > 0.4
