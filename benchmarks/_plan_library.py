"""Swing-ups of the double pendulum from many states, and the best one for a state.

A library of plans of iterative LQR with time-varying LQR along each. For a state, the
nearest step of every plan is found in the metric of its cost-to-go, and the nearest plans
are simulated with the model. If none reaches the goal, a plan from that state is added (Tedrake
et al., *LQR-trees*, 2010; Reist, Tedrake, *Simulation-based LQR-trees*, 2010).
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from _double_pendulum import HEIGHT, TORQUE_LIMIT, within_half_turn
from _double_pendulum_mjcf import mjcf
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


def model(p: dict[str, float], kind: str) -> Model:
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
