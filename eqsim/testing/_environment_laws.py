"""Laws of environments.

First the kit: an environment, its compiled programs, and quantities that are computed when a
law first needs them. Then the laws of programs (compiled, batched, repeated), of what
timesteps report, of rejected inputs, and of derivatives. `LAWS` lists them all. The docstring
of a law is its requirement, and advice for the case that it fails.
"""

import functools as ft
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from .._errors import RESULTS
from .._rollout import rollout
from .._trajectory import Trajectory
from ..envs import AbstractEnv, ResetOptions, Timestep
from ..model import check_state, State
from ..wrappers import AbstractWrapper
from .comparisons import (
    compare,
    counted_jit,
    describe,
    double_precision,
    Function,
    in_precision,
    moved,
    no_trace,
    NotApplicable,
    require,
    require_arrays,
    require_equal,
    require_finite,
    require_precision,
    require_rebuild,
    require_round_trip,
    rounding,
    row_of,
    same_program,
    same_shapes,
    tree_allclose,
)


STEPS = 20
"""Number of steps of the rollout."""


@counted_jit
def reset(env, key):
    """Reset, compiled; environments of the same structure share the program."""
    return env.reset(key)


@counted_jit
def step(env, state, action):
    """Take a step, compiled."""
    return env.step(state, action)


@eqx.filter_jit
def _start(env, key, options):
    return env.reset(key, options)


def _report(action, state, env):
    _, timestep = env.step(state, action)
    return timestep.obs, timestep.reward


class RandomPolicy(eqx.Module):
    """A policy of random actions within the range of an environment."""

    env: AbstractEnv

    def __call__(self, obs: Any, key: PRNGKeyArray) -> Float[Array, " nu"]:
        return random_actions(self.env, key, ())


class EnvKit:
    """An environment, and quantities that are computed when a check first needs
    them."""

    def __init__(self, env: AbstractEnv, build: Callable[[], Any] | None):
        self.env, self.build = env, build
        self.keys = jr.split(jr.key(0), 3)

    @ft.cached_property
    def actions(self) -> Float[Array, "3 nu"]:
        """Random actions within the range, or between -1 and 1 if it is infinite."""
        return random_actions(self.env, self.keys[0], (3,))

    @ft.cached_property
    def first(self) -> tuple[Any, Timestep]:
        """State and timestep of a reset."""
        return reset(self.env, self.keys[0])

    @ft.cached_property
    def path(self) -> list[tuple[Any, Timestep]]:
        """Three steps after `first`, one by one."""
        return self.follow(self.env, self.first[0])

    def follow(self, env: AbstractEnv, state: Any) -> list[tuple[Any, Timestep]]:
        """Take steps with `actions` from a state, in an environment of the same
        structure."""
        out = []
        for action in self.actions:
            state, timestep = step(env, state, action)
            out.append((state, timestep))
        return out

    @ft.cached_property
    def trajectory(self) -> Trajectory:
        """A rollout from `first` with random actions."""
        policy = RandomPolicy(self.env)
        return rollout(
            self.env, policy, self.keys[1], STEPS, start=self.first, throw=False
        )

    @ft.cached_property
    def shapes(self) -> tuple[tuple[Any, Timestep], tuple[Any, Timestep]]:
        """Shapes of a reset and of a step."""
        return shapes_of(self.env)

    @ft.cached_property
    def started(self) -> tuple[State, tuple[Any, Timestep]]:
        """Coordinates and velocities that no key produces, and the result of a reset
        with them."""
        physics = self.env.physics(self.path[0][0])
        qd = physics.qd + jnp.asarray(0.125, physics.qd.dtype)
        found = _start(self.env, self.keys[0], ResetOptions(physics.q, qd))
        return State(physics.q, qd, physics.act), found

    @ft.cached_property
    def derivatives(self) -> Function:
        """Observation and reward of a step as a function of the action, the state and
        the parameters of the environment, in double precision, with derivatives."""
        with double_precision() as convert:
            env, (state, _) = convert((self.env, self.path[0]))
            return Function.of(_report, convert(self.actions[1]), state, env)

    @ft.cached_property
    def at_rest(self) -> Function:
        """The same at the start of an episode, with zero action."""
        with double_precision() as convert:
            env, (state, _) = convert((self.env, self.first))
            return self.derivatives.at(convert(jnp.zeros(env.sys.nu)), state, env)


def shapes_of(env: AbstractEnv) -> tuple[tuple[Any, Timestep], tuple[Any, Timestep]]:
    """Return shapes of a reset and of a step of an environment, without compilation."""
    first = eqx.filter_eval_shape(lambda env, key: env.reset(key), env, jr.key(0))
    action = jax.ShapeDtypeStruct((env.sys.nu,), env.sys.dt.dtype)
    next_of = lambda env, state, action: env.step(state, action)
    return first, eqx.filter_eval_shape(next_of, env, first[0], action)


def random_actions(
    env: AbstractEnv, key: PRNGKeyArray, batch: tuple[int, ...]
) -> Float[Array, "... nu"]:
    """Draw actions inside the range of an environment, away from its bounds."""
    dtype = env.sys.dt.dtype
    share = jr.uniform(key, (*batch, env.sys.nu), dtype, 0.1, 0.9)
    low, high = jnp.broadcast_to(env.action_range, (env.sys.nu, 2)).astype(dtype).T
    endless = ~(jnp.isfinite(low) & jnp.isfinite(high))
    low, high = jnp.where(endless, -1.0, low), jnp.where(endless, 1.0, high)
    line = lambda x: jnp.broadcast_to(x, share.shape)
    return line(low) + line(high - low) * share


# --- Programs ---


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
        row = row_of(together, k)
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
        row = row_of(end.timestep, k)
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
    # Both are compiled, also if the caches were cleared since other checks did it.
    state, _ = reset(kit.env, kit.keys[0])
    step(kit.env, state, kit.actions[0])
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

    def shapes(dtype):
        first, after = shapes_of(in_precision(kit.env, dtype))
        return {"reset": first, "step": after}

    require_precision(shapes)


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
        row = row_of(together, k)
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


# --- Reports, rejected inputs and derivatives ---


def reports(kit: EnvKit) -> None:
    """Reward and terms are floating-point numbers; `terminated`, `truncated` and
    `first` are booleans.

    Reduce vectors with `jnp.sum`, and compute flags by comparisons.
    """
    for name, (_, timestep) in zip(("reset", "step"), kit.shapes, strict=True):
        flags = ("terminated", "truncated", "first")
        found = {k: vars(timestep)[k] for k in (*flags, "reward")}
        found |= {f"terms[{k!r}]": x for k, x in timestep.terms.items()}
        for field, x in found.items():
            kind = jnp.bool_ if field in flags else jnp.floating
            require(
                x.shape == () and jnp.issubdtype(x.dtype, kind),
                f"`{name}`: `timestep.{field}` is {describe(x)}: one "
                f"{'boolean' if field in flags else 'floating-point number'} is expected",
            )


def action_range(kit: EnvKit) -> None:
    """The range has a lower and an upper bound for each entry of an action.

    Return an array of shape (nu, 2), infinite where there is no bound.
    """
    shape, bounds = (kit.env.sys.nu, 2), np.asarray(kit.env.action_range)
    require(
        bounds.shape == shape and np.issubdtype(bounds.dtype, np.floating),
        f"`action_range` is {bounds.dtype}{list(bounds.shape)}: floating-point numbers "
        f"of shape (nu, 2) = {shape} are expected",
    )
    # True also if one of them is NaN.
    wrong = np.flatnonzero(~(bounds[:, 0] <= bounds[:, 1]))
    require(not wrong.size, f"entries {wrong} of `action_range` are {bounds[wrong]}")


def dt(kit: EnvKit) -> None:
    """The duration of the control step is positive.

    Return the time between two calls of `step`, in seconds, as an array of shape ().
    """
    found = np.asarray(kit.env.dt)
    fits = found.shape == () and np.isfinite(found) and found > 0
    require(fits, f"`dt` is {found}: one positive number is expected")


def first(kit: EnvKit) -> None:
    """A reset sets `first` and returns zero reward.

    Set reward and terms to zero and set `first` in `reset`, and only there.
    """
    timestep = kit.first[1]
    rewards = {"reward": timestep.reward} | timestep.terms
    for name, value in rewards.items():
        require(value == 0, f"a reset reports {name} {value}: zero is expected")
    require(timestep.first, "`timestep.first` is not set by a reset")
    require(not timestep.truncated, "`timestep.truncated` is set by a reset")
    if not isinstance(kit.env, AbstractWrapper):
        require(not kit.path[0][1].first, "`timestep.first` is set by a step")


def reward(kit: EnvKit) -> None:
    """The reward is the sum of its terms.

    Report as terms what was summed, with its weights.
    """
    for _, timestep in kit.path:
        total = sum(timestep.terms.values(), start=jnp.zeros_like(timestep.reward))
        require_equal(
            f"the terms {_numbers(timestep.terms)} sum to {total}, and the reward is "
            f"{timestep.reward}",
            timestep.reward,
            total,
            rounding(total),
        )


def _numbers(terms: dict) -> dict[str, float]:
    return {name: float(x) for name, x in terms.items()}


def truncated(kit: EnvKit) -> None:
    """A task does not truncate episodes.

    Set `truncated` to false, and use `eqsim.TimeLimit` for time limits; or declare this
    check as an expected failure.
    """
    if isinstance(kit.env, AbstractWrapper):
        raise NotApplicable("a wrapper may limit the time")
    steps = np.flatnonzero(kit.trajectory.timestep.truncated)
    require(not steps.size, f"steps {steps} of a rollout are `truncated`")


def physics(kit: EnvKit) -> None:
    """`physics` returns a state of the robot whose shapes fit `env.sys`.

    Return the `State` of the pipeline.
    """
    for state in (kit.first[0], kit.path[0][0]):
        found = kit.env.physics(state)
        require(
            isinstance(found, State),
            f"`physics` returns {type(found).__name__}: a `State` is expected",
        )
        check_state(kit.env.sys, found.q, found.qd, act=found.act)


def options(kit: EnvKit) -> None:
    """`reset` starts at given coordinates and velocities, and rejects unknown options.

    Read options with `eqsim.envs.reset_options`, and create the state with
    `pipeline.init`.
    """
    asked, (state, timestep) = kit.started
    found = kit.env.physics(state)
    for name in ("q", "qd"):
        what = f"`reset(key, {{{name!r}: ...}})` starts elsewhere"
        x, y = vars(found)[name], vars(asked)[name]
        require_equal(what, x, y, rounding(y))
    require_finite("the timestep of that reset", timestep)
    unknown = {"no_such_option": 0.0}
    _refused(
        "an unknown option of `reset`",
        lambda: eqx.filter_eval_shape(
            lambda key: kit.env.reset(key, unknown), kit.keys[0]
        ),
    )


def wrong_action(kit: EnvKit) -> None:
    """An action of a wrong shape raises `ValueError`.

    Call `eqsim.envs.check_action` at the beginning of `step`.
    """
    action = jnp.zeros(kit.env.sys.nu + 1, kit.env.sys.dt.dtype)
    step = lambda action: kit.env.step(kit.first[0], action)
    what = f"an action of shape {action.shape} for {kit.env.sys.nu} actuators"
    _refused(what, lambda: eqx.filter_eval_shape(step, action))


def nan_action(kit: EnvKit) -> None:
    """An action that is NaN raises `ValueError`, unless it is traced.

    Call `eqsim.envs.check_action` at the beginning of `step`.
    """
    if kit.env.sys.nu == 0:
        raise NotApplicable("there are no actuators")
    action = jnp.full(kit.env.sys.nu, jnp.nan, kit.env.sys.dt.dtype)
    _refused("an action of NaN", lambda: kit.env.step(kit.first[0], action))


def _refused(what: str, call) -> None:
    try:
        call()
    except ValueError:
        return
    raise AssertionError(f"{what} is accepted, but must raise a `ValueError`")


ARGUMENTS = "[0] the action, [1] the state, [2] the environment"


def grad(kit: EnvKit) -> None:
    """The gradient of a step with zero action after a reset is finite, with respect to
    the action, the state and every parameter of the environment.

    Square roots and norms are not differentiable at zero (see `eqsim.spatial`), and
    both branches of a `jnp.where` are differentiated. `while_loop` has no reverse mode.
    """
    with double_precision():
        function = kit.at_rest
        ones = [jnp.ones_like(x) for x in function.value(function.leaves)]
        slopes = function.pull(function.leaves, ones)
    for name, slope in zip(function.names, slopes, strict=True):
        require_finite(f"with {ARGUMENTS}, the derivative by {name}: ", slope)


def gradients_action(kit: EnvKit) -> None:
    """Derivatives of observation and reward with respect to the action agree: forward
    mode, reverse mode and finite differences.

    Look for `stop_gradient`, for rounding, and for custom rules.
    """
    _agree(kit, "[0]")


def gradients_state(kit: EnvKit) -> None:
    """Derivatives of observation and reward with respect to the state agree: forward
    mode, reverse mode and finite differences.

    Look for `stop_gradient`, for parts of the state that the next step does not use,
    and for custom rules.
    """
    _agree(kit, "[1]")


def gradients_env(kit: EnvKit) -> None:
    """Derivatives of observation and reward with respect to parameters of the robot and
    of the environment agree: forward mode, reverse mode and finite differences.

    Look for values that are read outside JAX, for `stop_gradient`, and for custom
    rules.
    """
    _agree(kit, "[2]")


def _agree(kit: EnvKit, prefix: str) -> None:
    with double_precision():
        try:
            compare(kit.derivatives, prefix, kinks=True, rtol=2e-5, atol=1e-6)
        except AssertionError as error:
            raise AssertionError(f"with {ARGUMENTS}, {error}") from None


# A law with the names of those that must hold for it to be meaningful, causes first.
_ALIKE = "jit", "structure", "deterministic"
_DOUBLE = *_ALIKE, "precision"
_SMOOTH = *_DOUBLE, "grad"
LAWS = {
    jit: (),
    structure: ("jit",),
    deterministic: ("jit", "structure"),
    keys: _ALIKE,
    vmap: _ALIKE,
    scan: _ALIKE,
    retrace: _ALIKE,
    precision: ("jit", "structure"),
    serialization: ("jit",),
    rebuild: (),
    mass: _ALIKE,
    fleet: (*_ALIKE, "vmap"),
    reports: ("jit",),
    action_range: (),
    dt: (),
    first: ("jit", "reports"),
    reward: ("jit", "reports"),
    truncated: ("scan", "reports"),
    physics: ("jit",),
    options: ("physics",),
    wrong_action: ("jit",),
    nan_action: ("jit",),
    grad: _DOUBLE,
    gradients_action: _SMOOTH,
    gradients_state: _SMOOTH,
    gradients_env: _SMOOTH,
}
