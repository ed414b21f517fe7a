"""An agent that is as small as can be, and others that are wrong in one way each."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array

from eqsim import (
    AbstractAgent,
    AbstractController,
    AbstractOnlineAgent,
    AbstractRecurrentAgent,
)


class Linear(eqx.Module):
    """Weights and constant of a linear policy, the range of actions, and a key."""

    weight: Array
    constant: Array
    low: Array
    high: Array
    key: Array
    extra: Any = None


def _number(x):
    return jnp.asarray(x) if isinstance(x, float) else x


class Ascent(AbstractOnlineAgent):
    """Ascends the derivative of the reward of a step by a linear policy."""

    rate: Array = eqx.field(converter=_number, default=0.05)
    noise: Array = eqx.field(converter=_number, default=0.1)
    batch: int = eqx.field(static=True, default=32)

    def init(self, key, env):
        _, timestep = env.reset(key)
        key, draw = jr.split(key)
        size, dtype = (env.sys.nu, timestep.obs.shape[0]), timestep.obs.dtype
        low, high = env.action_range.T
        weight = self.noise * jr.normal(draw, size, dtype)
        return Linear(weight, jnp.zeros(size[:1], dtype), low, high, key)

    def act(self, state, obs, *, key=None):
        action = state.weight @ obs + state.constant
        if key is not None:
            action = action + self.noise * jr.normal(key, action.shape, action.dtype)
        return jnp.clip(action, state.low, state.high)

    def gain(self, numbers, state, env, key):
        """Mean reward of a batch of steps."""
        state = eqx.tree_at(lambda s: (s.weight, s.constant), state, numbers)

        def reward(key):
            start, draw = jr.split(key)
            begin, timestep = env.reset(start)
            action = self.act(state, timestep.obs, key=draw)
            return env.step(begin, action)[1].reward

        return jnp.mean(jax.vmap(reward)(jr.split(key, self.batch)))

    def iterate(self, state, env):
        key, draw = jr.split(state.key)
        numbers = state.weight, state.constant
        gain, slope = jax.value_and_grad(self.gain)(numbers, state, env, draw)
        ascend = lambda x, dx: x + self.rate * dx
        numbers = jax.tree.map(ascend, numbers, slope)
        where = lambda s: (s.weight, s.constant, s.key)
        return eqx.tree_at(where, state, (*numbers, key)), {"reward": gain}

    def update(self, state, batch):
        raise NotImplementedError("It learns from environments.")


class Recorded(AbstractAgent):
    """Learns from recordings: it has no `iterate`."""

    def init(self, key, env):
        return Ascent().init(key, env)

    def act(self, state, obs, *, key=None):
        return Ascent().act(state, obs, key=key)

    def update(self, state, batch):
        return state, {}


def _set(state, **changes):
    names = tuple(changes)
    where = lambda s: tuple(vars(s)[name] for name in names)
    none = lambda x: x is None
    return eqx.tree_at(where, state, tuple(changes.values()), is_leaf=none)


class BranchesInPython(Ascent):
    def act(self, state, obs, *, key=None):
        return state.constant if obs[0] > 0 else -state.constant


class GrowsItsState(Ascent):
    def iterate(self, state, env):
        new, report = Ascent.iterate(self, state, env)
        return _set(new, weight=jnp.tile(new.weight, 2)), report


class DrawsInNumPy(Ascent):
    def init(self, key, env):
        state = Ascent.init(self, key, env)
        noise = np.random.default_rng().normal()
        return _set(state, constant=state.constant + 1e-2 * noise)


class ActsByChance(Ascent):
    def act(self, state, obs, *, key=None):
        noise = np.random.default_rng().normal() if key is None else 0.0
        action = Ascent.act(self, state, obs, key=key) + 1e-3 * noise
        return jnp.clip(action, state.low, state.high)


class IgnoresKey(Ascent):
    def init(self, key, env):
        return Ascent.init(self, jr.key(0), env)


class ActsInBatches(Ascent):
    """Where it learns, it does not."""

    def act(self, state, obs, *, key=None):
        return Ascent.act(self, state, obs, key=key)[None]

    def gain(self, numbers, state, env, key):
        return Ascent.gain(Ascent(self.rate, self.noise), numbers, state, env, key)


class Unbounded(Ascent):
    def act(self, state, obs, *, key=None):
        return state.weight @ obs + state.constant


class BeyondBoundsByChance(Ascent):
    def act(self, state, obs, *, key=None):
        action = Ascent.act(self, state, obs)
        return action if key is None else action + jr.normal(key, action.shape)


class StaticFloat(Ascent):
    decay: float = eqx.field(static=True, default=0.5)


class NumberOfPython(Ascent):
    decay: float = 0.5


class Text(Ascent):
    def init(self, key, env):
        return _set(Ascent.init(self, key, env), extra="not saved")


class Anew(Ascent):
    fn: Any = eqx.field(static=True)

    def __init__(self):
        self.rate, self.noise = jnp.asarray(0.05), jnp.asarray(0.1)
        self.batch, self.fn = 32, lambda x: x


class WrongInBatches(Ascent):
    def iterate(self, state, env):
        from testing.wrong_envs import wrong_in_batches

        new, report = Ascent.iterate(self, state, env)
        return new, {"reward": wrong_in_batches(jnp.negative)(report["reward"])}


class ReportsText(Ascent):
    def iterate(self, state, env):
        new, report = Ascent.iterate(self, state, env)
        return new, {**report, "reward": jnp.zeros((), int)}


class StandardizesReward(Ascent):
    def iterate(self, state, env):
        new, report = Ascent.iterate(self, state, env)
        spread = jnp.abs(env.weight)
        return new, {"reward": report["reward"] / spread}


class Descends(Ascent):
    def __init__(self):
        self.rate, self.noise = jnp.asarray(-0.05), jnp.asarray(0.1)
        self.batch = 32


class Blind(Ascent):
    def act(self, state, obs, *, key=None):
        return Ascent.act(self, state, jnp.zeros_like(obs), key=key)


class Counting(AbstractController):
    """Acts as an agent does, from the second step on a little differently."""

    agent: Any
    state: Any
    sample: bool = eqx.field(static=True)
    first: float = eqx.field(static=True, default=0.0)
    dtype: Any = eqx.field(static=True, default=None)

    def init(self, state, key):
        return jnp.asarray(self.first, state.q.dtype)

    def act(self, memory, state, obs, key):
        key = key if self.sample else None
        action = self.agent.act(self.state, obs, key=key) + memory
        return (memory + 1e-3).astype(self.dtype or memory.dtype), action


class Remembers(Ascent, AbstractRecurrentAgent):
    """Has a memory, and is right."""

    def controller(self, state, *, sample=False):
        return Counting(self, state, sample)


class BeginsInTheMiddle(Ascent, AbstractRecurrentAgent):
    def controller(self, state, *, sample=False):
        return Counting(self, state, sample, first=0.1)


class DoesNotSample(Ascent, AbstractRecurrentAgent):
    def controller(self, state, *, sample=False):
        return Counting(self, state, False)


class ChangesItsMemory(Ascent, AbstractRecurrentAgent):
    def controller(self, state, *, sample=False):
        return Counting(self, state, sample, dtype=jnp.float16)


MUTANTS = {
    BranchesInPython: ("jit", "bool"),
    GrowsItsState: (
        "structure",
        r"weight: float64\[1, 2\] != float64\[2, 2\]|\[1, 4\]",
    ),
    DrawsInNumPy: ("deterministic", "two states from one key"),
    ActsByChance: ("deterministic", "two actions without key"),
    IgnoresKey: ("keys", "same state"),
    ActsInBatches: ("action", r"float64\[1, 1\], not \(1,\)"),
    Unbounded: ("bounds", "is not within"),
    BeyondBoundsByChance: ("bounds", "drawn with a key, is not within"),
    BeginsInTheMiddle: ("memory", "the first action"),
    DoesNotSample: ("memory", "the first sample"),
    ChangesItsMemory: ("memory", "the memory: .*float16"),
    StaticFloat: ("hyperparameters", "`decay` is static"),
    NumberOfPython: ("retrace", "decay is the number 0.5 of Python"),
    Text: ("serialization", "'not saved'"),
    Anew: ("rebuild", "different structures"),
    WrongInBatches: ("vmap", "seed 0"),
    ReportsText: ("metrics", "a dictionary of floats"),
    StandardizesReward: ("finite", "metrics"),
    Descends: ("learns_action", "the mean reward is"),
    Blind: ("learns_observation", "the mean reward is 0.75"),
}
