"""Environments that are wrong in one way each, by the check that is to see it."""

import types

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


def wrong_in_batches(wrong):
    """The identity, which in a batch is something else."""

    @custom_vmap
    def identity(x):
        return x

    @identity.def_vmap
    def _(size, batched, x):
        return wrong(x), batched[0]

    return identity


class Wrong(Rail):
    def __init__(self):
        Rail.__init__(self, spring=jnp.zeros(()))


# Check that fails, and words of its message, by class.
MUTANTS = {}


def _wrong(name, check, message, **methods):
    """Add an environment with other methods."""
    cls = types.new_class(name, (Wrong,), {}, lambda names: names.update(methods))
    MUTANTS[cls] = check, message


def _reports(name, check, message, where, change, methods="begin step"):
    """Add an environment with another field in the timesteps of some methods."""

    def changed(original):
        def method(self, *args):
            state, timestep = original(self, *args)
            return state, eqx.tree_at(where, timestep, change(where(timestep)))

        return method

    found = {name: changed(getattr(Rail, name)) for name in methods.split()}
    _wrong(name, check, message, **found)


def _float32(tree):
    return jax.tree.map(lambda x: x.astype(jnp.float32), tree)


def _place(new, factor=1.0):
    return {"place": -factor * jnp.sum(new.q**2)}


_wrong(
    "BranchesInPython",
    "jit",
    "bool",
    terminated=lambda self, state: jnp.asarray(not state.q[0] > 0),
)
_wrong(
    "NotFinite",
    "jit",
    "nan",
    observe=lambda self, *args: jnp.log(Rail.observe(self, *args)),
)


def _other_type(self, state, action):
    wide = State(state.q, state.qd.astype(state.q.dtype), state.act)
    new = Rail.transition(self, wide, action)
    return State(new.q, _float32(new.qd), new.act)


_wrong(
    "OtherType",
    "structure",
    "qd: float64.*float32",
    transition=_other_type,
    observe=lambda self, state, action: state.q,
    rewards=lambda self, state, action, new: _place(new),
)


def _weak_type(self, key):
    share = jnp.where(jr.uniform(key) > 0.5, 0.1, 0.2)
    return self.pipeline.init(self.sys, share * jnp.full(2, 1.0))


_wrong("WeakType", "structure", "weak type", initial=_weak_type)


def _count(self, state, action):
    new = Rail.transition(self, State(state.q, state.qd, state.act), action)
    return State(new.q, new.qd, new.act, 1 + (state.aux or 0))


_wrong("CountsInPython", "structure", "the state", transition=_count)


def _drawn(self, key):
    noise = jnp.asarray(np.random.default_rng().normal(), self.sys.dt.dtype)
    return self.pipeline.init(self.sys, noise * Rail.initial(self, key).q)


_wrong("DrawsInNumPy", "deterministic", "two resets from one key", initial=_drawn)
_CALLS = []


def _remembers(self, state, action, new):
    _CALLS.append(1)
    return _place(new, len(_CALLS))


_wrong("Remembers", "deterministic", "two equal steps", rewards=_remembers)
_wrong(
    "IgnoresKey",
    "keys",
    "8 keys give the same",
    initial=lambda self, key: Rail.initial(self, jr.key(0)),
)
_wrong(
    "WrongInBatches",
    "vmap",
    "terminated",
    terminated=lambda self, state: wrong_in_batches(jnp.logical_not)(
        Rail.terminated(self, state)
    ),
)
_wrong(
    "Diverges",
    "scan",
    "became NaN",
    rewards=lambda self, state, action, new: _place(
        new, jnp.where(jnp.max(jnp.abs(new.q)) > 0.6, jnp.nan, 1.0)
    ),
)
_wrong(
    "NumberOfPython",
    "retrace",
    "spring is the number 0.0 of Python",
    __init__=lambda self: Rail.__init__(self, spring=0.0),
)
_wrong(
    "SinglePrecision",
    "precision",
    "float32 for a robot in float64",
    rewards=lambda self, *args: _float32(Rail.rewards(self, *args)),
)


class Text(Wrong):
    label: str

    def __init__(self):
        Wrong.__init__(self)
        self.label = "not saved"


class Anew(Wrong):
    fn: object = eqx.field(static=True)

    def __init__(self):
        Wrong.__init__(self)
        self.fn = lambda x: x


class HoldsCopy(Wrong):
    copy: eqsim.System

    def __init__(self):
        Wrong.__init__(self)
        self.copy = self.sys

    def transition(self, state, action):
        return self.pipeline.step(self.copy, state, action)


MUTANTS |= {
    Text: ("serialization", "'not saved'"),
    Anew: ("rebuild", "different structures"),
    HoldsCopy: ("mass", "after three steps is equal"),
}


def _edge(self, state):
    mass = jax.lax.stop_gradient(self.sys.links.mass)
    one = wrong_in_batches(jnp.negative)(mass)[0]
    return ~(jnp.max(jnp.abs(state.q)) <= 5.0 * one)


_wrong("WrongInFleets", "fleet", "robot 0", terminated=_edge)
_reports(
    "TermsAreVectors",
    "reports",
    r"terms\['ctrl'\].*float64\[1\]",
    lambda t: t.terms["ctrl"],
    lambda x: x[None],
)
_FIRST, _REWARD = (lambda t: t.first), (lambda t: t.reward)
_reports(
    "FlagIsNumber",
    "reports",
    "first.*one boolean",
    _FIRST,
    lambda x: jnp.asarray(x, int),
)
for _name, _words, _range in (
    ("RangeUpsideDown", r"entries \[0 1\]", lambda x: x[:, ::-1]),
    ("RangeOfOne", r"float64\[2\]", lambda x: x[0]),
):
    _found = property(lambda self, change=_range: change(self.sys.actuators.ctrl_range))
    _wrong(_name, "action_range", _words, action_range=_found)
_wrong("Backwards", "dt", "-0.1", dt=property(lambda self: -self.sys.dt))
_reports("RewardsReset", "first", "reward 1", _REWARD, lambda x: x + 1.0, "begin")
_reports("NeverFirst", "first", "not set by a reset", _FIRST, lambda x: ~x, "begin")
_reports("AlwaysFirst", "first", "set by a step", _FIRST, lambda x: ~x, "step")
_reports(
    "CutAtReset",
    "first",
    "`timestep.truncated` is set by a reset",
    lambda t: t.truncated,
    lambda x: ~x,
    "begin",
)
_reports("NotTheSum", "reward", "the reward is", _REWARD, lambda x: x + 1.0, "step")
_reports(
    "CutsOff",
    "truncated",
    "are `truncated`",
    lambda t: t.truncated,
    lambda x: ~x,
    "step",
)
_wrong(
    "PhysicsTooLong",
    "physics",
    "nq = 2",
    physics=lambda self, state: State(jnp.tile(state.q, 2), state.qd, state.act),
)


def _ignores(self, key, options=None):
    eqsim.envs.reset_options(options)
    return Rail.reset(self, key)


def _takes_any(self, key, options=None):
    known = options if isinstance(options, eqsim.ResetOptions) else None
    return Rail.reset(self, key, known)


_wrong("IgnoresOptions", "options", "starts elsewhere", reset=_ignores)
_wrong("TakesAnyOption", "options", "unknown option", reset=_takes_any)
_wrong(
    "TakesAnyShape",
    "wrong_action",
    r"\(3,\) for 2 actuators",
    step=lambda self, state, action: Rail.step(self, state, action[: self.sys.nu]),
)
_wrong(
    "TakesNaN",
    "nan_action",
    "NaN is accepted",
    step=lambda self, state, action: Rail.step(self, state, jnp.nan_to_num(action)),
)
_wrong(
    "NaNAtRest",
    "grad",
    r"by \[0\].*nan",
    rewards=lambda self, state, action, new: {
        **_place(new),
        "ctrl": -jnp.linalg.norm(action),
    },
)


def _cuts(self, state, action, where):
    cut = lambda tree, place: eqx.tree_at(
        place, tree, jax.lax.stop_gradient(place(tree))
    )
    robot = (self.sys, state, action)
    return self.pipeline.step(*cut(robot, where))


for _name, _check, _words, _where in (
    ("CutsAction", "action", r"by \[0\].*forward mode", lambda x: x[2]),
    ("CutsState", "state", r"by \[1\]\.qd", lambda x: x[1].qd),
    ("CutsMass", "env", r"by \[2\]\.sys\.links\.mass", lambda x: x[0].links.mass),
):
    _wrong(
        _name,
        f"gradients_{_check}",
        _words,
        transition=lambda self, state, action, where=_where: _cuts(
            self, state, action, where
        ),
    )
