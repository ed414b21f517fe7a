"""Environments that are wrong in one way each, by the check that is to see it."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.custom_batching import custom_vmap
from toys import Rail

import eqsim
from eqsim import State


def rail():
    """The environment that is right."""
    return Rail(spring=jnp.zeros(()))


def _wrong_in_batches(wrong):
    """The identity, which in a batch is something else."""

    @custom_vmap
    def identity(x):
        return x

    @identity.def_vmap
    def _(size, batched, x):
        return wrong(x), batched[0]

    return identity


class _Wrong(Rail):
    def __init__(self):
        Rail.__init__(self, spring=jnp.zeros(()))


def _changed(timestep, where, value):
    return eqx.tree_at(where, timestep, value)


class BranchesInPython(_Wrong):
    def terminated(self, state):
        return jnp.zeros((), bool) if state.q[0] > 0 else jnp.ones((), bool)


class NotFinite(_Wrong):
    def observe(self, state, action):
        return jnp.log(Rail.observe(self, state, action))


class OtherType(_Wrong):
    def transition(self, state, action):
        wide = State(state.q, state.qd.astype(state.q.dtype), state.act)
        new = Rail.transition(self, wide, action)
        return State(new.q, new.qd.astype(jnp.float32), new.act)

    def observe(self, state, action):
        return state.q

    def rewards(self, state, action, new):
        return {"place": -jnp.sum(new.q**2)}


class WeakType(_Wrong):
    def initial(self, key):
        key = jr.uniform(key) > 0.5
        return self.pipeline.init(self.sys, jnp.where(key, 0.1, 0.2) * jnp.full(2, 1.0))


class CountsInPython(_Wrong):
    def transition(self, state, action):
        count = 0 if state.aux is None else state.aux
        new = Rail.transition(self, State(state.q, state.qd, state.act), action)
        return State(new.q, new.qd, new.act, count + 1)


class DrawsInNumPy(_Wrong):
    def initial(self, key):
        noise = jnp.asarray(np.random.default_rng().normal(), self.sys.dt.dtype)
        state = Rail.initial(self, key)
        return self.pipeline.init(self.sys, noise * state.q)


_kept = {}


class Remembers(_Wrong):
    def rewards(self, state, action, new):
        before = _kept.get("action", 0.0)
        _kept["action"] = _kept.get("count", 0.0) + 1.0
        _kept["count"] = _kept["action"]
        return {"place": -jnp.sum(new.q**2) - before}


class IgnoresKey(_Wrong):
    def initial(self, key):
        return Rail.initial(self, jr.key(0))


class WrongInBatches(_Wrong):
    def terminated(self, state):
        return _wrong_in_batches(jnp.logical_not)(Rail.terminated(self, state))


class Diverges(_Wrong):
    def rewards(self, state, action, new):
        far = jnp.max(jnp.abs(new.q)) > 0.6
        return {"place": jnp.where(far, jnp.nan, -jnp.sum(new.q**2))}


class NumberOfPython(_Wrong):
    def __init__(self):
        Rail.__init__(self, spring=0.0)


class SinglePrecision(_Wrong):
    def rewards(self, state, action, new):
        terms = Rail.rewards(self, state, action, new)
        return {k: x.astype(jnp.float32) for k, x in terms.items()}


class Text(_Wrong):
    label: str

    def __init__(self):
        _Wrong.__init__(self)
        self.label = "not saved"


class Anew(_Wrong):
    fn: object = eqx.field(static=True)

    def __init__(self):
        _Wrong.__init__(self)
        self.fn = lambda x: x


class HoldsCopy(_Wrong):
    copy: eqsim.System

    def __init__(self):
        _Wrong.__init__(self)
        self.copy = self.sys

    def transition(self, state, action):
        return self.pipeline.step(self.copy, state, action)


class WrongInFleets(_Wrong):
    def terminated(self, state):
        mass = jax.lax.stop_gradient(self.sys.links.mass)
        one = _wrong_in_batches(jnp.negative)(mass)[0]
        return ~(jnp.max(jnp.abs(state.q)) <= 5.0 * one)


class TermsAreVectors(_Wrong):
    def begin(self, state):
        state, timestep = Rail.begin(self, state)
        return state, self._vectors(timestep)

    def step(self, state, action):
        state, timestep = Rail.step(self, state, action)
        return state, self._vectors(timestep)

    def _vectors(self, timestep):
        return _changed(
            timestep, lambda t: t.terms["ctrl"], timestep.terms["ctrl"][None]
        )


class FlagIsNumber(_Wrong):
    def begin(self, state):
        state, timestep = Rail.begin(self, state)
        return state, _changed(timestep, lambda t: t.first, jnp.ones((), int))

    def step(self, state, action):
        state, timestep = Rail.step(self, state, action)
        return state, _changed(timestep, lambda t: t.first, jnp.zeros((), int))


class RangeUpsideDown(_Wrong):
    @property
    def action_range(self):
        return self.sys.actuators.ctrl_range[:, ::-1]


class RangeOfOne(_Wrong):
    @property
    def action_range(self):
        return self.sys.actuators.ctrl_range[0]


class Backwards(_Wrong):
    @property
    def dt(self):
        return -self.sys.dt


class RewardsReset(_Wrong):
    def begin(self, state):
        state, timestep = Rail.begin(self, state)
        return state, _changed(timestep, lambda t: t.reward, timestep.reward + 1.0)


class NeverFirst(_Wrong):
    def begin(self, state):
        state, timestep = Rail.begin(self, state)
        return state, _changed(timestep, lambda t: t.first, ~timestep.first)


class AlwaysFirst(_Wrong):
    def step(self, state, action):
        state, timestep = Rail.step(self, state, action)
        return state, _changed(timestep, lambda t: t.first, ~timestep.first)


class CutAtReset(_Wrong):
    def begin(self, state):
        state, timestep = Rail.begin(self, state)
        return state, _changed(timestep, lambda t: t.truncated, ~timestep.truncated)


class NotTheSum(_Wrong):
    def step(self, state, action):
        state, timestep = Rail.step(self, state, action)
        return state, _changed(timestep, lambda t: t.reward, timestep.reward + 1.0)


class CutsOff(_Wrong):
    def step(self, state, action):
        state, timestep = Rail.step(self, state, action)
        far = jnp.max(jnp.abs(state.q)) > 0.3
        return state, _changed(timestep, lambda t: t.truncated, far)


class PhysicsTooLong(_Wrong):
    def physics(self, state):
        return State(jnp.tile(state.q, 2), state.qd, state.act)


class IgnoresOptions(_Wrong):
    def reset(self, key, options=None):
        eqsim.envs.reset_options(options)
        return Rail.reset(self, key)


class TakesAnyOption(_Wrong):
    def reset(self, key, options=None):
        known = options if isinstance(options, eqsim.ResetOptions) else None
        return Rail.reset(self, key, known)


class TakesAnyShape(_Wrong):
    def step(self, state, action):
        return Rail.step(self, state, action[: self.sys.nu])


class TakesNaN(_Wrong):
    def step(self, state, action):
        return Rail.step(self, state, jnp.nan_to_num(action))


class NaNAtRest(_Wrong):
    def rewards(self, state, action, new):
        return {"place": -jnp.sum(new.q**2), "ctrl": -jnp.linalg.norm(action)}


class CutsAction(_Wrong):
    def transition(self, state, action):
        return Rail.transition(self, state, jax.lax.stop_gradient(action))


class CutsState(_Wrong):
    def transition(self, state, action):
        qd = jax.lax.stop_gradient(state.qd)
        return Rail.transition(self, State(state.q, qd, state.act), action)


class CutsMass(_Wrong):
    def transition(self, state, action):
        where = lambda s: s.links.mass
        mass = jax.lax.stop_gradient(self.sys.links.mass)
        return self.pipeline.step(eqx.tree_at(where, self.sys, mass), state, action)


@jax.custom_vjp
def _half_in_reverse(x):
    return x


_half_in_reverse.defvjp(lambda x: (x, None), lambda _, t: (0.5 * t,))


class OnlyReverse(_Wrong):
    def rewards(self, state, action, new):
        return {"place": -jnp.sum(_half_in_reverse(new.q) ** 2)}


MUTANTS = {
    BranchesInPython: ("jit", "bool"),
    NotFinite: ("jit", "nan"),
    OtherType: ("structure", "qd: float64.*float32"),
    WeakType: ("structure", "weak type"),
    CountsInPython: ("structure", "the state"),
    DrawsInNumPy: ("deterministic", "two resets from one key"),
    Remembers: ("deterministic", "two equal steps"),
    IgnoresKey: ("keys", "8 keys give the same"),
    WrongInBatches: ("vmap", "terminated"),
    Diverges: ("scan", "became NaN"),
    NumberOfPython: ("retrace", "spring is the number 0.0 of Python"),
    SinglePrecision: ("precision", "float32 for a robot in float64"),
    Text: ("serialization", "'not saved'"),
    Anew: ("rebuild", "different structures"),
    HoldsCopy: ("mass", "after three steps is equal"),
    WrongInFleets: ("fleet", "robot 0"),
    TermsAreVectors: ("reports", r"terms\['ctrl'\].*float64\[1\]"),
    FlagIsNumber: ("reports", "first.*one boolean"),
    RangeUpsideDown: ("action_range", r"entries \[0 1\]"),
    RangeOfOne: ("action_range", r"float64\[2\]"),
    Backwards: ("dt", "-0.1"),
    RewardsReset: ("first", "reward 1"),
    NeverFirst: ("first", "not set by a reset"),
    AlwaysFirst: ("first", "set by a step"),
    CutAtReset: ("first", "`timestep.truncated` is set by a reset"),
    NotTheSum: ("reward", "the reward is"),
    CutsOff: ("truncated", "are `truncated`"),
    PhysicsTooLong: ("physics", "nq = 2"),
    IgnoresOptions: ("options", "starts elsewhere"),
    TakesAnyOption: ("options", "unknown option"),
    TakesAnyShape: ("wrong_action", r"\(3,\) for 2 actuators"),
    TakesNaN: ("nan_action", "NaN is accepted"),
    NaNAtRest: ("grad", r"by \[0\].*nan"),
    CutsAction: ("gradients_action", r"by \[0\].*forward mode against differences"),
    CutsState: ("gradients_state", r"by \[1\]\.qd"),
    CutsMass: ("gradients_env", r"by \[2\]\.sys\.links\.mass"),
}
