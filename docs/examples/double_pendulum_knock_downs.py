"""Keep the double pendulum upright through knock-downs, with a library of plans.

    python docs/examples/double_pendulum_knock_downs.py --kinds acrobot --seeds 2

Both joints get torque pulses every 8 to 12 s for 60 s. A library of plans of iterative LQR,
with time-varying LQR along each, is built before. For a state, the nearest step of every
plan is found in the metric of its cost-to-go, and the nearest plans are simulated with the
model. If none reaches the goal, a plan from that state is added (Tedrake et al., *LQR-trees*,
2010; Reist, Tedrake, *Simulation-based LQR-trees*, 2010).
"""

import argparse
from typing import NamedTuple

import equinox as eqx
import jax


jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from double_pendulum import (
    DT,
    HEIGHT,
    KINDS,
    mjcf,
    Parameters,
    parameters,
    simulate,
    step,
    TORQUE_LIMIT,
    upright,
    within_half_turn,
)
from jaxtyping import Array, Float, Int

import eqsim
from eqsim import control


STEP, LENGTH, CAPACITY = 0.02, 100, 512
"""Time step (s) and number of steps of a plan, and the largest number of plans."""

CANDIDATES, SETTLING = 48, 20
"""Number of plans that are simulated for a state, and number of balancing steps at
their end."""

PIPELINE = eqsim.Generalized()
UPRIGHT = jnp.array([jnp.pi, 0.0, 0.0, 0.0])
TRACKING = jnp.diag(jnp.array([20.0, 20.0, 1.0, 1.0])), jnp.array([[0.5]])


class Library(NamedTuple):
    """Plans with feedback. Unused entries are zero.

    - `states`: angles and velocities.
    - `torques`: torques of the motor, N m.
    - `gains`: feedback of the difference from the states.
    - `values`: cost-to-go of such differences.
    - `number`: number of plans.
    """

    states: Float[Array, "N T1 4"]
    torques: Float[Array, "N T"]
    gains: Float[Array, "N T 4"]
    values: Float[Array, "N T1 4 4"]
    number: Int[Array, ""]


class Place(NamedTuple):
    """A step of a plan: `step >= LENGTH` is balancing."""

    plan: Int[Array, ""]
    step: Int[Array, ""]


class Model(NamedTuple):
    """The robot, and the same without dry friction, its regulator in the upright pose, the
    lengths of its links, and weights of plans, `STAGES`."""

    sys: eqsim.System
    smooth: eqsim.System
    hold: control.LQR
    lengths: Float[Array, "2"]
    stages: Float[Array, "4 6"]


def model(p: Parameters, kind: str) -> Model:
    """Create the planning model and its regulator."""
    sys = eqsim.load_mjcf(mjcf(p, kind, STEP))
    smooth = eqsim.load_mjcf(mjcf(p, kind, STEP, dry=False))
    A, B = control.linearize_step(PIPELINE, smooth, _state(UPRIGHT), jnp.zeros(1))
    hold = control.lqr(A, B, *TRACKING)
    # The value matrix of the pendubot is nearly singular: plans that should make it small
    # end in local optima.
    stages = STAGES.at[:, 5].multiply(float(kind == "acrobot"))
    return Model(sys, smooth, hold, jnp.array([p["l1"], p["l2"]]), stages)


def _state(x: Float[Array, "4"]) -> eqsim.State:
    return eqsim.State(x[:2], x[2:], jnp.zeros(0))


def near(x: Array, to: Array) -> Array:
    """Return the difference of states, angles within half a turn."""
    d = x - to
    return jnp.concatenate([within_half_turn(d[..., :2]), d[..., 2:]], -1)


def height(lengths: Float[Array, "2"], x: Array) -> Array:
    """Compute the fraction of the full height."""
    up = -jnp.cos(jnp.cumsum(x[..., :2], -1)) @ lengths
    return up / jnp.sum(lengths)


STAGES = jnp.array(
    [
        (0.3, 1.0, 1.0, 0.3, 0.1, 0.0),
        (0.5, 0.5, 0.5, 0.2, 1.0, 1e-4),
        (1.0, 0.3, 0.2, 0.2, 10.0, 1e-3),
        (3.0, 0.1, 0.1, 0.1, 100.0, 1e-2),
    ]
)
"""Weights of a plan, from gentle to quick: roots of those of time below the threshold,
torque and velocity; width of the threshold; weights of the last state, by a diagonal
matrix and by the cost of balancing from there."""

LAST = jnp.array([10.0, 10.0, 1.5, 1.5])
"""Roots of the diagonal matrix."""


class Cost(control.AbstractTrajectoryCost):
    """Time below the threshold, torque and velocity, and the last state.

    - `root`: root of the value matrix of the regulator.
    - `lengths`: lengths of the links, m.
    - `weights`: a row of `STAGES`.
    """

    root: Float[Array, "4 4"]
    lengths: Float[Array, "2"]
    weights: Float[Array, "6"]

    def stage(self, sys, state, action):
        x, w = jnp.concatenate([state.q, state.qd]), self.weights
        below = jax.nn.sigmoid((HEIGHT - height(self.lengths, x)) / w[3])
        time = w[0] * jnp.sqrt(below + 1e-4)[None]
        parts = time, w[1] * action, w[2] * state.qd
        return jnp.sqrt(2.0 * STEP) * jnp.concatenate(parts)

    def terminal(self, sys, state):
        d = near(jnp.concatenate([state.q, state.qd]), UPRIGHT)
        chord = jnp.concatenate([2.0 * jnp.sin(0.5 * d[:2]), d[2:]])
        diagonal, balance = jnp.sqrt(self.weights[4]), jnp.sqrt(self.weights[5])
        return jnp.concatenate([diagonal * LAST * chord, balance * self.root @ chord])


def feedback(model: Model, library: Library, at: Place, x: Array) -> Float[Array, "1"]:
    """Compute the torque of a plan, or of balancing after its end."""
    k = jnp.minimum(at.step, LENGTH - 1)
    d = near(x, library.states[at.plan, k])
    planned = library.torques[at.plan, k] + library.gains[at.plan, k] @ d
    holding = model.hold.gain[0] @ near(x, UPRIGHT)
    torque = jnp.where(at.step < LENGTH, planned, holding)
    return jnp.clip(torque, -TORQUE_LIMIT, TORQUE_LIMIT)[None]


def _step(model: Model, x, torque):
    new = PIPELINE.step(model.sys, _state(x), torque)
    return jnp.concatenate([new.q, new.qd])


class Trial(NamedTuple):
    """A simulated plan.

    - `time`: seconds below the threshold; infinite if it does not end upright.
    - `torques`: torques of the motor, N m.
    """

    time: Float[Array, ""]
    torques: Float[Array, "T"]


def trial(model: Model, library: Library, at: Place, x: Array) -> Trial:
    """Simulate a plan from a state near to one of its steps."""

    def step(x, k):
        torque = feedback(model, library, at._replace(step=at.step + k), x)
        return _step(model, x, torque), (height(model.lengths, x), torque[0])

    end, (heights, torques) = eqsim.scan(step, x, jnp.arange(LENGTH + SETTLING))
    d = near(end, UPRIGHT)
    upright = d @ model.hold.value @ d < 0.05 * jnp.trace(model.hold.value[:2, :2])
    time = STEP * jnp.sum(heights < HEIGHT)
    return Trial(jnp.where(upright, time, jnp.inf), torques[:LENGTH])


def candidates(library: Library, x: Array) -> Place:
    """Find the plans with steps nearest to a state, and these steps."""
    d = near(x, library.states)
    value = jnp.einsum("ntx,ntxy,nty->nt", d, library.values, d)
    used = jnp.arange(CAPACITY) < library.number
    value = jnp.where(used[:, None], value, jnp.inf)
    _, plans = jax.lax.top_k(-jnp.min(value, 1), CANDIDATES)
    return Place(plans, jnp.argmin(value, 1)[plans])


class Choice(NamedTuple):
    """The best plan for a state: its place, and the seconds below the threshold."""

    at: Place
    time: Float[Array, ""]


@eqx.filter_jit
def choose(model: Model, library: Library, x: Array, torque, current: Place) -> Choice:
    """Choose the plan that is upright soonest, for one time step later.

    **Arguments:**

    - `x`, `torque`: state, and the torque until the choice is ready.
    - `current`: the plan that is followed, at the later time.
    """
    x = _step(model, x, torque)
    found = candidates(library, x)
    hold = Place(jnp.zeros((), int), jnp.full((), LENGTH))
    join = lambda many, *more: jnp.concatenate([many, jnp.stack(more)])
    found = jax.tree.map(join, found, current, hold)
    times = jax.vmap(lambda at: trial(model, library, at, x).time)(found)
    # Change plans only for a clear improvement.
    times = times.at[-2].add(-0.1)
    best = jnp.argmin(times)
    return Choice(jax.tree.map(lambda a: a[best], found), times[best])


def empty() -> Library:
    """Create a library without plans."""
    zeros = lambda *shape: jnp.zeros((CAPACITY, *shape))
    return Library(
        zeros(LENGTH + 1, 4),
        zeros(LENGTH),
        zeros(LENGTH, 4),
        zeros(LENGTH + 1, 4, 4),
        jnp.zeros((), int),
    )


def random_torque(key) -> Float[Array, "T"]:
    """Draw a torque of three decaying sines."""
    keys = jr.split(key, 3)
    time = (jnp.arange(LENGTH) * STEP)[:, None]
    size = jr.uniform(keys[0], (3,), minval=0.1, maxval=1.2)
    frequency = jr.uniform(keys[1], (3,), minval=2.0, maxval=12.0)
    phase = 2.0 * jnp.pi * jr.uniform(keys[2], (3,))
    waves = size[None] * jnp.sin(frequency[None] * time + phase[None])
    return jnp.sum(waves, 1) * jnp.exp(-time[:, 0])


class Found(NamedTuple):
    """The best plan from one state: the rows of a `Library`, seconds below the threshold,
    and those of the best plan in the library before."""

    states: Float[Array, "T1 4"]
    torques: Float[Array, "T"]
    gains: Float[Array, "T 4"]
    values: Float[Array, "T1 4 4"]
    time: Float[Array, ""]
    before: Float[Array, ""]


def _planned(model: Model, x: Array, guess: Float[Array, "T"]):
    """Plan from a state: states, torques, and seconds below the threshold."""
    root = jnp.linalg.cholesky(model.hold.value).T
    limits = jnp.array([[-0.9, 0.9]]) * TORQUE_LIMIT
    solver = control.ILQR(max_steps=40, rtol=1e-4)

    def stage(torques, weights):
        cost = Cost(root, model.lengths, weights)
        problem = control.ControlProblem((PIPELINE, model.sys), cost, LENGTH, limits)
        plan = solver.solve(problem, _state(x), torques)
        return plan.actions, plan.states

    torques, states = jax.lax.scan(stage, guess[:, None], model.stages)
    states = jnp.concatenate([states.q[-1], states.qd[-1]], 1)
    d = near(states[-1], UPRIGHT)
    # The regulator can take over.
    arrived = jnp.abs(model.hold.gain[0] @ d) < TORQUE_LIMIT
    arrived = arrived & jnp.all(jnp.abs(d[:2]) < 0.3)
    below = STEP * jnp.sum(height(model.lengths, states) < HEIGHT)
    return states, torques[:, 0], jnp.where(arrived, below, jnp.inf)


@eqx.filter_jit
def plans_from(model: Model, library: Library, starts, key) -> Found:
    """Plan from many states, and keep the best plan of each.

    The guesses are the torques of the best plan so far, and two random ones.
    """

    def one(x, key):
        places = candidates(library, x)
        trials = jax.vmap(lambda at: trial(model, library, at, x))(places)
        best = trials.torques[jnp.argmin(trials.time)]
        random = jax.vmap(random_torque)(jr.split(key))
        guesses = jnp.concatenate([best[None], random])
        states, torques, times = jax.vmap(lambda g: _planned(model, x, g))(guesses)
        best = jnp.argmin(times)
        return states[best], torques[best], times[best], jnp.min(trials.time)

    states, torques, times, before = jax.vmap(one)(starts, jr.split(key, len(starts)))
    track = lambda states, torques: control.tvlqr(
        (PIPELINE, model.smooth),
        eqsim.State(states[:, :2], states[:, 2:], jnp.zeros((LENGTH + 1, 0))),
        torques[:, None],
        *TRACKING,
        model.hold.value,
    )
    tracked = jax.vmap(track)(states, torques)
    return Found(states, torques, tracked.gain[:, :, 0], tracked.value, times, before)


def added(library: Library, found: Found) -> tuple[Library, np.ndarray]:
    """Add plans from states from which no plan reached the goal, or from which new
    plans save time.

    **Returns:** the library, and which plans were added.
    """
    better = np.asarray(found.time) < np.asarray(found.before) - 0.15
    chosen = np.flatnonzero(better)[: CAPACITY - int(library.number)]
    n = int(library.number)
    put = lambda many, new: many.at[n : n + len(chosen)].set(new[chosen])
    rows = [put(a, b) for a, b in zip(library[:4], found[:4], strict=True)]
    states, torques, gains, values = rows
    number = library.number + len(chosen)
    return Library(states, torques, gains, values, number), chosen


TICK = round(STEP / DT)
"""Number of time steps of the plant per step of a plan."""


def knocks(seed: int, duration: float = 60.0):
    """Draw the pulses of a run: beginning (s) and torques of both joints (N m)."""
    rng, now, pulses = np.random.default_rng(seed), 0.0, []
    while (now := now + rng.uniform(8.0, 12.0)) < duration:
        pulses.append((now, rng.choice((-1.0, 1.0), 2) * rng.uniform(3.0, 6.0, 2)))
    return pulses


class Brake:
    """Take energy out while there is more than in the upright pose.

    **Arguments:**

    - `p`: parameters of the model.
    - `kind`: `acrobot` or `pendubot`.
    """

    def __init__(self, p: Parameters, kind: str):
        self.p, self.joint = p, KINDS[kind]

    def torque(self, x: np.ndarray) -> float:
        """Compute the torque of the motor, N m."""
        excess = self._energy(x) / self._scale() - 0.8
        strength = 1.5 * np.clip(excess / 0.3, 0.0, 1.0)
        return float(
            np.clip(-strength * x[2 + self.joint], -TORQUE_LIMIT, TORQUE_LIMIT)
        )

    def _scale(self) -> float:
        p = self.p
        return p["g"] * (p["m1"] * p["r1"] + p["m2"] * (p["l1"] + p["r2"]))

    def _energy(self, x) -> float:
        p, q, qd = self.p, x[:2], x[2:]
        couple = p["m2"] * p["l1"] * p["r2"] * np.cos(q[1])
        upper = p["I1"] + p["I2"] + p["m2"] * p["l1"] ** 2 + 2.0 * couple
        kinetic = 0.5 * (upper * qd[0] ** 2 + p["I2"] * qd[1] ** 2)
        kinetic += (p["I2"] + couple) * qd[0] * qd[1]
        upper = (p["m1"] * p["r1"] + p["m2"] * p["l1"]) * np.cos(q[0])
        return kinetic - p["g"] * (upper + p["m2"] * p["r2"] * np.cos(q[0] + q[1]))


def _near(x: np.ndarray, to: np.ndarray) -> np.ndarray:
    d = x - to
    return np.concatenate([within_half_turn(d[:2]), d[2:]])


class LibraryController:
    """Swing up, balance, and swing up again after a fall, from any state.

    Away from its plan, it chooses a new plan every 20 ms, for the state that the model
    predicts 20 ms later; it brakes while no plan reaches the goal.

    **Arguments:**

    - `kind`: `acrobot` or `pendubot`.
    - `p`: parameters of the model.
    - `library`: plans.
    """

    def __init__(self, kind: str, p: Parameters, library: Library):
        self.joint, self._brake = KINDS[kind], Brake(p, kind)
        self._model, self._library = model(p, kind), library
        self._rows = {k: np.asarray(x) for k, x in library._asdict().items()}
        self._hold = np.asarray(self._model.hold.gain[0])
        self.reset()

    def reset(self) -> None:
        """Start a run."""
        self._plan, self._step, self._next = None, 0, None
        self.choices = 0

    def torque(self, time: float, q, qd) -> np.ndarray:
        """Compute both torques, N m; that of the joint without motor is zero."""
        x, k = np.concatenate([q, qd]), round(time / DT)
        if k % TICK == 0:
            self._tick(x)
        out = np.zeros(2)
        torque = self._law(x, (k % TICK) / TICK)
        out[self.joint] = np.clip(torque, -TORQUE_LIMIT, TORQUE_LIMIT)
        return out

    def _tick(self, x) -> None:
        self._step += 1
        if self._next is not None:
            self._plan, self._step = self._next
            self._next = None
        if self._plan is None or self._astray(x):
            self._next = self._chosen(x)

    def _astray(self, x) -> bool:
        d = np.abs(_near(x, self._target(0.0)[0]))
        return bool(np.max(d[:2]) > 0.15 or np.max(d[2:]) > 2.0)

    def _chosen(self, x):
        self.choices += 1
        following = self._plan is not None
        current = (self._plan, self._step + 1) if following else (0, LENGTH)
        torque = np.clip(self._law(x, 0.0), -TORQUE_LIMIT, TORQUE_LIMIT)
        place = Place(*(jnp.asarray(a) for a in current))
        state, held = jnp.asarray(x), jnp.array([torque])
        found = choose(self._model, self._library, state, held, place)
        if not np.isfinite(found.time):
            return None, 0
        return int(found.at.plan), int(found.at.step)

    def _target(self, part: float):
        """Return the planned state, torque and gain, a fraction of a step later."""
        if self._step >= LENGTH:
            return np.array([np.pi, 0.0, 0.0, 0.0]), 0.0, self._hold
        rows, k = self._rows, self._step
        states, plan = rows["states"], self._plan
        now, then = states[plan, k], states[plan, k + 1]
        state = now + part * (then - now)
        return state, rows["torques"][plan, k], rows["gains"][plan, k]

    def _law(self, x, part: float) -> float:
        if self._plan is None:
            return self._brake.torque(x)
        state, torque, gain = self._target(part)
        return float(torque + gain @ _near(x, state))


def falls(p, kind: str, hold: np.ndarray, rng, number: int) -> np.ndarray:
    """Draw states: knocked down from the upright pose, then braked for up to 2 s."""
    brake, joint, dt = Brake(p, kind), KINDS[kind], 0.01
    upright, states = np.array([np.pi, 0.0, 0.0, 0.0]), []
    for _ in range(number):
        x = upright.copy()
        pulse = rng.choice((-1.0, 1.0), 2) * rng.uniform(3.0, 6.0, 2)
        wait = rng.uniform(0.0, 2.0)
        for k in range(round((0.2 + wait) / dt)):
            pushed, torque = k < 20, np.zeros(2)
            own = hold @ _near(x, upright) if pushed else brake.torque(x)
            torque[joint] = np.clip(own, -TORQUE_LIMIT, TORQUE_LIMIT)
            q, qd = step(p, x[:2], x[2:], torque + pushed * pulse, dt)
            x = np.concatenate([q, qd])
        states.append(x)
    return np.stack(states)


def build(kind: str, rounds: int, size: int = 32, say=print) -> Library:
    """Build a library: rounds of falls, with new plans for those that no plan catches.

    **Arguments:**

    - `kind`: `acrobot` or `pendubot`.
    - `rounds`, `size`: number of rounds and of falls in each.
    - `say`: called with a line about each round.
    """
    p = parameters()
    robot, library = model(p, kind), empty()
    rng, hold = np.random.default_rng(10_000), np.asarray(robot.hold.gain[0])
    for turn, key in enumerate(jr.split(jr.key(0), rounds)):
        starts = falls(p, kind, hold, rng, size)
        if turn == 0:
            starts[0] = 0.0
        found = plans_from(robot, library, jnp.asarray(starts), key)
        library, new = added(library, found)
        caught = np.isfinite(found.before)
        planned = np.isfinite(found.time)
        say(
            f"{kind} round {turn}: {caught.mean():.2f} caught, {planned.mean():.2f} "
            f"planned, {len(new)} new, {int(library.number)} plans"
        )
        if int(library.number) >= CAPACITY - size:
            break
    return library


def main() -> None:
    """Build libraries, and print the share of the time upright."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kinds", nargs="+", choices=tuple(KINDS), default=list(KINDS))
    parser.add_argument("--seeds", type=int, default=6, help="runs")
    parser.add_argument("--rounds", type=int, default=4, help="of plans")
    options = parser.parse_args()
    p = parameters()
    for kind in options.kinds:
        controller, shares = LibraryController(kind, p, build(kind, options.rounds)), []
        for seed in range(options.seeds):
            run = simulate(p, kind, controller, duration=60.0, pulses=knocks(seed))
            shares.append(float(upright(p, run).mean()))
            print(f"{kind}, seed {seed}: upright {shares[-1]:.3f}", flush=True)
        print(f"{kind}: mean {np.mean(shares):.3f}, least {np.min(shares):.3f}")


if __name__ == "__main__":
    main()
