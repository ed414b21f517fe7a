"""Pipelines that are wrong in one way each, by the check that is to see it."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from testing.wrong_envs import wrong_in_batches

from eqsim import AbstractPipeline, Generalized, State


# What a switch of `Switched` turns on, and what is said of it.
SWITCHES = {
    "scan": "a ball that falls to the ground.*nan",
    "aux": "with the `aux` of `init`",
    "free_fall": "velocities are",
    "linear_momentum": "by a fraction of",
    "angular_momentum": "by a fraction of",
    "energy": "energy changes by",
    "coordinates": "the pendulum is",
    "contact": "sinks in|the height of the ball",
    "forces": "`contacts` carries",
    "advance": "`qdd` of `advance`",
    "grad": "at the reference.*nan",
    "gradients_q": r"by \[0\]",
    "gradients_qd": r"by \[1\]",
    "gradients_ctrl": r"by \[2\]",
    "gradients_sys": r"by \[3\]\.links\.mass",
    "sensitivity": "in the air.*joints.damping` is zero",
}


def _constant(x, on):
    return jnp.where(on > 0, jax.lax.stop_gradient(x), x)


class Switched(AbstractPipeline):
    """`Generalized`, with mistakes that numbers switch on: one program for all."""

    switches: Array
    inner: Generalized

    def __init__(self, name=None):
        on = [float(name == key) for key in SWITCHES]
        self.switches, self.inner = jnp.asarray(np.array(on)), Generalized()

    def on(self, name):
        return self.switches[list(SWITCHES).index(name)]

    def init(self, sys, q=None, qd=None):
        new = self.inner.init(sys, q, qd)
        return State(new.q, new.qd, new.act, jnp.zeros_like(new.qd[0]))

    def step(self, sys, state, ctrl, external=None):
        names, h = sys.links.names, sys.dt
        where = lambda s: (s.links.mass, s.joints.damping, s.geoms.size, s.dt)
        mass, damping, size, dt = where(sys)
        ignored = self.on("sensitivity")
        constant = 0.05 * jnp.ones_like(damping)
        ball = "rod" in names
        sys = eqx.tree_at(
            where,
            sys,
            (
                _constant(mass, self.on("gradients_sys")),
                damping + ignored * (constant - damping) if ball else damping,
                size * (1.0 - 0.1 * self.on("contact")) if ball else size,
                dt * (1.0 + 0.3 * self.on("coordinates")) if "lower" in names else dt,
            ),
        )
        q = _constant(state.q, self.on("gradients_q"))
        qd = _constant(state.qd, self.on("gradients_qd"))
        ctrl = _constant(ctrl, self.on("gradients_ctrl"))
        new = self.inner.step(sys, State(q, qd, state.act), ctrl, external)
        q, qd = new.q, new.qd
        if names == ("box",):
            qd = self._box(sys, qd, h)
        elif ball:
            qd = self._ball(qd, state)
        else:
            qd = qd * (1.0 + 30.0 * h**2 * self.on("energy"))
        return State(q, qd, new.act, state.aux + 1.0)

    def _box(self, sys, qd, h):
        spin = jnp.sqrt(jnp.sum(qd[3:] ** 2) + 1e-12)
        falls = qd[:3] + 0.1 * h * self.on("free_fall") * sys.gravity
        slows = 1.0 - 2e-3 * h * jnp.tanh(spin) * self.on("linear_momentum")
        turns = 1.0 - 10.0 * h**2 * self.on("angular_momentum")
        return jnp.concatenate([slows * falls, turns * qd[3:]])

    def _ball(self, qd, state):
        lost = (qd[2] < -0.3) & (self.on("scan") > 0)
        qd = jnp.where(lost, jnp.nan, qd)
        qd = qd + 1e-6 * self.on("aux") * state.aux
        # Has no derivative at rest.
        on = self.on("grad") > 0
        speed = jnp.sqrt(jnp.where(on, jnp.sum(state.qd**2), 1.0))
        return qd + 1e-9 * jnp.where(on, speed, 0.0)

    def solve(self, sys, state, ctrl, external=None):
        bare = State(state.q, state.qd, state.act)
        found = self.inner.solve(sys, bare, ctrl, external)
        less = found.contacts.force * (1.0 - 0.5 * self.on("forces"))
        return eqx.tree_at(lambda s: s.contacts.force, found, less)

    def advance(self, sys, state, ctrl, external=None):
        solved = self.solve(sys, state, ctrl, external)
        wrong = 1.0 + 0.1 * self.on("advance")
        solved = eqx.tree_at(lambda s: s.qdd, solved, wrong * solved.qdd)
        return self.step(sys, state, ctrl, external), solved


class _Around(AbstractPipeline):
    """`Generalized`."""

    inner: Generalized = eqx.field(default_factory=Generalized)

    def init(self, sys, q=None, qd=None):
        return self.inner.init(sys, q, qd)

    def step(self, sys, state, ctrl, external=None):
        return self.inner.step(sys, state, ctrl, external)

    def solve(self, sys, state, ctrl, external=None):
        return self.inner.solve(sys, state, ctrl, external)

    def advance(self, sys, state, ctrl, external=None):
        new = self.step(sys, state, ctrl, external)
        return new, self.solve(sys, state, ctrl, external)


class BranchesInPython(_Around):
    def step(self, sys, state, ctrl, external=None):
        return state if state.q[0] > 0 else _Around.step(self, sys, state, ctrl)


class GrowsItsState(_Around):
    def step(self, sys, state, ctrl, external=None):
        bare = State(state.q, state.qd, state.act)
        new = self.inner.step(sys, bare, ctrl, external)
        return State(new.q, new.qd, new.act, jnp.ones(3))


class SinglePrecision(_Around):
    def init(self, sys, q=None, qd=None):
        new = self.inner.init(sys, q, qd)
        return State(new.q, new.qd, new.act, jnp.zeros(2, jnp.float32))

    def step(self, sys, state, ctrl, external=None):
        bare = State(state.q, state.qd, state.act)
        new = self.inner.step(sys, bare, ctrl, external)
        return State(new.q, new.qd, new.act, jnp.zeros(2, jnp.float32))


class WrongInBatches(_Around):
    def step(self, sys, state, ctrl, external=None):
        new = self.inner.step(sys, state, ctrl, external)
        zero = jax.lax.stop_gradient(0.0 * new.qd)
        wrong = wrong_in_batches(lambda x: x + 1.0)(zero)
        return State(new.q, new.qd + wrong, new.act)


class NumberOfPython(_Around):
    share: float = 1.0


class Text(_Around):
    label: str = "not saved"


class Anew(_Around):
    fn: Any = eqx.field(static=True, default=None)

    def __init__(self):
        self.inner, self.fn = Generalized(), lambda x: x


class TakesAnyShape(_Around):
    def step(self, sys, state, ctrl, external=None):
        return self.inner.step(sys, state, ctrl[: sys.nu], external)


MUTANTS = {
    BranchesInPython: ("jit", "bool"),
    GrowsItsState: ("structure", "structures differ"),
    SinglePrecision: ("precision", "aux is float32 for a robot in float64"),
    WrongInBatches: ("vmap", "row 0 of a batch"),
    NumberOfPython: ("retrace", "share is the number 1.0 of Python"),
    Text: ("serialization", "'not saved'"),
    Anew: ("rebuild", "different structures"),
    TakesAnyShape: ("refusals", "a control of a wrong shape"),
}


class Refuses(_Around):
    """Without contact."""

    def init(self, sys, q=None, qd=None):
        if "ground" in sys.geoms.names:
            raise ValueError("Nothing may touch.")
        return self.inner.init(sys, q, qd)
