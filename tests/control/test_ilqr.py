"""Iterative LQR: optima that are known, limits, gaps, manifolds, constraints."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
import scipy.optimize
from lq_problems import dense, positive, random_lq
from toys import Rail

import eqsim
from eqsim import control, kinematics, RESULTS
from eqsim.control import (
    ControlProblem,
    ILQR,
    QuadraticCost,
    ResidualCost,
    VectorDynamics,
)
from eqsim.control._backward_pass import (
    box_qp,
    cholesky,
    cholesky_solve,
    LARGEST_UNROLLED as LARGEST,
)


class Time(eqx.Module):
    """A linear-quadratic problem whose matrices change in time, which is a state."""

    lq: control.LQProblem

    def step(self, sys, z, u):
        lq, t = self.lq, z[0].astype(int)
        x = lq.A[t] @ z[1:] + lq.B[t] @ u + lq.b[t]
        return jnp.concatenate([z[:1] + 1.0, x])

    def stage(self, sys, z, u):
        """Residuals whose squares are the cost, with linear terms as shifts."""
        lq, t = self.lq, z[0].astype(int)
        H = jnp.block([[lq.Q[t], lq.N[t]], [lq.N[t].T, lq.R[t]]])
        return self.root(H, jnp.concatenate([lq.q[t], lq.r[t]]), z[1:], u)

    def end(self, sys, z):
        return self.root(self.lq.Q[-1], self.lq.q[-1], z[1:], z[:0])

    def root(self, H, g, x, u):
        L = jnp.linalg.cholesky(H)
        return L.T @ jnp.concatenate([x, u]) + jnp.linalg.solve(L, g)


def linear(lq, limits=None):
    """An LQ problem for ILQR, and its first state."""
    T, nx, nu = lq.B.shape
    it = Time(lq)
    dynamics = VectorDynamics(it.step, None, nx + 1, nu)
    problem = ControlProblem(dynamics, ResidualCost(it.stage, it.end), T, limits)
    return problem, jnp.concatenate([jnp.zeros(1), jnp.linspace(-1.0, 1.0, nx)])


solve = eqx.filter_jit(lambda solver, *args: solver.solve(*args))


@pytest.mark.parametrize("with_states", (False, True))
@pytest.mark.quick_cases("True")
def test_linear_problems_take_one_step(with_states, getkey):
    """From a feasible guess, and from states that do not follow the dynamics."""
    lq = random_lq(getkey(), 10, 3, 2)
    problem, start = linear(lq)
    H, g = dense(lq, start[1:])
    best = -np.linalg.solve(H, g).reshape(10, 2)
    guess = jr.normal(getkey(), (10, 2))
    if with_states:
        states = jr.normal(getkey(), (11, 4)).at[:, 0].set(jnp.arange(11.0))
        guess = states, guess
    plan = solve(ILQR(max_steps=1), problem, start, guess)
    np.testing.assert_allclose(plan.actions, best, atol=1e-10)
    if not with_states:
        more = solve(ILQR(), problem, start, guess)
        assert more.result == RESULTS.successful and more.steps <= 3


@pytest.mark.parametrize("n", (LARGEST, LARGEST + 1))
def test_cholesky(n, getkey):
    """Unrolled and by LAPACK; NaN where it does not exist."""
    root = jr.normal(getkey(), (n, n))
    H, b = root @ root.T + jnp.eye(n), jr.normal(getkey(), (n, 3))
    L = jax.jit(cholesky)(H)
    np.testing.assert_allclose(L, np.linalg.cholesky(H), rtol=1e-9, atol=1e-12)
    found = jax.jit(cholesky_solve)(L, b)
    np.testing.assert_allclose(H @ found, b, rtol=1e-9, atol=1e-9)
    for least in (0.0, -1.0):
        H = jnp.diag(jnp.ones(n).at[-1].set(least))
        assert not np.all(np.isfinite(jax.jit(cholesky)(H)))


def bounded_optimum(H, g, low, high):
    """The minimum of a quadratic function within bounds, by SciPy."""
    L = np.linalg.cholesky(H)
    solve = scipy.optimize.lsq_linear
    return solve(L.T, -np.linalg.solve(L, g), (low, high), method="bvls").x


def test_box_qp_is_optimal(getkey):
    """In 200 random problems, from the middle, and from places at rounding errors of
    bounds and a little farther."""
    n = 5

    def draw(key):
        keys = jr.split(key, 4)
        lower = -jnp.abs(jr.normal(keys[2], (n,)))
        return positive(keys[0], n), 3 * jr.normal(keys[1], (n,)), lower, lower + 1.0

    problems = jax.jit(jax.vmap(draw))(jr.split(getkey(), 200))
    H, g, low, high = map(np.asarray, problems)
    wanted = [*map(bounded_optimum, H, g, low, high)]
    solve_all = jax.jit(jax.vmap(box_qp))
    for start in (0.0 * g, low * (1 - 1e-15), low + 3e-4, high - 1e-2):
        found = solve_all(*problems, jnp.asarray(start))
        assert np.all(found.converged)
        x = np.asarray(found.x)
        assert np.all((low <= x) & (x <= high))
        np.testing.assert_allclose(x, wanted, atol=1e-7)


def test_limits_of_linear_problems(getkey):
    """The optimum of a dense quadratic program with bounds, exactly within them."""
    limits = jnp.array([[-0.3, 0.2], [-0.1, 0.4]])
    lq = random_lq(getkey(), 8, 3, 2)
    problem, start = linear(lq, limits)
    plan = solve(ILQR(atol=1e-10, rtol=0.0), problem, start)
    assert plan.result == RESULTS.successful
    low, high = np.tile(np.asarray(limits), (8, 1)).T
    x = np.asarray(plan.actions).ravel()
    assert np.all((low <= x) & (x <= high))
    want = bounded_optimum(*dense(lq, start[1:]), low, high)
    assert np.count_nonzero((want == low) | (want == high)) > 0
    np.testing.assert_allclose(x, want, atol=1e-6)
    held = (x == low) | (x == high)
    np.testing.assert_array_equal(plan.gains.reshape(16, -1)[held], 0.0)


BODY = eqsim.load_mjcf("""
<mujoco>
  <option gravity="0 0 0" timestep="0.05"/>
  <worldbody><body><joint name="ball" type="ball"/>
    <geom type="box" size=".1 .2 .3" contype="0" conaffinity="0"/></body></worldbody>
  <actuator>
    <motor joint="ball" gear="1 0 0" ctrlrange="-20 20"/>
    <motor joint="ball" gear="0 1 0" ctrlrange="-20 20"/>
    <motor joint="ball" gear="0 0 1" ctrlrange="-20 20"/>
  </actuator>
</mujoco>""")
PIPELINE = eqsim.Generalized()


def quaternion(rotation_vector):
    unit = jnp.array([1.0, 0.0, 0.0, 0.0])
    return kinematics.integrate(BODY, unit, jnp.asarray(rotation_vector))


def product(a, b):
    w, v, x, u = a[0], a[1:], b[0], b[1:]
    return jnp.concatenate([(w * x - v @ u)[None], w * u + x * v + jnp.cross(v, u)])


def reorientation(turn):
    """From a tilted pose to one half a turn and more away."""
    begin, end = quaternion([0.3, -0.2, 0.1]), quaternion([0.3, 2.9, 1.0])
    rest = jnp.zeros(3)
    at = lambda q: PIPELINE.init(BODY, product(turn, q), rest)
    cost = QuadraticCost(at(end), jnp.repeat(jnp.array([0.1, 0.01]), 3), 1e-5, 100.0)
    return ControlProblem((PIPELINE, BODY), cost, 30), at(begin), at(end)


# Compiles plans of a free rotation.
@pytest.mark.slow
def test_reorientation_does_not_depend_on_axes(getkey):
    """Through half a turn; turned start and target give the turned plan."""
    solver = ILQR(max_steps=200, atol=1e-9, rtol=0.0)
    unit = jnp.array([1.0, 0.0, 0.0, 0.0])
    problem, start, end = reorientation(unit)
    plan = solver.solve(problem, start)
    assert plan.result == RESULTS.successful
    last = jax.tree.map(lambda x: x[-1], plan.states)
    assert np.abs(control.state_difference(BODY, end, last)).max() < 0.05
    angle = jnp.linalg.norm(kinematics.difference(BODY, start.q, end.q))
    assert angle > 2.9
    turn = quaternion(jr.normal(getkey(), (3,)))
    problem, start, _ = reorientation(turn)
    turned = solver.solve(problem, start)
    np.testing.assert_allclose(turned.actions, plan.actions, atol=1e-6)
    want = jax.vmap(lambda q: product(turn, q))(plan.states.q)
    np.testing.assert_allclose(turned.states.q, want, atol=1e-6)


def car(sys, x, u):
    """A car with sharp steering: position, heading, speed."""
    px, py, heading, speed = x
    step = jnp.array([speed * jnp.cos(heading), speed * jnp.sin(heading), u[0], u[1]])
    return x + 0.1 * sys * step


CAR = VectorDynamics(car, jnp.array(1.0), 4, 2, jnp.array([[-1.5, 1.5], [-1.0, 1.0]]))
PARK = QuadraticCost(jnp.zeros(4), 0.01, 0.1, 30.0)
AWAY = jnp.array([1.0, 1.0, 1.5, 0.0])


def test_batches(getkey):
    """Each problem of a batch ends as if it were alone."""
    solver = ILQR(max_steps=60)
    problem = ControlProblem(CAR, PARK, 30)
    starts = AWAY[None] + 0.1 * jr.normal(getkey(), (3, 4))
    batched = eqx.filter_vmap(solver.solve, in_axes=(None, 0))
    many = eqx.filter_jit(batched)(problem, starts)
    assert len({int(n) for n in many.steps}) > 1
    for k, start in enumerate(starts):
        alone = solve(solver, problem, start)
        one = jax.tree.map(lambda x: x[k], many)
        np.testing.assert_allclose(one.actions, alone.actions, atol=1e-7)
        assert one.steps == alone.steps
        limits = np.asarray(CAR.limits)
        actions = np.asarray(one.actions)
        assert np.all((limits[:, 0] <= actions) & (actions <= limits[:, 1]))


def _equal(one, two):
    """Whether two batches of plans are the same numbers."""
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True)
    return all(np.array_equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("lanes", (2, 7))
@pytest.mark.quick_cases("2")
def test_lanes(lanes, getkey):
    """Problems that take each other's place end as in one loop, in their order; a start that
    is not finite ends at once."""
    problem = ControlProblem(CAR, PARK, 30)
    starts = AWAY[None] + 0.3 * jr.normal(getkey(), (7, 4))
    starts = starts.at[2].set(jnp.nan)
    every = lambda lanes: eqx.filter_vmap(
        ILQR(max_steps=60, lanes=lanes).solve, in_axes=(None, 0)
    )(problem, starts)
    found, whole = every(lanes), every(None)
    assert len({int(n) for n in whole.steps}) > 2
    finite = np.arange(7) != 2
    pick = lambda plan: jax.tree.map(
        lambda x: x[finite], eqx.filter(plan, eqx.is_array)
    )
    assert _equal(pick(found), pick(whole))
    assert found.steps[2] == 0


# Compiles six batches of plans, two with derivatives.
@pytest.mark.slow
def test_lanes_with_constraints_and_batched_problems(getkey):
    """Multipliers, costs of each problem, and derivatives, as in one loop."""
    limit = control.Constraint(lambda sys, x, u: -1.0 - x[3:])
    starts = AWAY[None] + 0.1 * jr.normal(getkey(), (5, 4))
    weights = jnp.linspace(0.5, 2.0, 5)
    problem = ControlProblem(CAR, PARK, 30, constraints=(limit,))
    free = ControlProblem(CAR, PARK, 30)

    def heavier(problem, weight):
        where = lambda p: p.limits
        return eqx.tree_at(where, problem, weight * problem.limits)

    def solve(lanes, problem):
        solver = ILQR(max_steps=60, lanes=lanes)
        one = lambda x, w: solver.solve(heavier(problem, w), x)
        return eqx.filter_vmap(one)(starts, weights)

    arrays = lambda plan: eqx.filter(plan, eqx.is_array)
    assert _equal(arrays(solve(2, problem)), arrays(solve(None, problem)))
    value = lambda x, lanes: ILQR(max_steps=60, lanes=lanes).solve(free, x).value
    slope = lambda lanes: jax.vmap(jax.grad(lambda x: value(x, lanes)))(starts)
    np.testing.assert_allclose(slope(2), slope(None), rtol=1e-10, atol=1e-12)


def test_one_plan_for_many_robots():
    """A plan for five masses swings up masses between them, where that for one fails."""
    sys = eqsim.load_mjcf(PENDULUM)
    pipeline = eqsim.Generalized()
    where = lambda s: (s.links.mass, s.links.inertia)
    factor = lambda x: eqx.tree_at(where, sys, tuple(x * v for v in where(sys)))

    def step(robots, x, action):
        def one(sys, x):
            new = pipeline.step(sys, eqsim.State(x[:1], x[1:], jnp.zeros(0)), action)
            return jnp.concatenate([new.q, new.qd])

        return eqx.filter_vmap(one)(robots, x.reshape(-1, 2)).ravel()

    def problem(masses):
        n, limits = len(masses), jnp.array([[-1.5, 1.5]])
        robots = eqx.filter_vmap(factor)(masses)
        dynamics = VectorDynamics(step, robots, 2 * n, 1, limits)
        target = jnp.tile(jnp.array([jnp.pi, 0.0]), n)
        cost = QuadraticCost(target, 0.01 / n, 1.0, 100.0 / n)
        return ControlProblem(dynamics, cost, 60)

    held_out = problem(jnp.array([0.96, 0.985, 1.01, 1.04]))

    def worst(actions):
        step = lambda x, u: (held_out.dynamics.step(x, u), None)
        end = eqsim.scan(step, jnp.zeros(8), actions)[0].reshape(4, 2)
        return float(jnp.max(jnp.abs(end - jnp.array([[jnp.pi, 0.0]]))))

    # Five equal masses are one, and share a program with five others.
    solver, guess = ILQR(max_steps=300), 0.1 * jnp.ones((60, 1))
    nominal = solve(solver, problem(jnp.ones(5)), jnp.zeros(10), guess)
    many = problem(jnp.linspace(0.95, 1.05, 5))
    robust = solve(solver, many, jnp.zeros(10), nominal.actions)
    for plan in (nominal, robust):
        assert plan.result == RESULTS.successful
    assert worst(nominal.actions) > 2.0
    assert worst(robust.actions) < 0.3


PENDULUM = """<mujoco>
  <option timestep="0.05"/>
  <worldbody><body><joint name="hinge" axis="0 -1 0" damping="0.01"/>
    <geom type="capsule" fromto="0 0 0 0 0 -.5" size=".02" mass="1"/></body></worldbody>
  <actuator><motor joint="hinge"/></actuator>
</mujoco>"""


def test_constraints():
    """A speed limit and a target; multipliers act only where the limit is reached."""
    problem, solver = ControlProblem(CAR, PARK, 30), ILQR(max_steps=200)
    free = solve(solver, problem, AWAY)
    slowest = 0.8 * float(jnp.min(free.states[:-1, 3]))
    assert slowest < -0.1
    limit = control.Constraint(lambda sys, x, u: slowest - x[3:])
    target = control.TerminalConstraint(lambda sys, x: x[:2], equality=True)
    problem = ControlProblem(CAR, PARK, 30, constraints=(limit, target))
    plan = solve(solver, problem, AWAY)
    assert plan.result == RESULTS.successful
    assert plan.violation <= 1e-5
    speed = np.asarray(plan.states[:-1, 3])
    assert speed.min() >= slowest - 1e-5
    np.testing.assert_allclose(plan.states[-1, :2], 0.0, atol=1e-5)
    multiplier = np.asarray(plan.multipliers.stage[0])[:, 0]
    away = speed > slowest + 1e-3
    assert np.any(away) and np.any(multiplier > 0.0)
    np.testing.assert_allclose(multiplier[away], 0.0)
    assert plan.value > free.value


def test_contradicting_constraints():
    both = tuple(
        control.TerminalConstraint(lambda sys, x, s=s: x - s, equality=True)
        for s in (0.0, 1.0)
    )
    cost = QuadraticCost(jnp.zeros(1), 0.0, 1e-6)
    problem = ControlProblem(ONE, cost, 5, constraints=both)
    plan = solve(ILQR(max_penalty_steps=3), problem, jnp.ones(1))
    assert plan.result == RESULTS.infeasible
    np.testing.assert_allclose(plan.violation, 0.5, atol=0.01)


def test_results():
    problem = ControlProblem(CAR, PARK, 30)
    plan = solve(ILQR(max_steps=2), problem, AWAY)
    assert plan.result == RESULTS.max_steps and plan.steps == 2
    diverging = VectorDynamics(lambda sys, x, u: 1e200 * x**3 + u, None, 1, 1)
    cost = QuadraticCost(jnp.zeros(1), 1.0, 1.0)
    plan = solve(ILQR(), ControlProblem(diverging, cost, 5), jnp.ones(1))
    assert plan.result == RESULTS.nonfinite_guess


def test_never_follows_what_is_not_finite():
    """A cost that is NaN beyond a line has its minimum before it."""

    def residual(sys, x, u):
        return jnp.where(x > 0.5, jnp.nan, x - 0.45) + 0.0 * u

    cost = ResidualCost(residual, lambda sys, x: residual(sys, x, jnp.zeros(1)))
    plan = solve(ILQR(), ControlProblem(ONE, cost, 4), jnp.zeros(1))
    assert plan.result == RESULTS.successful
    np.testing.assert_allclose(plan.states[1:], 0.45, atol=1e-6)


ONE = VectorDynamics(lambda sys, x, u: x + u, None, 1, 1)
FOUR = ControlProblem(CAR, PARK, 4)
HOLE = jnp.zeros((4, 2)).at[2, 1].set(jnp.nan)
solve_four = lambda *args, problem=FOUR, **options: ILQR(**options).solve(
    problem, *(args or (AWAY,))
)
REFUSED = {
    r"actions of `guess` must be finite.*\(2, 1\)": lambda: solve_four(AWAY, HOLE),
    "states of `guess` must be finite": lambda: solve_four(
        AWAY, (jnp.full((5, 4), jnp.inf), jnp.zeros((4, 2)))
    ),
    r"`guess` must have shape \(horizon, nu\) = \(4, 2\)": lambda: solve_four(
        AWAY, jnp.zeros((3, 2))
    ),
    r"horizon \+ 1 = 5": lambda: solve_four(
        AWAY, (jnp.zeros((4, 4)), jnp.zeros((4, 2)))
    ),
    "`state` must be finite": lambda: solve_four(AWAY.at[0].set(jnp.nan)),
    "control 1 are infeasible.*2.0.*1.0": lambda: ControlProblem(
        CAR, PARK, 4, jnp.array([[0.0, 1.0], [2.0, 1.0]])
    ),
    "`limits` must not be NaN": lambda: ControlProblem(
        CAR, PARK, 4, jnp.full((2, 2), jnp.nan)
    ),
    "`horizon` must be .* at least 1": lambda: ControlProblem(CAR, PARK, 0),
    "`state_weight` must be a number or have shape": lambda: solve_four(
        problem=ControlProblem(CAR, QuadraticCost(jnp.zeros(4), jnp.ones(3), 1.0), 4)
    ),
    "`ILQR.max_steps` must be .* at least 1": lambda: ILQR(max_steps=0),
    "`ILQR.atol` must be at least 0": lambda: ILQR(atol=-1.0),
    "`ILQR.rtol` must be at least 0": lambda: ILQR(rtol=float("nan")),
    "`ILQR.penalty` must be positive": lambda: ILQR(penalty=0.0),
    "`ILQR.penalty_growth` .* least 1": lambda: ILQR(penalty_growth=0.5),
    "`ILQR.constraint_tolerance` must be": lambda: ILQR(constraint_tolerance=-1.0),
    "needs a robot on the pipeline `Generalized`": lambda: solve_four(
        contact=control.Anneal(1e-2)
    ),
    "`end` < `start`": lambda: control.Anneal(1e-3, 1e-2),
    "`QuadraticCost.state_weight` must": lambda: QuadraticCost(0.0, -1.0, 1.0),
    "`QuadraticCost.action_weight` must": lambda: QuadraticCost(0.0, 1.0, -1.0),
    "`QuadraticCost.terminal_weight` must": lambda: QuadraticCost(0.0, 1.0, 1.0, -1.0),
}


@pytest.mark.parametrize("message", REFUSED)
def test_refusals(message):
    with pytest.raises(ValueError, match=message):
        REFUSED[message]()


def test_widths():
    anneal = control.Anneal
    np.testing.assert_allclose(anneal(1e-2, 1e-4, 3).widths(), [1e-2, 1e-3, 1e-4])
    assert anneal(1e-2).widths()[-1] == 0.0


def test_weights():
    """A weight of zero is allowed, and has a finite derivative."""
    cost = QuadraticCost(jnp.zeros(2), jnp.array([0.0, 4.0]), 0.0)
    residual = cost.stage(None, jnp.ones(2), jnp.ones(1))
    np.testing.assert_array_equal(residual, [0.0, 2.0, 0.0])
    one = jnp.ones(1)
    square = lambda w: jnp.sum(
        QuadraticCost(0.0 * one, w, 1.0).stage(None, one, one) ** 2
    )
    np.testing.assert_allclose(jax.grad(square)(jnp.array(3.0)), 1.0)
    np.testing.assert_allclose(jax.grad(square)(jnp.array(0.0)), 0.0)


def test_reward_belongs_to_the_robot_of_the_problem():
    """So that a plan is differentiated by the robot that moves, and no copy of it."""
    env = Rail()
    cost = control.RewardCost(env, action_weight=0.0)
    state, _ = env.reset(jr.key(0), {"q": jnp.array([0.3, -0.4])})

    def total(mass):
        sys = eqx.tree_at(lambda s: s.links.mass, env.sys, mass)
        return jnp.sum(cost.stage(sys, state, jnp.ones(2)) ** 2)

    value, slope = jax.jit(jax.value_and_grad(total))(env.sys.links.mass)
    assert np.isfinite(value) and np.all(np.isfinite(slope))
    assert np.any(np.abs(slope) > 1e-9)
    with pytest.raises(ValueError, match="`RewardCost.termination` must be at least 0"):
        control.RewardCost(env, termination=-1.0)
