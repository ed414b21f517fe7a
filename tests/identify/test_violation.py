"""The objective `Violation`: laws of contact and friction on recorded tosses."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import eqsim
from eqsim import identify
from eqsim.estimate.stochastic_model import measurement
from eqsim.identify._fit import prepare
from eqsim.identify._fit_problem import residuals


RATE, MASS, INERTIA, HALF = 148.0, 0.37, 8.1e-4, 0.05
CUBE = """<mujoco><option timestep="{dt}" cone="elliptic"/><worldbody>
  <geom type="plane" size="5 5 .1" friction="{mu} 0 0" solref="-20000 -600"/>
  <body><freejoint/><inertial mass="0.37" pos="0 0 0" diaginertia="8.1e-4 8.1e-4 8.1e-4"/>
    <geom type="box" size="{half} {half} {half}" friction="{mu} 0 0"
      solref="-20000 -600" solimp="0.95 0.999 0.001"/></body></worldbody></mujoco>"""
UNKNOWNS = {
    "friction": identify.Positive(
        lambda s: s.geoms.friction, entries=((0, 0), (1, 0)), shared=True
    ),
    "size": identify.Positive(
        lambda s: s.geoms.size, entries=((1, 0), (1, 1), (1, 2)), shared=True
    ),
}
WHOLE = identify.Windows(1.0)


def _cube(mu: float, half: float) -> eqsim.System:
    return eqsim.load_mjcf(CUBE.format(dt=0.25 / RATE, mu=mu, half=half))


def _changed(element: str, name: str) -> eqsim.System:
    """The cube with another attribute of the options or of the floor."""
    number = "1 0 0 0 0 0" if name == "surfacevel" else "1"
    text = CUBE.format(dt=0.25 / RATE, mu=0.2, half=HALF)
    return eqsim.load_mjcf(
        text.replace(f"<{element} ", f'<{element} {name}="{number}" ', 1)
    )


def _apart() -> eqsim.System:
    """A cube that touches nothing."""
    text = CUBE.format(dt=0.01, mu=1, half=1).replace(
        '<geom type="plane"', '<geom contype="0" conaffinity="0" type="plane"'
    )
    return eqsim.load_mjcf(text.replace('type="box"', 'type="box" contype="0"'))


def _toss(seed: int, noise: float = 3e-5, rows: int = 80) -> identify.Recording:
    """A cube with friction 0.2, by MuJoCo with small steps."""
    text = CUBE.format(dt=0.05 / RATE, mu=0.2, half=HALF)
    model = mujoco.MjModel.from_xml_string(text)
    data, rng, q = mujoco.MjData(model), np.random.default_rng(seed), []
    turn = rng.normal(size=4)
    data.qpos[:] = 0.0, 0.0, 0.15, *(turn / np.linalg.norm(turn))
    data.qvel[:] = *rng.normal(0, 1.0, 2), -0.5, *rng.normal(0, 6.0, 3)
    for _ in range(rows):
        row = data.qpos.copy()
        row[:3] += rng.normal(0, noise, 3)
        mujoco.mju_quatIntegrate(row[3:], rng.normal(0, noise / HALF, 3), 1.0)
        q.append(row)
        mujoco.mj_step(model, data, 20)
    time = np.arange(rows) / RATE
    return identify.Recording(time, np.zeros((rows, 0)), {"q": q}, f"toss-{seed}")


def _problem(sys, runs, unknowns, objective):
    measure = measurement(identify.JointPositions())
    args = sys, runs, unknowns, WHOLE, None, measure, eqsim.Generalized(), objective
    return prepare(*args).problem


def _residuals(sys, runs, objective=identify.Violation(), unknowns=UNKNOWNS):
    problem = _problem(sys, runs, unknowns, objective)
    found = residuals(problem, problem.origin, jnp.zeros(problem.batch.sd.shape))
    return np.asarray(found["violation"])[0]


def _turned(quat, vector):
    out = np.zeros(3)
    mujoco.mju_rotVecQuat(out, vector, quat)
    return out


def _least_violation(q, weights, mu) -> float:
    """The least violation in three consecutive samples of a cube, by projected gradients
    with momentum."""
    h = 1 / RATE
    twist = np.zeros(3)
    rates = []
    for one, two in itertools.pairwise(q):
        mujoco.mju_subQuat(twist, two[3:], one[3:])
        rates.append(np.concatenate([two[:3] - one[:3], twist]) / h)
    before, after = rates
    weight = np.repeat([MASS, INERTIA], 3)
    jac, gaps = [], []
    for corner in itertools.product((-HALF, HALF), repeat=3):
        arm = _turned(q[1][3:], np.array(corner))
        # A contact is halfway between the corner and the table.
        gap = q[1][2] + arm[2]
        half = arm - np.array([0.0, 0.0, gap / 2])
        turns = [np.cross(_turned(q[1][3:], e), half) for e in np.eye(3)]
        rows = np.concatenate([np.eye(3), np.transpose(turns)], axis=1)
        jac.append(rows[[2, 0, 1]])
        gaps.append(gap)
    jac, gaps = np.array(jac), np.array(gaps)
    free = before + h * np.array([0.0, 0.0, -9.81, 0.0, 0.0, 0.0])
    speeds = jac @ after
    slip = np.linalg.norm(speeds[:, 1:], axis=1)
    ahead = np.abs(gaps + h * speeds[:, 0]) / h
    normal = weights[0] * ahead + weights[1] * mu * slip
    costs = np.concatenate([normal[:, None], weights[1] * speeds[:, 1:]], axis=1)
    flat = jac.reshape(-1, 6)
    matrix = flat / weight @ flat.T + 1e-3 / MASS * np.eye(24)
    linear = flat @ (free - after) + costs.ravel()
    now = old = np.zeros(24)
    step = 1 / np.linalg.eigvalsh(matrix)[-1]
    for k in range(4000):
        point = now + k / (k + 3) * (now - old)
        point = point - step * (matrix @ point + linear)
        old, now = now, _in_cones(point.reshape(-1, 3), mu).ravel()
    constant = 0.5 * np.sum(weight * (free - after) ** 2)
    depth = MASS * np.sum((np.minimum(gaps, 0.0) / h) ** 2)
    best = constant + linear @ now + 0.5 * now @ matrix @ now
    return best + 0.5 * weights[2] * depth


def _in_cones(force, mu):
    """Project forces, normal component first, to friction cones."""
    normal, side = force[:, 0], np.linalg.norm(force[:, 1:], axis=1)
    on = np.maximum((normal + mu * side) / (1 + mu**2), 0.0)
    scale = np.where(side > 0, mu * on / np.maximum(side, 1e-300), 0.0)
    cone = np.concatenate([on[:, None], scale[:, None] * force[:, 1:]], axis=1)
    return np.where((side <= mu * normal)[:, None], force, cone)


def test_residuals_are_the_least_violation():
    """In flight, in impacts and at rest: the squares of the residuals sum up to the minimum
    that projected gradients find."""
    run, weights = _toss(0), (0.4, 2.0, 5.0)
    found = _residuals(_cube(0.3, HALF), [run], identify.Violation(*weights))
    size = 0.5 * (found**2).sum(axis=1) - 0.5 * 8 * 1e-6
    q = run.channels["q"]
    rows = [5, *range(18, 78, 12)]
    expected = [
        _least_violation(q[row - 1 : row + 2], weights, 0.3) / MASS for row in rows
    ]
    assert max(expected) > 5 * min(expected) > 0
    measured = size[np.array(rows) - 1]
    np.testing.assert_allclose(measured, expected, rtol=1e-4, atol=1e-9)


def test_derivatives():
    """Forward mode = reverse mode = differences, by friction, size and place of the table."""
    unknowns = UNKNOWNS | {
        "table": identify.Unbounded(lambda s: s.geoms.pos, entries=((0, 2),)),
        "inertia": identify.Positive(lambda s: s.links.inertia, entries=((0, 1),)),
    }
    sys, runs = _cube(0.3, 0.051), [_toss(2, rows=40)]
    problem = _problem(sys, runs, unknowns, identify.Violation())
    zero = jnp.zeros(problem.batch.sd.shape)
    f = jax.jit(lambda theta: residuals(problem, theta, zero)["violation"])
    at = problem.origin
    forward = np.asarray(jax.jit(jax.jacfwd(f))(at))
    # Logarithms, and the height in meters.
    h = np.array([1e-5, 3e-6, 1e-7, 1e-5])
    pairs = [(f(at + step), f(at - step)) for step in np.diag(h)]
    difference = np.stack([np.asarray(a - b) for a, b in pairs], axis=-1) / (2 * h)
    scale = np.abs(forward).max(axis=(0, 1, 2))
    assert (scale > 1e-2).all()
    scaled, difference = forward / scale, difference / scale
    np.testing.assert_allclose(scaled, difference, rtol=1e-4, atol=1e-5)
    weight = jax.random.normal(jax.random.key(0), forward.shape[:-1])
    reverse = jax.jit(jax.grad(lambda x: jnp.sum(weight * f(x))))(at)
    forward = jnp.tensordot(weight, forward, weight.ndim)
    np.testing.assert_allclose(forward, reverse, rtol=1e-7, atol=1e-9)


# Compiles the Jacobian of the cube, and fits three tosses.
@pytest.mark.slow
def test_friction_and_size_are_found():
    """From three times the friction, and a cube that is a tenth too large."""
    runs = [_toss(seed) for seed in range(3)]
    sys = _cube(0.6, 0.055)
    result = identify.fit(
        sys, runs, UNKNOWNS, windows=WHOLE, objective=identify.Violation()
    )
    assert result.values[0] == pytest.approx(0.2, rel=0.1)
    assert result.values[1] == pytest.approx(HALF, rel=0.005)
    # One noise of all residuals: their weights are those of the loss.
    assert result.sigma["violation"].shape == (1,)


# Compiles the Jacobian of the cube twice.
@pytest.mark.slow
def test_noise_makes_friction_too_small():
    """Less so with velocities over two samples."""
    runs, errors = [_toss(seed, 2e-4) for seed in range(4)], []
    for samples in (1, 2):
        objective = identify.Violation(samples=samples)
        result = identify.fit(
            _cube(0.6, 0.055), runs, UNKNOWNS, windows=WHOLE, objective=objective
        )
        errors.append(1 - result.values[0] / 0.2)
    assert 0.1 < errors[0] < 0.3
    assert 0.0 < errors[1] < errors[0]


def test_total_mass_has_no_influence():
    """In free flight and in contact, because nothing but weight acts."""
    sys, run = _cube(0.3, HALF), _toss(2, rows=40)
    where = lambda s: (s.links.mass, s.links.inertia)
    heavy = eqx.tree_at(where, sys, tuple(7.0 * x for x in where(sys)))
    one, two = (_residuals(x, [run]) for x in (sys, heavy))
    np.testing.assert_allclose(one, two, rtol=1e-6, atol=1e-9)
    flying = np.tile(1e-3 * (np.arange(16) < 8), (12, 1))
    np.testing.assert_allclose(one[:12, 6:], flying, atol=1e-9)


SPHERES = """<mujoco><option gravity="0 0 0"/><worldbody>
  <body><freejoint/><inertial mass="{heavy}" pos="0 0 0"
    diaginertia="{heavy} {heavy} {heavy}"/><geom type="sphere" size="0.2" condim="{dim}"
    friction="0.4 0.02 0.01"/></body>
  <body pos="0 0 0.3"><freejoint/>
    <inertial mass="1" pos="0 0 0" diaginertia="0.01 0.02 0.03"/>
    <geom type="sphere" size="0.1" condim="{dim}"/></body></worldbody></mujoco>"""


# Compiles the residuals of four pairs of spheres.
@pytest.mark.parametrize("dim", (1, 4))
@pytest.mark.filterwarnings("ignore:Channel 'q' is constant")
@pytest.mark.slow
def test_contacts_between_links(dim):
    """A body that is a million times as heavy is like the world."""
    two = SPHERES.format(heavy=1e6, dim=dim)
    one = two.replace("<body><freejoint/>", "<body>", 1)
    rows = 6
    time, ctrl = 0.02 * np.arange(rows), np.zeros((rows, 0))
    still = np.tile([0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0], (rows, 1))
    # It falls upon the other one, and stays there, sliding and turning.
    fall = (
        still
        + np.outer(time, [0.3, 0.1, -0.2, 0.0, 0.0, 0.0, 0.0])
        + [0, 0, 0.305, 0, 0, 0, 0]
    )
    fall[3:, 2] = fall[2, 2]
    for k in range(1, rows):
        fall[k, 3:] = fall[k - 1, 3:]
        mujoco.mju_quatIntegrate(fall[k, 3:], np.array([0.05, -0.02, 0.03]), 1.0)
    size = {"size": identify.Positive(lambda s: s.geoms.size, entries=((1, 0),))}
    found = []
    for text, q in ((one, fall), (two, np.concatenate([still, fall], axis=1))):
        run = identify.Recording(time, ctrl, {"q": q})
        residual = _residuals(eqsim.load_mjcf(text), [run], unknowns=size)
        # The violation, of which residuals are the root per mass of all links.
        found.append((np.sum(residual**2, axis=1) - 1e-6) * (1e6 + 1))
    assert found[0].max() > 1e-3
    np.testing.assert_allclose(*found, rtol=1e-4, atol=1e-6)


REFUSED = {
    "needs the pipeline `Generalized`": dict(pipeline=eqsim.Spring()),
    "`Violation` does not simulate": dict(windows=WHOLE._replace(continuity=1.0)),
    "has no channel 'pose'": dict(windows=WHOLE._replace(channel="pose")),
    "fewer than 2 rows with 10 samples on each side": dict(
        objective=identify.Violation(samples=10)
    ),
    "no shapes of this robot can touch": dict(sys=_apart()),
    "does not support noslip_iterations": dict(
        sys=_changed("option", "noslip_iterations")
    ),
    "does not support adhesion": dict(sys=_changed("geom", "adhesion")),
    "does not support surface_velocity": dict(sys=_changed("geom", "surfacevel")),
}


@pytest.mark.parametrize("message", REFUSED)
def test_refusals(message):
    options = {
        "sys": _cube(0.2, HALF),
        "unknowns": {"g": identify.Unbounded(lambda s: s.gravity, entries=(2,))},
        "objective": identify.Violation(),
        "windows": WHOLE,
    }
    with pytest.raises(ValueError, match=message):
        identify.fit(recordings=_toss(0, rows=20), **(options | REFUSED[message]))


@pytest.mark.parametrize(
    "options",
    (
        dict(complementarity=-1.0),
        dict(penetration=np.nan),
        dict(samples=0),
        dict(reach=0),
    ),
)
def test_bad_weights(options):
    with pytest.raises(ValueError, match=f"`Violation.{next(iter(options))}` must be"):
        identify.Violation(**options)
