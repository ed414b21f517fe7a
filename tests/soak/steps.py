"""Steps of wrapped environments over a long time."""

import gc
import pathlib
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu

import eqsim
from eqsim import randomize, wrappers


LENGTH = 100
"""Control steps of one program."""
WARM_UP = 5
"""Rounds before compilations and memory are counted."""
EVERY = 10
"""Rounds between gradients."""
GROWTH = 50.0
"""Largest accepted growth of resident memory after the first quarter, MB."""


class Case(NamedTuple):
    """An environment with its compiled programs and its batch of states."""

    name: str
    unroll: Callable
    gradient: Callable
    state: Any


def environments() -> dict[str, eqsim.AbstractEnv]:
    """Return environments; the first four together have every wrapper without images.
    `point_mass` has those that `inverted_pendulum` lacks, except for `Reach`, so that
    both together take many steps in a short time."""
    robots = randomize.chain(
        randomize.masses(0.8, 1.2),
        randomize.uniform_factor(lambda sys: sys.joints.damping, 0.7, 1.3),
    )
    pendulum = wrappers.DomainRandomization(eqsim.make("inverted_pendulum"), robots)
    pendulum = wrappers.NoisyObservation(pendulum, noise=0.01, bias=0.01)
    pendulum = wrappers.ClipAction(wrappers.ScaleAction(pendulum))
    pendulum = wrappers.StackObservation(pendulum, 3)
    pendulum = wrappers.AutoReset(wrappers.TimeLimit(pendulum, 50))
    hopper = wrappers.DomainRandomization(eqsim.make("hopper"), robots)
    hopper = wrappers.SelectObservation(wrappers.ScaleAction(hopper), range(5))
    hopper = wrappers.DelayAction(hopper, 2, shortest=0)
    hopper = wrappers.AutoReset(wrappers.TimeLimit(hopper, 100))
    skilled = wrappers.Skills(eqsim.make("half_cheetah_uni"), wrappers.OneHotSkills(3))
    skilled = wrappers.TimeLimit(wrappers.ActionRepeat(skilled, 2), 60)
    skilled = wrappers.AutoReset(wrappers.pool_resets(skilled, jr.key(1), 32))
    reach = wrappers.Reach(eqsim.make("ant_omni"))
    reach = wrappers.PrivilegedObservation(reach, lambda sys, state: state.qd)
    reach = wrappers.AutoReset(wrappers.TimeLimit(reach, 40))
    mass = wrappers.DomainRandomization(eqsim.make("point_mass"), robots)
    mass = wrappers.SelectObservation(mass, range(1))
    mass = wrappers.ActionRepeat(wrappers.DelayAction(mass, 2, shortest=0), 2)
    mass = wrappers.Skills(mass, wrappers.OneHotSkills(3), resample_probability=0.1)
    mass = wrappers.PrivilegedObservation(mass, lambda sys, state: state.qd)
    mass = wrappers.pool_resets(wrappers.TimeLimit(mass, 50), jr.key(1), 32)
    return {
        "inverted_pendulum": wrappers.NormalizeObservation(pendulum),
        "hopper": wrappers.NormalizeObservation(hopper),
        "half_cheetah_uni": skilled,
        "ant_omni": reach,
        "point_mass": wrappers.AutoReset(mass),
    }


def chosen(names: Sequence[str] | None) -> dict[str, eqsim.AbstractEnv]:
    """Return environments by their names; those with every wrapper if there are none.

    **Raises:** `ValueError` for an unknown name.
    """
    known = environments()
    names = [x for x in known if x != "point_mass"] if names is None else names
    for name in names:
        if name not in known:
            raise ValueError(f"Unknown environment {name!r}: choose from {[*known]}.")
    return {name: known[name] for name in names}


def case(name: str, env: eqsim.AbstractEnv, num_envs: int) -> Case:
    """Compile the programs of an environment, and reset a batch."""
    low, high = jnp.moveaxis(jnp.clip(env.action_range, -1.0, 1.0), -1, 0)

    def chunk(env, state, key, length):
        def step(carry, key):
            state, finite, ends = carry
            action = jr.uniform(key, low.shape, minval=low, maxval=high)
            state, timestep = env.step(state, action)
            told = jtu.tree_leaves((timestep.obs, timestep.reward))
            finite &= jnp.all(jnp.stack([jnp.all(jnp.isfinite(x)) for x in told]))
            ends += timestep.terminated | timestep.truncated
            return (state, finite, ends), timestep.reward

        carry = state, jnp.array(True), jnp.array(0)
        return jax.lax.scan(step, carry, jr.split(key, length))

    @eqx.filter_jit
    def unroll(env, states, key):
        one = lambda state, key: chunk(env, state, key, LENGTH)[0]
        keys = jr.split(key, num_envs)
        states, finite, ends = eqx.filter_vmap(one)(states, keys)
        return states, jnp.all(finite), jnp.sum(ends)

    @eqx.filter_jit
    def gradient(env, state, key):
        loss = lambda env: jnp.sum(chunk(env, state, key, 5)[1])
        slopes = jtu.tree_leaves(eqx.filter_grad(loss)(env))
        return jnp.all(jnp.stack([jnp.all(jnp.isfinite(x)) for x in slopes]))

    reset = eqx.filter_jit(eqx.filter_vmap(lambda key: env.reset(key)[0]))
    states = reset(jr.split(jr.key(0), num_envs))
    close = lambda program: lambda *args: program(env, *args)
    return Case(name, close(unroll), close(gradient), states)


def resident() -> float:
    """Return the resident memory of this process, MB."""
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1e6


def soak(
    names: Sequence[str] | None, minutes: float, steps: float | None, num_envs: int
) -> tuple[dict[str, Any], list[str]]:
    """Step environments in turn.

    **Arguments:**

    - `names`: names of the environments; None for those with every wrapper.
    - `minutes`: time after the first rounds, if there is no number of `steps`.
    - `steps`: control steps of all environments together, in all rounds.
    - `num_envs`: batch size of each environment.

    **Returns:** numbers, and descriptions of what went wrong.
    """
    compiled: list[str] = []

    def listen(event: str, seconds: float, **_: Any) -> None:
        if "backend_compile" in event:
            compiled.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    cases = [case(name, env, num_envs) for name, env in chosen(names).items()]
    problems, memory = [], []
    counts = {one.name: {"steps": 0, "episodes": 0, "gradients": 0} for one in cases}
    key, begin, number, before = jr.key(7), time.monotonic(), 0, 0
    total = lambda: sum(one["steps"] for one in counts.values())
    more = lambda: time.monotonic() - begin < 60.0 * minutes
    if steps is not None:
        more = lambda: total() < steps
    while number < WARM_UP + 2 or more():
        key, *keys = jr.split(key, 1 + len(cases))
        cases, fine = _round(cases, keys, counts, number % EVERY == 0, num_envs)
        problems += [f"round {number}: {text}" for text in fine]
        gc.collect()
        number += 1
        if number == WARM_UP:
            before, begin = len(compiled), time.monotonic()
        if number >= WARM_UP:
            memory.append(resident())
        if problems:
            break
    late = len(compiled) - before
    if late:
        problems.append(f"{late} programs were compiled after round {WARM_UP}")
    quarter = len(memory) // 4
    growth = max(memory[quarter:], default=0.0) - max(
        memory[: quarter + 1], default=0.0
    )
    if growth > GROWTH:
        problems.append(f"memory grew by {growth:.0f} MB after the first quarter")
    report = {
        "seconds": round(time.monotonic() - begin, 1),
        "rounds": number,
        "steps": total(),
        "environments": counts,
        "compiled": {"first rounds": before, "later": late},
        "memory in MB": {"start": memory[0], "end": memory[-1], "growth": growth},
    }
    return report, problems


def _round(
    cases, keys, counts, with_gradient, num_envs
) -> tuple[list[Case], list[str]]:
    new, problems = [], []
    for one, key in zip(cases, keys, strict=True):
        states, finite, ends = one.unroll(one.state, key)
        if not finite:
            problems.append(f"{one.name}: an observation or a reward is not finite")
        counts[one.name]["steps"] += LENGTH * num_envs
        counts[one.name]["episodes"] += int(ends)
        if with_gradient:
            first = jtu.tree_map(lambda x: x[0] if eqx.is_array(x) else x, states)
            if not one.gradient(first, key):
                problems.append(f"{one.name}: a gradient is not finite")
            counts[one.name]["gradients"] += 1
        new.append(one._replace(state=states))
    return new, problems
