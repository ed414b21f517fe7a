"""Parts of tasks: starts without contact, springs, terrain."""

import eqsim_dmc
import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import mujoco
import numpy as np
import pytest
from eqsim_dmc import draw_without_contact, lift_without_contact
from eqsim_dmc._quadruped import _spline_matrix
from jax.test_util import check_grads
from scipy import ndimage
from scipy.linalg import solve_discrete_are

import eqsim


pytest.importorskip("dm_control")

from _dm_control import Theirs


XML = """
<mujoco>
  <worldbody>
    <geom type="plane" size="1 1 1"/>
    <body pos="0 0 {height}">
      <joint name="lift" type="slide" axis="0 0 1" range="-1 1"/>
      <geom size="0.1"/>
    </body>
  </worldbody>
</mujoco>
"""


@pytest.mark.parametrize("name", ["dmc_ball_in_cup_catch", "dmc_finger_spin"])
def test_nothing_touches(name):
    """As MuJoCo counts contacts, in every start."""
    env, theirs = eqsim.make(name), Theirs(name)
    start = lambda key: env.initial(key).q
    drawn = jax.jit(jax.vmap(start))(jr.split(jr.key(0), 200))
    for q in np.asarray(drawn):
        theirs.data.qpos[:] = q
        mujoco.mj_forward(theirs.model, theirs.data)
        assert theirs.data.ncon == 0
    assert len(np.unique(drawn[:, -1])) == 200


def test_distribution():
    """Uniform over the heights without contact; the others are redrawn."""
    sys = eqsim.load_mjcf(XML.format(height=0.5))
    many = jax.jit(jax.vmap(lambda key: draw_without_contact(_uniform, key, sys)))
    height = 0.5 + np.sort(many(jr.split(jr.key(0), 2000))[:, 0])
    assert height[0] > 0.1
    expected = np.linspace(0.1, 1.5, 2000)
    assert np.max(np.abs(height - expected)) / 1.4 < 1.95 / np.sqrt(2000)


def test_gradient():
    """By the range from which the accepted draw is, in both modes."""
    sys = eqsim.load_mjcf(XML.format(height=0.5))

    def drawn(bounds):
        robot = eqx.tree_at(lambda s: s.joints.range, sys, bounds)
        return draw_without_contact(_uniform, jr.key(1), robot)[0]

    bounds = sys.joints.range
    share = (jax.jit(drawn)(bounds) - bounds[0, 0]) / 2.0
    expected = jnp.stack([1.0 - share, share])[None]
    for derivative in (jax.jacfwd(drawn), jax.jacrev(drawn)):
        np.testing.assert_allclose(jax.jit(derivative)(bounds), expected, 1e-12)


def test_always_in_contact():
    """Drawing ends after 10,000 draws."""
    sys = eqsim.load_mjcf(XML.format(height=-2.0))
    q = jax.jit(lambda key: draw_without_contact(_uniform, key, sys))(jr.key(0))
    assert np.abs(q[0]) <= 1.0


def test_lift():
    """The lowest multiple of 1 cm without contact; derivatives are of the rest."""
    sys = eqsim.load_mjcf(XML.format(height=0.0).replace("0.1", "0.1234"))
    lift = jax.jit(lambda q: lift_without_contact(sys, q, 0))
    np.testing.assert_allclose(lift(jnp.asarray([0.7])), [0.13], 1e-12)
    np.testing.assert_allclose(jax.jacrev(lift)(jnp.asarray([0.7])), [[0.0]])


def _uniform(key, sys):
    low, high = sys.joints.range[0]
    q = low + jr.uniform(key, (1,), low.dtype) * (high - low)
    return q, sys, q


@pytest.mark.parametrize("name", ["dmc_lqr_lqr_2_1", "dmc_lqr_lqr_6_2"])
def test_springs(name):
    """A seed gives the springs that it gives in the suite, and others than another one."""
    drawn = []
    for seed in (0, 3, 123456):
        sys, model = eqsim.make(name, seed=seed).sys, Theirs(name, seed).model
        assert sys.joints.names == tuple(f"joint_{k}" for k in range(model.njnt))
        np.testing.assert_allclose(sys.joints.stiffness, model.jnt_stiffness, 1e-12)
        drawn.append(np.asarray(sys.joints.stiffness))
    assert len(np.unique(drawn)) == 3 * sys.nv
    np.testing.assert_array_equal(eqsim.make(name).sys.joints.stiffness, drawn[0])


def test_options():
    with pytest.raises(
        ValueError, match=r"`num_motors` must be from 1 .* \(2\), got 3"
    ):
        eqsim_dmc.lqr_model(2, 3)
    sys = eqsim_dmc.lqr_model(2, 1)
    with pytest.raises(ValueError, match="`seed` is 5 and `sys` has springs"):
        eqsim.make("dmc_lqr_lqr_2_1", seed=5, sys=sys)


def test_terminates():
    """Where the norm of positions and velocities is below 1e-6."""
    task, theirs, ends = eqsim.make("dmc_lqr_lqr_2_1"), Theirs("dmc_lqr_lqr_2_1"), []
    theirs.reset()
    for scale in (0.0, 1e-7, 0.9e-6, 1.1e-6, 1e-3):
        place = scale * np.array([0.6, 0.0, 0.0, 0.8])
        theirs.place(place[:2], place[2:])
        ends.append(theirs.task.get_termination(theirs.physics) is not None)
        q, qd = jnp.asarray(place[:2]), jnp.asarray(place[2:])
        _, timestep = task.reset(jr.key(0), {"q": q, "qd": qd})
        assert bool(timestep.terminated) == ends[-1]
    assert ends == [True, True, True, False, False]


def test_optimal_policy():
    r"""The policy of the Riccati equation loses its value function: from one state to
    another, $\sum (1 - r) = V(x_0) - V(x_N)$ but for the cost of both states."""
    env, steps = eqsim.make("dmc_lqr_lqr_2_1"), 60
    state, _ = eqx.filter_jit(env.reset)(jr.key(0))
    n, rest = env.sys.nv, jnp.zeros(env.sys.nu)
    model = eqx.filter_jit(eqsim.linearize)(env, env.pipeline.init(env.sys), rest)
    a, b, cost = (
        np.asarray(model.A),
        np.asarray(model.B),
        np.diag([1.0] * n + [0.0] * n),
    )
    control = float(env.control_cost) * np.eye(env.sys.nu)
    p = solve_discrete_are(a, b, cost, control)
    gain = jnp.asarray(np.linalg.solve(b.T @ p @ b + control, b.T @ p @ a))

    @jax.jit
    def run(state):
        def step(state, _):
            action = -gain @ jnp.concatenate([state.q, state.qd])
            new, timestep = env.step(state, action)
            return new, timestep.reward

        return jax.lax.scan(step, state, None, steps)

    last, rewards = run(state)
    left = lambda s: np.concatenate([s.q, s.qd])
    value = lambda s: 0.5 * left(s) @ (p - cost) @ left(s)
    lost = float(jnp.sum(1.0 - rewards))
    np.testing.assert_allclose(lost, value(state) - value(last), 1e-8)
    assert value(last) < 0.9 * value(state)


# A grid point halfway between the origin and an edge.
_RIDGE = 100 * 201 + 50


@pytest.fixture(scope="module")
def robot():
    return eqsim_dmc.quadruped_model(40.0, terrain=True)


@pytest.mark.parametrize("shape", [(30, 201), (5, 17), (2, 3)])
def test_spline(shape):
    """The spline is that of `scipy.ndimage.zoom`, which the suite calls."""
    knots, points = shape
    values = np.random.default_rng(0).uniform(size=(knots, knots))
    matrix = _spline_matrix(knots, points)
    expected = ndimage.zoom(values, points / knots)
    np.testing.assert_allclose(matrix @ values @ matrix.T, expected, 0, 1e-12)


def test_bowl(robot):
    """Without bumps: a ridge in the middle between the origin and the edges."""
    bowl = eqsim_dmc.RandomBowl(smoothness=1.0, height=3.0)
    smooth = eqx.filter_jit(bowl)(jr.key(0), robot)
    grid = np.asarray(smooth.height_fields.grid(0))
    assert grid.shape == (201, 201)
    np.testing.assert_allclose(grid[100, 50], 3.0)
    np.testing.assert_allclose(grid[50, 100], 3.0)
    np.testing.assert_allclose(grid[0], 0.0, atol=1e-12)
    np.testing.assert_allclose(grid[100, 100], 1.5 * (1 - np.cos(0.08 * np.pi)))
    np.testing.assert_allclose(grid, grid.T)


def test_bumps(robot):
    """Different for every key, above the bottom, and as rough as asked for."""
    drawn = lambda key, **options: eqx.filter_jit(eqsim_dmc.RandomBowl(**options))(
        key, robot
    )
    keys = jr.split(jr.key(0), 30)
    heights = jax.jit(jax.vmap(lambda key: drawn(key).height_fields.heights))(keys)
    assert len(np.unique(heights[:, _RIDGE])) == 30
    bottom = -float(robot.height_fields.size[0, 2])
    assert bottom < np.min(heights) < 0.0 and np.max(heights) > 5.0
    # Where the bowl is high, relative to the bowl.
    ridge = lambda key, s: drawn(key, smoothness=s).height_fields.grid(0)[100, 40:60]
    relative = [ridge(keys[0], s) / ridge(keys[0], 1.0) for s in (0.15, 0.9)]
    assert np.std(relative[0]) > 5.0 * np.std(relative[1]) > 0.0
    with pytest.raises(ValueError, match="`bumps` must be at least 2, got 1"):
        eqsim_dmc.RandomBowl(bumps=1)
    with pytest.raises(ValueError, match="needs a height field 'terrain'"):
        eqsim_dmc.RandomBowl()(keys[0], eqsim_dmc.quadruped_model())


def test_gradient_of_terrain(robot):
    """Derivatives by the height of the ridge and the smoothness, in both modes."""

    def heights(height, smoothness):
        bowl = eqsim_dmc.RandomBowl(height=height, smoothness=smoothness)
        return bowl(jr.key(1), robot).height_fields.heights[_RIDGE : _RIDGE + 10]

    point = jnp.asarray(4.0), jnp.asarray(0.3)
    check_grads(jax.jit(heights), point, order=1, modes=("fwd", "rev"), rtol=1e-6)
    assert np.min(np.abs(jax.jit(jax.jacfwd(heights))(*point))) > 1e-3


@pytest.mark.slow
def test_gradient_by_terrain():
    """The derivative of a step by all heights, beside differences."""
    env = eqsim.make("dmc_quadruped_escape")
    state, _ = env.reset(jr.key(0))
    rest = jnp.zeros(env.sys.nu)
    fall = jax.jit(
        lambda s: eqsim.scan(lambda s, _: (env.step(s, rest)[0], None), s, None, 40)[0]
    )
    state = fall(state)
    heights = env.robot(state).height_fields.heights
    direction = jr.normal(jr.key(1), heights.shape)

    @jax.jit
    def moved(h):
        place = lambda s: s.changed.height_fields.heights
        other = eqx.tree_at(place, state, heights + h * direction)
        return env.step(other, rest)[0].inner.qd

    _, slope = jax.jvp(moved, (jnp.zeros(()),), (jnp.ones(()),))
    expected = (moved(jnp.asarray(1e-6)) - moved(jnp.asarray(-1e-6))) / 2e-6
    scale = np.max(np.abs(expected))
    assert scale > 0.1
    np.testing.assert_allclose(slope, expected, 1e-4, 1e-4 * scale)
