"""Checks of environments as programs: compiled, batched, repeated."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np

from .._errors import RESULTS
from ._check import NotApplicable
from ._compare import same_shapes, tree_allclose
from ._env_kit import EnvKit, reset, shapes_of, step
from ._tools import (
    in_precision,
    moved,
    no_trace,
    require,
    require_arrays,
    require_equal,
    require_finite,
    require_rebuild,
    require_round_trip,
    rounding,
    same_program,
)


def jit(kit: EnvKit) -> None:
    """Reset and step compile, and give finite numbers.

    Use `jnp.where` or `jax.lax.cond` instead of `if` on numbers of a state, and no NumPy
    on them.
    """
    require_finite("the report of a reset", kit.first[1])
    for state, timestep in kit.path:
        require_finite("the state after a step", state)
        require_finite("the report of a step", timestep)


def structure(kit: EnvKit) -> None:
    """A step returns the structure, shapes and types that a reset returns.

    Make both from the same code, give arrays a `dtype`, and keep numbers of Python out of
    the state.
    """
    (state, first), (new, second) = kit.shapes
    require(same_shapes(state, new), f"the state: {same_shapes(state, new)}")
    # A weak type does no harm in a report, which no step reads.
    strong = lambda tree: jtu.tree_map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), tree
    )
    reports = same_shapes(strong(first), strong(second))
    require(reports, f"the report: {reports}")


def deterministic(kit: EnvKit) -> None:
    """Tracing reset and step again gives the same program, and equal keys equal numbers.

    Draw random numbers with `jax.random` from the key, and keep nothing between calls
    but the state.
    """
    reset_of = lambda env, key: env.reset(key)
    step_of = lambda env, state, action: env.step(state, action)
    first, args = (kit.env, kit.keys[0]), (kit.env, kit.first[0], kit.actions[0])
    if not same_program(reset_of, *first):
        again = eqx.filter_jit(reset_of)(*first)
        require_equal("two resets by one key", again, kit.first, rounding(again))
    if not same_program(step_of, *args):
        again = eqx.filter_jit(step_of)(*args)
        require_equal("two equal steps", again, kit.path[0], rounding(again))
    require_equal("two resets by one key", reset(*first), kit.first)
    require_equal("two equal steps", step(*args), kit.path[0])


def keys(kit: EnvKit) -> None:
    """Different keys give different first states.

    Draw the first state from the key. If it is to be fixed by a number that is zero,
    declare this check as an expected failure.
    """
    program = str(jax.make_jaxpr(lambda key: _arrays(kit, key))(kit.keys[0]))
    if "random_" not in program and "threefry" not in program:
        raise NotApplicable("the start is fixed: a reset draws no random numbers")
    where = lambda start: (kit.env.physics(start[0]), start[1].obs)
    others = [where(reset(kit.env, key)) for key in jr.split(kit.keys[0], 7)]
    differ = [
        not tree_allclose(x, where(kit.first), rtol=0.0, atol=0.0) for x in others
    ]
    require(any(differ), f"{1 + len(others)} keys give the same first state")


def _arrays(kit: EnvKit, key):
    return eqx.filter(kit.env.reset(key), eqx.is_array)


@eqx.filter_jit
@eqx.filter_vmap(in_axes=(None, 0, 0))
def _both(env, key, action):
    first = env.reset(key)
    return first, env.step(first[0], action)


def vmap(kit: EnvKit) -> None:
    """A batch of environments gives what each gives alone.

    Look for code that reads the size of an array, and for callbacks or custom rules
    without a batching rule.
    """
    together = _both(kit.env, kit.keys, kit.actions)
    for k, key in enumerate(kit.keys):
        first = reset(kit.env, key)
        alone = first, step(kit.env, first[0], kit.actions[k])
        row = jtu.tree_map(lambda x: x[k] if eqx.is_array(x) else x, together)
        require_equal(f"row {k} of a batch", row, alone, rounding(alone))


def scan(kit: EnvKit) -> None:
    """A compiled rollout gives what single steps give, and stays finite.

    Look for numbers that grow without bound under random actions, and for a state that
    is not all arrays.
    """
    end = kit.trajectory
    if bool(end.result != RESULTS.successful):
        raise AssertionError(
            f"in a rollout by random actions, step {int(end.failed_step)}: "
            f"{RESULTS[end.result]}"
        )
    state = kit.first[0]
    for k, action in enumerate(end.action[:3]):
        state, alone = step(kit.env, state, action)
        row = jtu.tree_map(lambda x: x[k], end.timestep)
        # A step amplifies what rounding changed in the one before.
        tolerance = 10.0 ** (k + 1) * rounding(alone)
        require_equal(f"report of step {k} of a rollout", row, alone, tolerance)


def retrace(kit: EnvKit) -> None:
    """New keys, actions, states and numbers of the robot and of the environment need no
    compilation.

    Give every number of the environment a field with an array converter, or declare it
    static if it never changes.
    """
    require_arrays("env", kit.env)
    other = moved(kit.env, 1.0009765625)
    with no_trace(reset, "another key and other numbers"):
        state, _ = reset(other, kit.keys[2])
    with no_trace(step, "other states, actions and numbers"):
        for change in (1.0, 0.5):
            state, _ = step(other, state, moved(kit.actions[0], change))


def precision(kit: EnvKit) -> None:
    """Floating-point numbers have the precision of the robot, whether JAX computes in
    double precision or not.

    Make arrays with the `dtype` of `env.sys.dt` or of the state, not with a fixed one.
    """
    for x64, dtype in ((False, "float32"), (True, "float32"), (True, "float64")):
        with jax.enable_x64(x64):
            env = in_precision(kit.env, dtype)
            shapes = shapes_of(env)
        for name, found in zip(("reset", "step"), shapes, strict=True):
            for path, leaf in jtu.tree_leaves_with_path(found):
                wrong = eqx.is_inexact_array_like(leaf) or _is_inexact(leaf)
                if wrong and leaf.dtype != dtype:
                    where = "with" if x64 else "without"
                    raise AssertionError(
                        f"`{name}`: {jtu.keystr(path)} is {leaf.dtype} for a robot in "
                        f"{dtype}, {where} `jax_enable_x64`"
                    )


def _is_inexact(leaf) -> bool:
    shape = isinstance(leaf, jax.ShapeDtypeStruct)
    return shape and jnp.issubdtype(leaf.dtype, jnp.inexact)


def serialization(kit: EnvKit) -> None:
    """Environment and state are the same after they were written and read.

    Keep nothing but arrays, and static fields, in the environment and its state.
    """
    require_round_trip("the environment", kit.env)
    require_round_trip("the state", kit.path[0][0])


def rebuild(kit: EnvKit) -> None:
    """Two environments that are built alike share what is compiled.

    Static fields must be equal by value: functions of a module instead of a `lambda`
    made anew, tuples instead of lists.
    """
    require_rebuild(kit.env, kit.build)


@eqx.filter_jit
@eqx.filter_vmap(in_axes=(None, 0, None, None))
def _robots(env, scale, key, actions):
    changed = _heavier(env, scale)
    state, _ = changed.reset(key)
    state, _ = changed.step(state, actions[0])
    return changed.step(state, actions[1])


def fleet(kit: EnvKit) -> None:
    """A batch of robots gives what each gives alone.

    Compute with `env.sys` in JAX, and read no number of it before.
    """
    scales = jnp.asarray([1.0, 1.5], kit.env.sys.links.mass.dtype)
    together = _robots(kit.env, scales, kit.keys[0], kit.actions)
    for k, scale in enumerate(np.asarray(scales)):
        env = _heavier(kit.env, jnp.asarray(scale))
        state, _ = reset(env, kit.keys[0])
        alone = kit.follow(env, state)[1]
        row = jtu.tree_map(lambda x: x[k] if eqx.is_array(x) else x, together)
        require_equal(f"robot {k} of a batch", row, alone, 10 * rounding(alone))


def mass(kit: EnvKit) -> None:
    """Another mass of the robot changes the motion.

    Step with `env.sys`, and hold no copy of it. If no mass can matter, declare this
    check as an expected failure.
    """
    env = _heavier(kit.env, jnp.asarray(1.5, kit.env.sys.links.mass.dtype))
    state, _ = reset(env, kit.keys[0])
    changed = kit.env.physics(kit.follow(env, state)[-1][0])
    same = tree_allclose(changed, kit.env.physics(kit.path[-1][0]), rtol=0.0, atol=0.0)
    require(not same, "with masses of 1.5 times the value, three steps end the same")


def _heavier(env, scale):
    where = lambda env: env.sys.links.mass
    return eqx.tree_at(where, env, where(env) * scale)
