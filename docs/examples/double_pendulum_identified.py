"""Swing up an identified double pendulum by a plan for all robots of its posterior.

    python docs/examples/double_pendulum_identified.py --recordings DIR

Robots are fitted to resampled blocks of the recordings `identification_C1`. Their spread,
times 1.5, is the posterior. Iterative LQR plans for its mean from many guesses; stochastic
gradients through simulations of drawn robots then improve torque and feedback gains. Both are
tested on 20 robots that are fitted to other recordings (`swingup_C1_*_ilqr_tvlqr_lqr`), in
NumPy, with delay, encoders, a velocity filter and noise.
"""

import argparse
import dataclasses
import json
import os
import pathlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax


jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from double_pendulum import HEIGHT, KINDS, TORQUE_LIMIT, within_half_turn
from jaxtyping import Array, Float

import eqsim
from eqsim import actuators, control, identify
from eqsim.identify import LogNormalPrior, NormalPrior, Positive, Recording, Windows
from eqsim.model import Integrator


PIPELINE = eqsim.Generalized()
DT, DURATION = 0.005, {"acrobot": 2.0, "pendubot": 1.5}
"""Time step of plans and the durations of swing-ups, s."""
LENGTHS = np.array([0.2, 0.3])
MODEL = pathlib.Path(__file__).with_name("double_pendulum_c1.xml")


def robot(dt: float, integrator: str) -> eqsim.System:
    """Create the robot before the fit, with Stribeck friction and a lag of the torque."""
    sys = eqsim.load_mjcf(MODEL)
    sys = dataclasses.replace(sys, dt=dt, integrator=Integrator(integrator))
    friction = actuators.StribeckFriction(0.0, 0.05, 0.3, 0.0, 0.05)
    sys = sys.with_actuator_model(sys.actuators.names, friction)
    return sys.with_actuator_model(sys.actuators.names, actuators.TorqueLag(0.005))


def _models(sys: eqsim.System) -> list[Any]:
    """Return friction and lag."""
    return [item.model for item in sys.actuator_models]


# Robots, fitted to recordings.


def unknowns() -> dict[str, identify.AbstractUnknown]:
    """Return the parameters of the robot, the delay of commands and zeros of encoders."""
    friction = lambda s: _models(s)[0]
    centers = (0, 2), (1, 2)
    return {
        "damping": Positive(
            lambda s: s.joints.damping, prior=LogNormalPrior(None, 2.0)
        ),
        "friction": Positive(lambda s: s.joints.frictionloss),
        "armature": Positive(
            lambda s: s.joints.armature, prior=LogNormalPrior(None, 1.0)
        ),
        "mass": Positive(lambda s: s.links.mass, prior=LogNormalPrior(None, 0.2)),
        "com": identify.Unbounded(
            lambda s: s.links.com, entries=centers, prior=NormalPrior(None, 0.05)
        ),
        "inertia": Positive(
            lambda s: s.links.inertia,
            entries=((0, 1), (1, 1)),
            prior=LogNormalPrior(None, 0.5),
        ),
        "delay": identify.ChannelDelay(prior=NormalPrior(4e-3, 4e-3)),
        "zero": identify.ChannelBias("q", per_run=True, prior=NormalPrior(0.0, 0.05)),
        "static": identify.Unbounded(
            lambda s: friction(s).static, prior=NormalPrior(0.0, 0.1)
        ),
        "speed": Positive(
            lambda s: friction(s).stribeck_velocity, prior=LogNormalPrior(None, 1.0)
        ),
        "lag": Positive(
            lambda s: _models(s)[1].time_constant,
            prior=LogNormalPrior(None, 1.0),
        ),
    }


def fitted(runs: Sequence[Recording], length: float) -> identify.Result:
    """Fit the robot to windows of a length, s."""
    windows = Windows(length, settle=0.02)
    loss = identify.CauchyLoss(1.0, per_window=True)
    sys = robot(0.002, "implicitfast")
    return identify.fit(sys, runs, unknowns(), windows=windows, loss=loss)


class Numbers(NamedTuple):
    """The numbers of the equations of motion; one row, or one per robot.

    - `inertia`: inertia of the upper link about the shoulder with the lower mass at the
        elbow, and of the lower link about the elbow, kg m^2.
    - `rotor`: inertia of the elbow's rotor, kg m^2.
    - `moment`: mass times distance for the shoulder (with the lower mass at the elbow) and
        the elbow, kg m.
    - `damping`, `coulomb`, `static`, `speed`, `lag`: friction of the joints, as in
        `actuators.StribeckFriction` (`static` is the excess), and lag of the torque, s.
    - `delay`: delay of commands, s.
    """

    inertia: np.ndarray
    rotor: np.ndarray
    moment: np.ndarray
    damping: np.ndarray
    coulomb: np.ndarray
    static: np.ndarray
    speed: np.ndarray
    lag: np.ndarray
    delay: np.ndarray


def numbers(sys: eqsim.System, delay: float = 0.003) -> Numbers:
    """Compute the numbers of a robot, as it was fitted."""
    links, joints = sys.links, sys.joints
    law, lag = _models(sys)
    mass, arm = links.mass, -links.com[:, 2]
    about = links.inertia[:, 1] + mass * arm**2
    upper = about[0] + mass[1] * LENGTHS[0] ** 2 + joints.armature[0]
    moments = mass[0] * arm[0] + mass[1] * LENGTHS[0], mass[1] * arm[1]
    parts = (
        jnp.stack([upper, about[1]]),
        joints.armature[1],
        jnp.stack(moments),
        joints.damping,
        joints.frictionloss,
        law.static,
        law.stribeck_velocity,
        lag.time_constant,
        delay,
    )
    return Numbers(*map(np.asarray, parts))


def stacked(rows: Sequence[Numbers]) -> Numbers:
    """Stack the numbers of robots."""
    return Numbers(*(np.stack(field) for field in zip(*rows, strict=True)))


BLOCK, SHARE, INFLATION = 2.0, 0.6, 1.5
"""Length of resampled blocks (s), their share, and the factor of the spread of fits."""


def resampled(runs: Sequence[Recording], seed: int) -> list[Recording]:
    """Draw a share of the blocks of each run, without replacement."""
    rng, found = np.random.default_rng(seed), []
    for run in runs:
        starts = np.arange(run.time[0], run.time[-1] - 0.75 * BLOCK, BLOCK)
        size = int(np.ceil(SHARE * len(starts)))
        for start in np.sort(rng.choice(starts, size, replace=False)):
            found.append(run.cut(start, start + BLOCK))
    return found


def posterior_of(results: Sequence[identify.Result]) -> identify.Posterior:
    """Return a normal distribution with the mean of fits and their inflated spread.

    The intervals of one fit are too short: residuals are correlated, and the length of the
    windows changes viscous friction more than noise does.
    """
    theta, own = np.stack([r.theta for r in results]), results[0].posterior
    spread = INFLATION * (theta - theta.mean(0)) / np.sqrt(len(theta) - 1)
    factor = np.zeros(own.factor.shape)
    factor[:, : len(theta)] = spread.T
    where = lambda p: (p.mean, p.factor)
    return eqx.tree_at(where, own, (jnp.asarray(theta.mean(0)), jnp.asarray(factor)))


@eqx.filter_jit
def drawn(posterior: identify.Posterior, sys: eqsim.System, keys) -> eqsim.System:
    """Draw robots, stacked."""
    return eqx.filter_vmap(posterior, in_axes=(0, None))(keys, sys)


@eqx.filter_jit
def smooth(sys: eqsim.System) -> eqsim.System:
    """Make all of the friction of a robot part of its smooth law."""
    dry, law = sys.joints.frictionloss, _models(sys)[0]
    where = lambda s: (
        s.joints.frictionloss,
        s.actuator_models[0].model.coulomb,
        s.actuator_models[0].model.static,
    )
    return eqx.tree_at(where, sys, (0.0 * dry, dry, dry + law.static))


# Plans for one robot.


class Plan(NamedTuple):
    """Torque, states and gains at time steps `DT`, and the goal with its gain.

    The law is `u = torque + gain (x - state)`, and `hold (x - goal)` after the end.
    """

    torque: Float[Array, "T"]
    states: Float[Array, "T 4"]
    gains: Float[Array, "T 4"]
    goal: Float[Array, "4"]
    hold: Float[Array, "4"]


SUBSTEPS, KNOT = 4, 4
"""Time steps per step of iterative LQR, and per knot of improved plans."""
STAGES = jnp.array([0.1, 1.0, 10.0, 100.0, 100.0])
"""Weights of the last state."""
UPRIGHT = jnp.array([jnp.pi, 0.0, 0.0, 0.0])


class Cost(control.AbstractTrajectoryCost):
    """Torque, velocity, torque beyond three quarters of the limit, and the last state.

    - `weight`: weight of the last state.
    """

    weight: Float[Array, ""]

    def stage(self, sys, state, action):
        excess = jax.nn.relu(jnp.abs(action) - 0.75 * TORQUE_LIMIT)
        parts = 0.3 * action, 0.1 * state[2:4], 3.0 * excess
        return jnp.sqrt(2.0 * SUBSTEPS * DT) * jnp.concatenate(parts)

    def terminal(self, sys, state):
        away = 2.0 * jnp.sin(0.5 * (state[:2] - UPRIGHT[:2]))
        return jnp.sqrt(self.weight) * jnp.concatenate([10.0 * away, 1.5 * state[2:4]])


def _torques(kind: str, torque) -> Float[Array, "2"]:
    return jnp.zeros(2).at[KINDS[kind]].set(torque)


def guess(key, T: int) -> Float[Array, "T 1"]:
    """Draw a torque of three sines."""
    keys, time = jr.split(key, 3), (jnp.arange(T) * SUBSTEPS * DT)[:, None]
    size = jr.uniform(keys[0], (3,), minval=0.3, maxval=3.0)
    frequency = jr.uniform(keys[1], (3,), minval=3.0, maxval=12.0)
    phase = 2.0 * jnp.pi * jr.uniform(keys[2], (3,))
    waves = size[None] * jnp.sin(frequency[None] * time + phase[None])
    return jnp.sum(waves, 1)[:, None] * jnp.minimum(1.0, time / 0.2)


@eqx.filter_jit
def swing_ups(kind: str, sys: eqsim.System, keys):
    """Plan from random guesses: states, torques and costs."""
    T = round(DURATION[kind] / DT / SUBSTEPS)

    def step(sys, x, u):
        state = eqsim.State(x[:2], x[2:4], x[4:])
        for _ in range(SUBSTEPS):
            state = PIPELINE.step(sys, state, _torques(kind, u[0]))
        return jnp.concatenate([state.q, state.qd, state.act])

    dynamics = control.VectorDynamics(step, sys, 6, 1)

    def solve(key):
        def stage(actions, weight):
            problem = control.ControlProblem(dynamics, Cost(weight), T)
            solver = control.ILQR(max_steps=50, rtol=1e-4)
            plan = solver.solve(problem, jnp.zeros(6), actions)
            return plan.actions, (plan.states, plan.value)

        actions, (states, value) = jax.lax.scan(stage, guess(key, T), STAGES)
        return states[-1], actions, value[-1]

    return eqx.filter_vmap(solve)(keys)


SLOW = 0.4
"""Speed below which dry friction counts as damping, rad/s."""
STATE_WEIGHT = jnp.diag(jnp.array([20.0, 20.0, 1.0, 1.0]))
TORQUE_WEIGHT = {"acrobot": 20.0, "pendubot": 5.0}
"""Weights of the feedback along a plan."""


@eqx.filter_jit
def tracked(kind: str, sys: eqsim.System, states, actions, goal) -> Plan:
    """Interpolate a plan, and add time-varying LQR with friction as damping.

    The feedback neglects the lag of the torque.
    """
    Q, R = STATE_WEIGHT, jnp.array([[TORQUE_WEIGHT[kind]]])
    T = SUBSTEPS * len(actions)
    time, coarse = jnp.arange(T) / SUBSTEPS, jnp.arange(len(states))
    dense = lambda x, y: jnp.interp(time, coarse[: len(y)], y)
    x = jnp.stack([dense(time, y) for y in states[:, :4].T], 1)
    u = dense(time, actions[:, 0])
    law = _models(sys)[0]
    where = lambda s: (
        s.joints.damping,
        s.actuator_models[0].model.coulomb,
        s.actuator_models[0].model.static,
        s.actuator_models[1].model.time_constant,
    )

    def linear(x, u):
        dry = 0.5 * (law.coulomb + law.static) / jnp.sqrt(x[2:4] ** 2 + SLOW**2)
        none, quick = jnp.zeros(2), jnp.full(2, 1e-4)
        new = eqx.tree_at(where, sys, (sys.joints.damping + dry, none, none, quick))

        def step(x, u):
            torques = _torques(kind, u)
            after = PIPELINE.step(new, eqsim.State(x[:2], x[2:], torques), torques)
            return jnp.concatenate([after.q, after.qd])

        A, B = jax.jacfwd(step, (0, 1))(x, u)
        return A, B[:, None]

    hold = control.lqr(*linear(UPRIGHT, jnp.zeros(())), Q, R)
    A, B = jax.vmap(linear)(x, u)
    many = lambda x, n: jnp.broadcast_to(x, (n, *x.shape))
    weights = jnp.concatenate([many(Q, T), hold.value[None]])
    zeros = jnp.zeros((T, 4)), weights, jnp.zeros((T + 1, 4)), many(R, T)
    lq = control.LQProblem(A, B, *zeros, jnp.zeros((T, 1)), jnp.zeros((T, 4, 1)))
    return Plan(u, x, control.solve_lq(lq).gain[:, 0], goal, hold.gain[0])


def plans_for(kind: str, sys: eqsim.System, size: int, number: int) -> list[Plan]:
    """Return the cheapest plans for a robot, without those that are nearly the same."""
    states, actions, values = swing_ups(kind, sys, jr.split(jr.key(0), size))
    found, costs = [], []
    for k in np.argsort(np.asarray(values)):
        last = np.asarray(states[k, -1])
        turns = np.round((last[:2] - UPRIGHT[:2]) / (2.0 * np.pi))
        goal = np.asarray(UPRIGHT) + np.append(2.0 * np.pi * turns, (0.0, 0.0))
        off = np.max(np.abs(last[:4] - goal))
        if off > 0.05 or any(abs(values[k] - c) < 0.02 for c in costs):
            continue
        costs.append(float(values[k]))
        found.append(tracked(kind, sys, states[k], actions[k], jnp.asarray(goal)))
    return found[:number]


# Plans for many robots.


HOLD = 240
"""Time steps after the swing-up for which the goal is held in training."""
FILTER = 0.3
"""Share of a new difference of angles in the filtered velocity, per 2 ms."""
SCALES: dict[str, Any] = {"torque": 1.0, "gains": jnp.array([1.0, 1.0, 0.15, 0.15])}
SCALES["hold"] = SCALES["gains"]


def simulated(kind: str, plan: Plan, sys: eqsim.System, key):
    """Simulate a plan on a robot with a torque that is one time step late, offsets of
    encoders, a velocity filter, and noise.

    **Returns:** states and torques.
    """
    keys, T = jr.split(key, 3), len(plan.torque)
    offset = jr.normal(keys[0], (2,)) * jnp.array([0.01, 0.015])
    pushes = 0.08 * jr.normal(keys[1], (T + HOLD,))
    noise = 0.1 * jr.normal(keys[2], (T + HOLD, 2))
    many = lambda rows, last: jnp.concatenate([rows, jnp.tile(last, (HOLD, 1))])
    states, gains = many(plan.states, plan.goal), many(plan.gains, plan.hold)
    torque = jnp.pad(plan.torque, (0, HOLD))
    share = 1.0 - (1.0 - FILTER) ** (DT / 0.002)

    def step(carry, row):
        state, velocity, sent = carry
        reference, gain, torque, push, noise = row
        velocity = velocity + share * (state.qd + noise - velocity)
        seen = jnp.concatenate([state.q + offset, velocity])
        command = torque + gain @ (seen - reference)
        command = jnp.clip(command, -TORQUE_LIMIT, TORQUE_LIMIT)
        acting = jnp.clip(sent + push, -TORQUE_LIMIT, TORQUE_LIMIT)
        new = PIPELINE.step(sys, state, _torques(kind, acting))
        return (new, velocity, command), (jnp.concatenate([new.q, new.qd]), command)

    start = PIPELINE.init(sys, -offset), jnp.zeros(2), jnp.zeros(())
    rows = states, gains, torque, pushes, noise
    return jax.lax.scan(step, start, rows)[1]


def expected_cost(kind: str, plan: Plan, sys: eqsim.System, key) -> Float[Array, ""]:
    """Compute the cost of one simulation: logarithms of the distance from the goal and from
    the plan, and torque. They grow slowly where a robot has fallen."""
    states, torques = simulated(kind, plan, sys, key)
    T, weights = len(plan.torque), jnp.array([10.0, 10.0, 1.0, 1.0])
    square = lambda d: jnp.sum(weights * d**2, 1)
    off = square(states[: T - 1] - plan.states[1:])
    away = square(states[T:] - plan.goal)
    rates = jnp.diff(torques) / DT
    effort = jnp.mean(torques**2) + 2e-4 * jnp.mean(rates**2)
    far, near = jnp.mean(jnp.log1p(away / 0.5)), jnp.mean(jnp.log1p(off / 4.0))
    return far + 0.1 * near + 0.01 * effort


def _plan(parameters: dict, plan: Plan) -> Plan:
    """Interpolate torque and gains between knots."""
    at = jnp.arange(len(plan.torque)) / KNOT
    first = jnp.floor(at).astype(int)
    part = at - first
    between = lambda y: y[first] * (1.0 - part) + y[first + 1] * part
    gains = jax.vmap(between, 1, 1)(parameters["gains"])
    torque = between(parameters["torque"])
    return plan._replace(torque=torque, gains=gains, hold=parameters["hold"])


def robust(
    kind: str, plan: Plan, robots: eqsim.System, steps: int, batch: int = 48
) -> Plan:
    """Improve torque and gains of a plan for many robots, by Adam.

    Each gradient is a mean over drawn robots, each clipped to norm one.
    """
    knots = lambda y: jnp.concatenate([y[::KNOT], y[-1:]])
    parameters = {"torque": knots(plan.torque), "gains": knots(plan.gains)}
    parameters["hold"] = plan.hold
    parameters = {k: v / SCALES[k] for k, v in parameters.items()}
    optimizer = optax.adam(optax.cosine_decay_schedule(0.02, steps, 0.05))
    total = len(robots.links.mass)

    def cost(parameters, sys, key):
        scaled = {k: v * SCALES[k] for k, v in parameters.items()}
        return expected_cost(kind, _plan(scaled, plan), sys, key)

    def gradient(parameters, sys, key):
        value, slope = jax.value_and_grad(cost)(parameters, sys, key)
        size = optax.global_norm(slope)
        good, shrink = jnp.isfinite(size), jnp.maximum(size, 1.0)
        return value, jax.tree.map(lambda x: jnp.where(good, x / shrink, 0.0), slope)

    @eqx.filter_jit
    def iterate(parameters, state, robots, key) -> tuple[dict, Any, Array]:
        chosen, noise = jr.split(key)
        rows = jr.randint(chosen, (batch,), 0, total)
        take = lambda x: x[rows] if eqx.is_array(x) else x
        many = eqx.filter_vmap(gradient, in_axes=(None, 0, 0))
        values, slopes = many(
            parameters, jax.tree.map(take, robots), jr.split(noise, batch)
        )
        mean = jax.tree.map(lambda x: jnp.mean(x, 0), slopes)
        update, state = optimizer.update(mean, state)
        new: Any = optax.apply_updates(parameters, update)
        return new, state, jnp.mean(values)

    state = optimizer.init(parameters)
    for k, key in enumerate(jr.split(jr.key(1), steps)):
        parameters, state, value = iterate(parameters, state, robots, key)
        if k % 100 == 0:
            print(f"{kind}: step {k}, cost {float(value):.3f}", flush=True)
    return _plan({k: v * SCALES[k] for k, v in parameters.items()}, plan)


# The test, in NumPy.


STEP, BIT, TORQUE_NOISE = 0.002, 2.0 * np.pi / 4096, 0.1
"""Time step of plants (s), resolution of encoders (rad), and noise of torques (N m)."""
ZEROS = np.array([0.02, 0.03])
"""Standard deviation of the zeros of encoders in the recordings, rad."""


def acceleration(p: Numbers, q, qd, torque) -> np.ndarray:
    """Compute joint accelerations of many robots."""
    couple = LENGTHS[0] * p.moment[:, 1]
    c, s = couple * np.cos(q[:, 1]), couple * np.sin(q[:, 1])
    low = 9.81 * p.moment[:, 1] * np.sin(q.sum(1))
    gravity = 9.81 * p.moment[:, 0] * np.sin(q[:, 0]) + low, low
    coriolis = -s * (2.0 * qd[:, 0] + qd[:, 1]) * qd[:, 1], s * qd[:, 0] ** 2
    ratio = np.clip(qd / p.speed, -30.0, 30.0)
    friction = p.damping * qd + p.coulomb * np.arctan(100.0 * qd) * 2.0 / np.pi
    friction += p.static * np.exp(-(ratio**2)) * np.tanh(qd / 0.05)
    first, second = torque.T - np.stack(gravity) - np.stack(coriolis) - friction.T
    upper, across = p.inertia.sum(1) + 2.0 * c, p.inertia[:, 1] + c
    elbow = p.inertia[:, 1] + p.rotor
    out = elbow * first - across * second, upper * second - across * first
    return np.stack(out, 1) / (upper * elbow - across**2)[:, None]


def moved(p: Numbers, q, qd, torque) -> tuple[np.ndarray, np.ndarray]:
    """Take one step of the classical Runge-Kutta method."""
    slope = lambda q, qd: np.stack([qd, acceleration(p, q, qd, torque)])
    x = np.stack([q, qd])
    k1 = slope(*x)
    k2 = slope(*(x + 0.5 * STEP * k1))
    k3 = slope(*(x + 0.5 * STEP * k2))
    k4 = slope(*(x + STEP * k3))
    q, qd = x + STEP / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + k4)
    return q, qd


def standing(
    kind: str, plan: Plan, plants: Numbers, *, zeros: float = 0.0, seed: int = 0
) -> np.ndarray:
    """Return which plants are upright throughout the last of 10 s.

    **Arguments:**

    - `plants`: the robots.
    - `zeros`: factor of the offsets of encoders, `ZEROS`; robots hang at rest where
        encoders read zero.
    """
    rng, count, joint = np.random.default_rng(seed), len(plants.rotor), KINDS[kind]
    fine = np.arange(round(len(plan.torque) * DT / STEP)) * STEP
    coarse = np.arange(len(plan.torque)) * DT
    dense = lambda rows: np.stack([np.interp(fine, coarse, y) for y in rows.T], 1)
    states, gains = dense(np.asarray(plan.states)), dense(np.asarray(plan.gains))
    torques = np.interp(fine, coarse, np.asarray(plan.torque))
    goal, hold = np.asarray(plan.goal), np.asarray(plan.hold)
    offset = zeros * ZEROS * rng.normal(size=(count, 2))
    read = lambda q: np.round((q - offset) / BIT) * BIT
    q, qd, acting = offset.copy(), np.zeros((count, 2)), np.zeros((count, 2))
    seen, velocity, upright = read(q), np.zeros((count, 2)), []
    late = 1 + np.round(plants.delay / STEP).astype(int)
    sent = np.zeros((late.max() + 1, count))
    share = 1.0 - np.exp(-STEP / plants.lag)
    for k in range(round(10.0 / STEP)):
        old, seen = seen, read(q)
        velocity = velocity + FILTER * ((seen - old) / STEP - velocity)
        ended = k >= len(fine)
        x = goal if ended else states[k]
        angles = within_half_turn(seen - x[:2])
        away = np.concatenate([angles, velocity - x[2:]], 1)
        torque = away @ (hold if ended else gains[k])
        torque = torque + (0.0 if ended else torques[k])
        sent = np.roll(sent, 1, 0)
        sent[0] = np.clip(torque, -TORQUE_LIMIT, TORQUE_LIMIT)
        command = np.zeros((count, 2))
        command[:, joint] = sent[late, np.arange(count)]
        command[:, joint] += TORQUE_NOISE * rng.normal(size=count)
        command = np.clip(command, -TORQUE_LIMIT, TORQUE_LIMIT)
        acting = acting + share * (command - acting)
        q, qd = moved(plants, q, qd, acting)
        height = -np.cos(np.cumsum(q, 1)) @ LENGTHS
        upright.append(height >= HEIGHT * LENGTHS.sum())
    return np.all(upright[-round(1.0 / STEP) :], 0)


def plant(folder: pathlib.Path, seed: int) -> Numbers:
    """Fit a robot to 7 s of one run each of a swing-up as acrobot and as pendubot."""
    rng, runs = np.random.default_rng(seed), []
    for kind in KINDS:
        path = folder / f"swingup_C1_{kind}_ilqr_tvlqr_lqr.npz"
        many = load(path)
        one, start = many[rng.integers(len(many))], rng.uniform(0.0, 1.5)
        part = one.cut(one.time[0] + start, one.time[0] + start + 7.0)
        runs.append(Recording(part.time, part.ctrl, part.channels, kind))
    result = fitted(runs, (0.4, 0.5)[seed % 2])
    return numbers(result.sys, float(result.signals.delays["ctrl"]))


def load(path: pathlib.Path) -> list[Recording]:
    """Load recordings of commands and angles."""
    return identify.load_recordings(path, ctrl="tau_command", channels={"q": "q"})


# The command.


def best(kind: str, plans: Sequence[Plan], draws: Numbers) -> tuple[list[int], list]:
    """Sort plans by the number of drawn robots that stand."""
    counts = [int(standing(kind, plan, draws).sum()) for plan in plans]
    return [int(k) for k in np.argsort(counts, kind="stable")[::-1]], counts


def compare(
    kind: str, robots: eqsim.System, mean: eqsim.System, draws: Numbers, plants, options
) -> dict:
    """Plan for the mean robot and for all, choose by drawn robots, and test on plants."""
    nominal = plans_for(kind, mean, options.guesses, 6)
    order, counts = best(kind, nominal, draws)
    improved = [robust(kind, nominal[k], robots, options.steps) for k in order[:2]]
    after, later = best(kind, improved, draws)
    pairs = {
        "one robot": (nominal[order[0]], max(counts)),
        "posterior": (improved[after[0]], max(later)),
    }
    found: dict = {}
    for name, (plan, drawn) in pairs.items():
        found[name] = {"drawn robots": f"{drawn} of {len(draws.rotor)}"}
        for about, zeros in (("plants", 0.0), ("plants, offsets of encoders", 1.0)):
            runs = [
                int(standing(kind, plan, plants, zeros=zeros, seed=s).sum())
                for s in range(options.seeds)
            ]
            found[name][about] = f"{runs} of {len(plants.rotor)}"
    return found


def main() -> None:
    """Identify, plan, and print on how many test plants the robot stands."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    recordings = os.environ.get("EQSIM_RECORDINGS", ".")
    add("--recordings", type=pathlib.Path, default=recordings, help="their folder")
    add("--kinds", nargs="+", choices=tuple(KINDS), default=list(KINDS))
    add("--fits", type=int, default=10, help="fits to resampled blocks")
    add("--plants", type=int, default=20, help="test plants")
    add("--guesses", type=int, default=24, help="guesses of iterative LQR")
    add("--steps", type=int, default=600, help="gradients of a robust plan")
    add("--seeds", type=int, default=3, help="seeds of the noise of tests")
    options = parser.parse_args()
    folder = options.recordings / "double_pendulum"
    runs = load(folder / "identification_C1.npz")
    results = []
    for k in range(options.fits):
        results.append(fitted(resampled(runs, k), (1.0, 0.5)[k % 2]))
        print(f"fit {k}: {numbers(results[-1].sys)}", flush=True)
    plants = stacked([plant(folder, k) for k in range(options.plants)])
    posterior = posterior_of(results)
    slow, fast = robot(0.002, "implicitfast"), robot(DT, "RK4")
    tests = drawn(posterior, slow, jr.split(jr.key(1), 40))
    pick = lambda k: jax.tree.map(lambda x: x[k] if eqx.is_array(x) else x, tests)
    draws = stacked([numbers(pick(k)) for k in range(40)])
    robots = smooth(drawn(posterior, fast, jr.split(jr.key(0), 64)))
    point = eqx.tree_at(lambda p: p.factor, posterior, 0.0 * posterior.factor)
    mean = smooth(point(jr.key(0), fast))
    for kind in options.kinds:
        found = compare(kind, robots, mean, draws, plants, options)
        print(json.dumps({kind: found}, indent=1), flush=True)


if __name__ == "__main__":
    main()
