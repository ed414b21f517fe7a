"""Checks of the timesteps of environments, and of rejected inputs."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from ..model import check_state, State
from ..wrappers import AbstractWrapper
from ._check import NotApplicable
from ._compare import describe
from ._env_kit import EnvKit
from ._gradients import compare
from ._tools import double_precision, require, require_equal, require_finite, rounding


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
    _compare(kit, "[0]")


def gradients_state(kit: EnvKit) -> None:
    """Derivatives of observation and reward with respect to the state agree: forward
    mode, reverse mode and finite differences.

    Look for `stop_gradient`, for parts of the state that the next step does not use,
    and for custom rules.
    """
    _compare(kit, "[1]")


def gradients_env(kit: EnvKit) -> None:
    """Derivatives of observation and reward with respect to parameters of the robot and
    of the environment agree: forward mode, reverse mode and finite differences.

    Look for values that are read outside JAX, for `stop_gradient`, and for custom
    rules.
    """
    _compare(kit, "[2]")


def _compare(kit: EnvKit, prefix: str) -> None:
    with double_precision():
        try:
            compare(kit.derivatives, prefix, kinks=True, rtol=2e-5, atol=1e-6)
        except AssertionError as error:
            raise AssertionError(f"with {ARGUMENTS}, {error}") from None
