"""Swing up and balance the double pendulum by iterative LQR, as acrobot or pendubot.

    python docs/examples/double_pendulum_swing_up.py                 # scores, in a minute
    python docs/examples/double_pendulum_swing_up.py --robustness    # friction, delay, noise

`swing_up` plans with coarse time steps and weights that move to the slopes of the score;
`refined` solves for the plan again with the time step of the plant, and adds time-varying
LQR. `Controller` follows the plan.
"""

import argparse
import time
from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax


# Swing-ups are planned in double precision.
jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from double_pendulum import (
    DT,
    DURATION,
    HEIGHT,
    KINDS,
    mjcf,
    MODELS,
    Parameters,
    parameters,
    SCALES,
    score,
    simulate,
    TORQUE_LIMIT,
    upright,
    within_half_turn,
)
from jaxtyping import Array, Float

import eqsim
from eqsim import control


class Plan(NamedTuple):
    """A swing-up at the time step of the plant, with feedback gains.

    - `states`: rows of angles, velocities and torque.
    - `rates`: changes of torque, N m/s.
    - `gains`: feedback of the difference from the states.
    - `goal`, `hold`: the upright state at the end, and the gain there.
    """

    states: np.ndarray
    rates: np.ndarray
    gains: np.ndarray
    goal: np.ndarray
    hold: np.ndarray


PIPELINE = eqsim.Generalized()
COARSE = 10
"""Time steps of the plant per control step of the first plan."""

SEEDS = {"acrobot": (0, 3, 150), "pendubot": (0, 4, 100)}
"""Seed, draw and number of coarse steps of the guess: the best of about 40."""


class Cost(control.AbstractTrajectoryCost):
    """The five costs of the score, as integrals with weights.

    - `weights`: weights of time below the threshold, work, torque, its rate, velocity.
    - `root`: root of the weight of the last state.
    - `lengths`: lengths of the links, m.
    """

    weights: Float[Array, "5"]
    root: Float[Array, "5 5"]
    lengths: Float[Array, "2"]
    joint: int = eqx.field(static=True)
    dt: float = eqx.field(static=True)

    def stage(self, sys, state, action):
        torque, qd = state.act, state.qd
        above = -jnp.dot(self.lengths, jnp.cos(jnp.cumsum(state.q)))
        below = jax.nn.sigmoid((HEIGHT * jnp.sum(self.lengths) - above) / 0.02)
        power = torque * qd[self.joint]
        excess = jax.nn.relu(jnp.abs(torque) - 0.95 * TORQUE_LIMIT)
        w = jnp.sqrt(2.0 * self.dt * self.weights)
        parts = (
            w[0] * jnp.sqrt(below + 1e-6)[None],
            w[1] * (power**2 + 0.05**2) ** 0.25,
            w[2] * torque,
            w[3] * action,
            w[4] * qd,
            3.0 * excess,
        )
        return jnp.concatenate(parts)

    def terminal(self, sys, state):
        away = 2.0 * jnp.sin(0.5 * (state.q - jnp.array([jnp.pi, 0.0])))
        return self.root @ jnp.concatenate([away, state.qd, state.act])

    def costs(self, states, actions) -> Float[Array, "5"]:
        """Compute the five costs of a plan, as the score defines them."""
        above = -jnp.cos(jnp.cumsum(states.q, 1)) @ self.lengths
        below = above < HEIGHT * jnp.sum(self.lengths)
        last = jnp.max(jnp.where(below, jnp.arange(len(above)), 0))
        torque, dt = states.act[:, 0], self.dt
        work = dt * jnp.sum(jnp.abs(states.qd[:, self.joint] * torque))
        rate = DT * jnp.sqrt(dt * jnp.sum(actions**2) / DURATION)
        squares = dt * jnp.sum(torque**2), rate, dt * jnp.sum(states.qd**2)
        return jnp.stack([dt * last.astype(float), work, *squares])


def weights_of(costs: Float[Array, "5"]) -> Float[Array, "5"]:
    """Compute the slopes of the score (times -100) by the integrals behind its costs."""
    slopes = jnp.pi / SCALES / jnp.cosh(jnp.pi * costs / SCALES) ** 2 / 5.0
    # Smoothness is the standard deviation of changes of torque.
    by_rate = DT**2 / (2.0 * jnp.maximum(costs[3], 2e-3) * DURATION)
    return 100.0 * jnp.asarray(slopes).at[3].multiply(by_rate)


FIRST = jnp.array([2.5, 10.0, 4.0, 0.01, 80.0])
"""Costs at which the first weights are taken."""


def first_state(sys) -> eqsim.State:
    """Hang at rest without torque."""
    return PIPELINE.init(sys)


def standing() -> eqsim.State:
    """Stand at rest."""
    return eqsim.State(jnp.array([jnp.pi, 0.0]), jnp.zeros(2), jnp.zeros(1))


def gentle_regulator(sys, weights, dt: float) -> control.LQR:
    """Compute the regulator that is optimal for the costs of the score near upright."""
    w = 2.0 * dt * weights
    Q = jnp.diag(jnp.stack([1e-3 * w[4], 1e-3 * w[4], w[4], w[4], w[2]]))
    A, B = control.linearize_step(PIPELINE, sys, standing(), jnp.zeros(1))
    return control.lqr(A, B, Q, w[3] * jnp.eye(1))


def guess(key, T: int, dt: float) -> Float[Array, "T 1"]:
    """Draw the rates of a torque of three sines."""
    keys = jr.split(key, 4)
    time = (jnp.arange(T + 1) * dt)[:, None]
    size = jr.uniform(keys[0], (3,), minval=0.3, maxval=2.0)
    frequency = jr.uniform(keys[1], (3,), minval=3.0, maxval=12.0)
    phase = 2.0 * jnp.pi * jr.uniform(keys[2], (3,))
    waves = size[None] * jnp.sin(frequency[None] * time + phase[None])
    torque = jnp.sum(waves, 1) * jnp.minimum(1.0, time[:, 0] / 0.2)
    return jnp.diff(torque)[:, None] / dt


@eqx.filter_jit
def _solve(sys, cost: Cost, start, plan, T: int, steps: int):
    problem = control.ControlProblem((PIPELINE, sys), cost, T)
    return control.ILQR(max_steps=steps).solve(problem, start, plan)


SOFT = jnp.diag(jnp.array([10.0, 10.0, 1.5, 1.5, 1.0]))
"""Root of the weight of the last state, before scaling."""


def swing_up(kind: str, key, T: int, p: Parameters):
    """Plan a swing-up with coarse steps, weights moving to the slopes of the score.

    **Returns:** states, actions, the weights, and the costs.
    """
    dt = COARSE * DT
    sys = eqsim.load_mjcf(mjcf(p, kind, dt, rate=True))
    lengths, joint = jnp.array([p["l1"], p["l2"]]), KINDS[kind]
    cost = Cost(weights_of(FIRST), SOFT, lengths, joint, dt)
    start, plan = first_state(sys), guess(key, T, dt)
    for factor in (1.0, 0.3, 1.0, 3.0, 10.0, 10.0, 10.0):
        cost = eqx.tree_at(lambda c: c.root, cost, jnp.sqrt(factor) * SOFT)
        found = _solve(sys, cost, start, plan, T, 60)
        plan, costs = found.actions, cost.costs(found.states, found.actions)
        cost = eqx.tree_at(lambda c: c.weights, cost, weights_of(costs))
    return found.states, found.actions, cost, costs


PARTS = (0.25, 0.5, 0.75, 1.0)


def continued(kind: str, actions, cost: Cost, p: Parameters):
    """Change the robot of a plan in steps, from the frictionless model to another.

    **Returns:** states and actions.
    """
    first, dt = parameters(), COARSE * DT
    for part in PARTS:
        mixed = {k: (1.0 - part) * first[k] + part * p[k] for k in p}
        sys = eqsim.load_mjcf(mjcf(mixed, kind, dt, rate=True))
        start, T = first_state(sys), len(actions)
        found = _solve(sys, cost, start, actions, T, 80)
        actions = found.actions
    return found.states, actions


TRACKING = jnp.diag(jnp.array([20.0, 20.0, 1.0, 1.0, 0.02])), 2e-4 * jnp.eye(1)


def refined(kind: str, states, actions, cost: Cost, p: Parameters) -> Plan:
    """Solve for the plan with the time step of the plant, and add feedback."""
    sys = eqsim.load_mjcf(mjcf(p, kind, DT, rate=True))
    smooth = eqsim.load_mjcf(mjcf(p, kind, DT, rate=True, dry=False))
    T = COARSE * len(actions)
    old, new = np.arange(len(states.q)) * COARSE, np.arange(T + 1)
    dense = lambda x: jnp.asarray(
        np.stack([np.interp(new, old, row) for row in np.asarray(x).T], 1)
    )
    many = jax.tree.map(dense, states)
    fine = Cost(cost.weights, cost.root, cost.lengths, cost.joint, DT)
    plan = many, jnp.repeat(actions, COARSE, 0)
    found = _solve(sys, fine, first_state(sys), plan, T, 60)
    last = jax.tree.map(lambda x: x[-1], found.states)
    turns = jnp.round((last.q - standing().q) / (2.0 * jnp.pi))
    goal = np.zeros(5)
    goal[:2] = standing().q + 2.0 * jnp.pi * turns
    friction = 0.5 * jnp.pi * jnp.array([p["cf1"], p["cf2"]])
    states, actions = found.states, found.actions
    if p == parameters():
        # Without friction, a gentle end saves torque.
        gentle = gentle_regulator(smooth, fine.weights, DT).gain
        end = _settled(sys, last, jnp.asarray(goal), gentle, round(DURATION / DT) - T)
        join = lambda x, y: jnp.concatenate([x, y[1:]])
        states = jax.tree.map(join, states, end[0])
        actions = jnp.concatenate([actions, end[1]])
    rows = jnp.concatenate([states.q, states.qd, states.act], 1)
    gains, hold = feedback(smooth, friction, rows, actions)
    parts = rows, actions, gains, goal, hold
    return Plan(*map(np.asarray, parts))


SLOW = 0.4
"""Speed of joints, rad/s, below which dry friction counts as damping."""


@eqx.filter_jit
def feedback(smooth, friction: Float[Array, "2"], rows, actions):
    """Compute time-varying LQR with dry friction as damping.

    At a speed `v` a friction `f` acts as a damping of `f / |v|`. The derivative of the
    friction itself is that of a joint that cannot move near rest, and nothing elsewhere.

    **Arguments:**

    - `smooth`: the robot without dry friction.
    - `friction`: dry friction of the joints, N m.
    - `rows`, `actions`: the plan.

    **Returns:** gains along the plan, and in the upright pose.
    """
    Q, R = TRACKING

    def linear(x, u):
        damping = friction / jnp.sqrt(x[2:4] ** 2 + SLOW**2)
        damping = smooth.joints.damping + damping
        sys = eqx.tree_at(lambda s: s.joints.damping, smooth, damping)
        state = eqsim.State(x[:2], x[2:4], x[4:])
        return control.linearize_step(PIPELINE, sys, state, u)

    end = standing()
    x = jnp.concatenate([end.q, end.qd, end.act])
    hold = control.lqr(*linear(x, jnp.zeros(1)), Q, R)
    A, B = jax.vmap(linear)(rows[:-1], actions)
    T, nx = len(actions), len(Q)
    many = lambda x, n: jnp.broadcast_to(x, (n, *x.shape))
    weights = jnp.concatenate([many(Q, T), hold.value[None]])
    lq = control.LQProblem(
        A,
        B,
        jnp.zeros((T, nx)),
        weights,
        jnp.zeros((T + 1, nx)),
        many(R, T),
        jnp.zeros((T, 1)),
        jnp.zeros((T, nx, 1)),
    )
    return control.solve_lq(lq).gain, hold.gain


@eqx.filter_jit
def _settled(sys, start, goal, gain, length: int):
    """Follow the regulator from the end of a plan until the run ends."""

    def step(state, _):
        x = jnp.concatenate([state.q, state.qd, state.act])
        rate = gain @ (x - goal)
        return PIPELINE.step(sys, state, rate), (state, rate)

    last, (states, rates) = eqsim.scan(step, start, length=length)
    join = lambda x, y: jnp.concatenate([x, y[None]])
    return jax.tree.map(join, states, last), rates


def plan_of(kind: str, p: Parameters | None = None) -> Plan:
    """Plan the swing-up from the guess that `SEEDS` names, in double precision.

    **Arguments:**

    - `p`: parameters of the model; those of `parameters()` by default. For others, such
        as a model with friction, that plan is the first guess.
    """
    seed, draw, T = SEEDS[kind]
    first = parameters()
    key = jr.split(jr.key(seed), 16)[draw]
    states, actions, cost, _ = swing_up(kind, key, T, first)
    if p is not None and p != first:
        states, actions = continued(kind, actions, cost, p)
    return refined(kind, states, actions, cost, first if p is None else p)


# Control.


class Controller:
    """Swing-up and balance: a plan of iterative LQR with time-varying LQR along it.

    Its torque is a state of the plan, so that feedback changes the rate of it.

    **Arguments:**

    - `kind`: `acrobot` or `pendubot`.
    - `plan`: the swing-up.
    """

    def __init__(self, kind: str, plan: Plan):
        self.kind, self.joint, self.plan = kind, KINDS[kind], plan
        self.reset()

    def reset(self) -> None:
        """Begin a run."""
        self._torque, self._begin, self._braking = 0.0, 0.0, False

    def torque(self, time: float, q, qd) -> np.ndarray:
        """Compute both torques, N m; that of the joint without motor is zero.

        Far from the plan, it brakes until the links hang at rest, and starts again.
        """
        k, now = round((time - self._begin) / DT), self.plan
        last = len(now.rates)
        state = now.states[k] if k < last else now.goal
        if not self._braking and np.max(np.abs(_near(q, state[:2]) - state[:2])) > 1.0:
            self._braking = True
        if self._braking:
            if self._hangs(q, qd):
                self._braking, self._begin, k = False, time, 0
                self._torque, state = 0.0, now.states[0]
            else:
                return self._motor(self._brake(q, qd))
        x = np.concatenate([_near(q, state[:2]), qd, [self._torque]])
        gain = now.gains[k] if k < last else now.hold
        rate = gain @ (x - state) + (now.rates[k] if k < last else 0.0)
        middle = self._torque + 0.5 * DT * rate[0]
        torque = self._torque + DT * rate[0]
        self._torque = float(np.clip(torque, -TORQUE_LIMIT, TORQUE_LIMIT))
        return self._motor(middle)

    def _motor(self, torque: float) -> np.ndarray:
        out = np.zeros(2)
        out[self.joint] = np.clip(torque, -TORQUE_LIMIT, TORQUE_LIMIT)
        return out

    def _hangs(self, q, qd) -> bool:
        away = np.abs(_near(q, np.zeros(2)))
        return bool(np.max(away) < 0.12 and np.max(np.abs(qd)) < 0.8)

    def _brake(self, q, qd) -> float:
        """Take energy out, by a linear feedback to the hanging pose."""
        x = np.concatenate([_near(q, np.zeros(2)), qd])
        return float(np.dot(BRAKE[self.kind], x))


BRAKE = {"acrobot": (0.0, -2.0, 0.0, -0.25), "pendubot": (0.74, 0.88, -0.37, 0.17)}
"""Gains of the brake by angles and velocities: a spring and a damper at the elbow; the
LQR of the hanging pose with weights 1, 1, 0.3, 0.3 and 3 (torque)."""


def _near(q, to) -> np.ndarray:
    """Return the same angles, turned to within half a turn of others."""
    return to + within_half_turn(np.asarray(q) - to)


# The commands.


def encoder(seed: int):
    """Make the measurement of a run: angles in steps of 12 bits, noisy velocities."""
    rng, bit = np.random.default_rng(seed), 2.0 * np.pi / 4096
    return lambda q, qd: (np.round(q / bit) * bit, qd + rng.normal(0.0, 0.05, 2))


def scores(kinds: Sequence[str]) -> None:
    """Print the scores of the leaderboard."""
    p = parameters()
    for kind in kinds:
        begin = time.perf_counter()
        controller = Controller(kind, plan_of(kind))
        planned = time.perf_counter() - begin
        found = score(p, simulate(p, kind, controller))
        numbers = ", ".join(f"{name} {value:.4g}" for name, value in found.items())
        print(f"{kind}: {numbers} (planned in {planned:.0f} s)", flush=True)


def robustness(kinds: Sequence[str], seeds: int) -> None:
    """Print in how many runs with delay, encoders and noise the robot stands in the last
    second, for plans and plants with and without friction."""
    pairs = [("model_1.0", False, m, dry) for dry in (False, True) for m in MODELS]
    pairs += [("model_1.0", True, m, True) for m in MODELS]
    pairs += [(m, True, m, True) for m in list(MODELS)[1:]]
    name = lambda m, dry: m if dry else f"{m} without friction"
    for kind in kinds:
        plans: dict[tuple, Plan] = {}
        for own, modeled, plant, dry in pairs:
            if (own, modeled) not in plans:
                model = parameters(own, friction=modeled)
                plans[own, modeled] = plan_of(kind, model)
            controller = Controller(kind, plans[own, modeled])
            p, good = parameters(plant, friction=dry), 0
            for seed in range(seeds):
                run = simulate(p, kind, controller, measure=encoder(seed), delay=1)
                good += bool(upright(p, run)[-500:].all())
            about = f"planned on {name(own, modeled)}, plant {name(plant, dry)}"
            print(f"{kind}, {about}: {good} of {seeds} upright", flush=True)


def main() -> None:
    """Plan, control, and print scores or robustness."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kinds", nargs="+", choices=tuple(KINDS), default=list(KINDS))
    parser.add_argument("--robustness", action="store_true", help="instead of scores")
    parser.add_argument("--seeds", type=int, default=20, help="runs of each pair")
    options = parser.parse_args()
    if options.robustness:
        robustness(options.kinds, options.seeds)
    else:
        scores(options.kinds)


if __name__ == "__main__":
    main()
