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
    """Reset and step compile, and return finite values.

    Use `jnp.where` or `jax.lax.cond` instead of `if` on values of a state, and do not
    apply NumPy to them.
    """
    require_finite("the timestep of a reset", kit.first[1])
    for state, timestep in kit.path:
        require_finite("the state after a step", state)
        require_finite("the timestep of a step", timestep)


def structure(kit: EnvKit) -> None:
    """A step returns the structure, shapes and types that a reset returns.

    Create both with the same code, give arrays a `dtype`, and keep Python numbers out
    of the state.
    """
    (state, first), (new, second) = kit.shapes
    require(same_shapes(state, new), f"the state: {same_shapes(state, new)}")
    # Weak types are harmless in timesteps, which no step reads.
    strong = lambda tree: jtu.tree_map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), tree
    )
    reports = same_shapes(strong(first), strong(second))
    require(reports, f"the timestep: {reports}")


def deterministic(kit: EnvKit) -> None:
    """Tracing reset and step again gives the same program, and equal keys give equal
    values.

    Draw random numbers with `jax.random` from the key, and store nothing between calls
    except the state.
    """
    reset_of = lambda env, key: env.reset(key)
    step_of = lambda env, state, action: env.step(state, action)
    first, args = (kit.env, kit.keys[0]), (kit.env, kit.first[0], kit.actions[0])
    if not same_program(reset_of, *first):
        again = eqx.filter_jit(reset_of)(*first)
        require_equal("two resets from one key", again, kit.first, rounding(again))
    if not same_program(step_of, *args):
        again = eqx.filter_jit(step_of)(*args)
        require_equal("two equal steps", again, kit.path[0], rounding(again))
    require_equal("two resets from one key", reset(*first), kit.first)
    require_equal("two equal steps", step(*args), kit.path[0])


def keys(kit: EnvKit) -> None:
    """Different keys give different initial states.

    Draw the initial state from the key. If it is fixed on purpose by a zero noise
    scale, declare this check as an expected failure.
    """
    program = str(jax.make_jaxpr(lambda key: _arrays(kit, key))(kit.keys[0]))
    if "random_" not in program and "threefry" not in program:
        raise NotApplicable("the initial state is fixed: no random numbers are drawn")
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
    """A batch of environments gives the same results as its environments one by one.

    Look for code that depends on the size of an array, and for callbacks or custom
    rules without a batching rule.
    """
    together = _both(kit.env, kit.keys, kit.actions)
    for k, key in enumerate(kit.keys):
        first = reset(kit.env, key)
        alone = first, step(kit.env, first[0], kit.actions[k])
        row = jtu.tree_map(lambda x: x[k] if eqx.is_array(x) else x, together)
        require_equal(f"row {k} of a batch", row, alone, rounding(alone))


def scan(kit: EnvKit) -> None:
    """A compiled rollout gives the same results as single steps, and stays finite.

    Look for values that grow without bound under random actions, and for parts of the
    state that are not arrays.
    """
    end = kit.trajectory
    if bool(end.result != RESULTS.successful):
        raise AssertionError(
            f"in a rollout with random actions, step {int(end.failed_step)}: "
            f"{RESULTS[end.result]}"
        )
    state = kit.first[0]
    for k, action in enumerate(end.action[:3]):
        state, alone = step(kit.env, state, action)
        row = jtu.tree_map(lambda x: x[k], end.timestep)
        # Each step amplifies rounding errors of the previous one.
        tolerance = 10.0 ** (k + 1) * rounding(alone)
        require_equal(f"timestep of step {k} of a rollout", row, alone, tolerance)


def retrace(kit: EnvKit) -> None:
    """New keys, actions, states and parameters of the robot and of the environment do
    not recompile.

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
    """Floating-point arrays have the precision of the robot, with and without
    `jax_enable_x64`.

    Create arrays with the `dtype` of `env.sys.dt` or of the state, not with a fixed
    one.
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
    """Saving and loading environment and state does not change them.

    Store only arrays and static fields in the environment and its state.
    """
    require_round_trip("the environment", kit.env)
    require_round_trip("the state", kit.path[0][0])


def rebuild(kit: EnvKit) -> None:
    """Two environments that are built alike share compiled programs.

    Static fields must be equal by value: use module-level functions instead of a new
    `lambda`, and tuples instead of lists.
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
    """A batch of robots gives the same results as its robots one by one.

    Compute with `env.sys` in JAX, and do not read its values in advance.
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
    """A different mass of the robot changes the motion.

    Use `env.sys` in each step, and store no copy of it. If masses have no influence,
    declare this check as an expected failure.
    """
    env = _heavier(kit.env, jnp.asarray(1.5, kit.env.sys.links.mass.dtype))
    state, _ = reset(env, kit.keys[0])
    changed = kit.env.physics(kit.follow(env, state)[-1][0])
    same = tree_allclose(changed, kit.env.physics(kit.path[-1][0]), rtol=0.0, atol=0.0)
    require(not same, "with 1.5 times the masses, the state after three steps is equal")


def _heavier(env, scale):
    where = lambda env: env.sys.links.mass
    return eqx.tree_at(where, env, where(env) * scale)
