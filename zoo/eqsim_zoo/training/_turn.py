"""One turn: some iterations of all members, in one compiled call."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from eqsim import AbstractEnv

from ..blocks.collecting import Running, TASK
from ..blocks.parallel import replicate
from ..blocks.replay import Replay
from ..blocks.skill_space import EpisodeReturns
from ..data.dataset import Dataset
from ..runs.members import MemberEnvs, Members


EPISODES = ("return", "length")
"""Means over episodes: NaN before the first one has ended. Those of a turn are means over
all its episodes, or the last one known if none has ended in it."""

_EXPERIENCE = Running, Replay, EpisodeReturns
"""Parts of a state that hold steps of environments, whose values are counted in each step
(`nonfinite_flags`). A part that is not finite when a turn ends may be a moment later."""


class Report(NamedTuple):
    """Metrics of a turn, with an axis of members if there are several.

    - `total`, `number`: sum of each metric over the iterations in which it was finite,
        and their number. If the agent reports the number of `episodes`, it weights the
        means over episodes, and their `number` counts episodes.
    - `last`: each metric in the last iteration.
    - `steps`: control steps taken.
    - `updates`, `nonfinite`: number of updates, and of those in which a metric was not
        finite; of an agent that does not report them, iterations.
    - `leading`, `trailing`, `longest`: numbers of consecutive iterations in which at least
        half of the updates were not finite: of the first ones, the last ones, and at most.
    - `broken`: true if a leaf of the state has numbers that are not finite, in the order
        of `float_paths`.
    """

    total: dict[str, Float[Array, "..."]]
    number: dict[str, Int[Array, "..."]]
    last: dict[str, Float[Array, "..."]]
    steps: Int[Array, "..."]
    updates: Int[Array, "..."]
    nonfinite: Int[Array, "..."]
    leading: Int[Array, "..."]
    trailing: Int[Array, "..."]
    longest: Int[Array, "..."]
    broken: Bool[Array, "..."]


def run_turn(
    members: Members, env: AbstractEnv | MemberEnvs | Dataset, n: int, state: Any
) -> tuple[Any, Report]:
    """Run the iterations of a turn for all members.

    **Arguments:**

    - `members`, `env`: agents, and what they act in.
    - `n`: number of iterations, which may change without a recompile.
    - `state`: state of all members; its buffers are donated.
    """
    number = jnp.asarray(n, jnp.int32)
    state, counted = _run((members, env, number), state)
    # A program of its own, as it is there from before the first turn; within the other
    # it would take as long to compile as a tenth of a small environment.
    broken = nonfinite_of_members(members, state)
    return state, Report(*counted, broken=broken)


@eqx.filter_jit(donate="all-except-first")
def _run(
    fixed: tuple[Members, AbstractEnv | MemberEnvs | Dataset, Int[Array, ""]],
    state: Any,
) -> tuple[Any, Any]:
    members, env, n = fixed  # One argument, the one that is not donated.
    run = lambda agent, env, state: _iterations(agent, state, env, n)
    state, counted = members.each_in(env, run, state)
    return state, replicate(counted)


@eqx.filter_jit
def _iterate(agent: Any, state: Any, env: Any) -> Any:
    # Compiled, so that it is traced once, for shapes and for the loop.
    state, metrics = agent.iterate(state, env)
    floating = {name: _number(name, value) for name, value in metrics.items()}
    return state, floating


def _number(name: str, value: Any) -> Float[Array, ""]:
    value = jnp.asarray(value)
    if value.shape != ():
        raise ValueError(
            f"The metric {name!r} must be one number, such as a mean, got shape "
            f"{value.shape}."
        )
    inexact = jnp.issubdtype(value.dtype, jnp.floating)
    return value if inexact else value.astype(jnp.float32)


def _iterations(agent: Any, state: Any, env: Any, n: Int[Array, ""]):
    _, shapes = eqx.filter_eval_shape(_iterate, agent, state, env)
    dynamic, static = eqx.partition(state, eqx.is_array)
    zeros = {name: jnp.zeros((), x.dtype) for name, x in shapes.items()}
    none = jnp.zeros((), jnp.int32)
    counts = (none,) * 6
    begin = zeros, {name: none for name in zeros}, zeros, *counts

    def body(k, carry):
        dynamic, (total, number, _, steps, updates, nonfinite, *streaks) = carry
        state, last = _iterate(agent, eqx.combine(dynamic, static), env)
        fine = {name: jnp.isfinite(x) for name, x in last.items()}
        terms = {name: jnp.where(fine[name], x, 0.0) for name, x in last.items()}
        counts = {name: x.astype(jnp.int32) for name, x in fine.items()}
        for name in [x for x in EPISODES if {x, "episodes"} <= last.keys()]:
            # Otherwise one early end would count as much as many whole episodes.
            counts[name] = counts[name] * _integer(last["episodes"])
            terms[name] = terms[name] * counts[name].astype(terms[name].dtype)
        total = {name: total[name] + terms[name] for name in total}
        number = {name: number[name] + counts[name] for name in total}
        taken = _integer(last["steps"]) if "steps" in last else 1
        learned, bad = _updates(last, fine)
        streaks = _streaks(streaks, k, (bad > 0) & (2 * bad >= learned))
        sums = steps + taken, updates + learned, nonfinite + bad, *streaks
        return eqx.filter(state, eqx.is_array), (total, number, last, *sums)

    dynamic, counted = lax.fori_loop(0, n, body, (dynamic, begin))
    return eqx.combine(dynamic, static), counted


def _streaks(
    streaks: list[Int[Array, ""]], k: Int[Array, ""], failed: Bool[Array, ""]
) -> tuple[Int[Array, ""], ...]:
    """Return `leading`, `trailing` and `longest` of a report after iteration `k`."""
    leading, trailing, longest = streaks
    leading = leading + (failed & (leading == k)).astype(jnp.int32)
    trailing = jnp.where(failed, trailing + 1, 0)
    return leading, trailing, jnp.maximum(longest, trailing)


def of_experience(name: str) -> bool:
    """Return whether a metric describes episodes or the task, not updates."""
    return name in EPISODES or name.startswith(TASK)


def _updates(
    metrics: dict[str, Float[Array, ""]], fine: dict[str, Bool[Array, ""]]
) -> tuple[Int[Array, ""] | int, Int[Array, ""]]:
    """Return the numbers of updates and of non-finite updates of an iteration, from
    `updates` and `nonfinite` of `mean_metrics`; without these metrics, the iteration is
    one update."""
    flags = [~flag for name, flag in fine.items() if not of_experience(name)]
    bad = jnp.any(jnp.stack(flags)) if flags else jnp.zeros((), bool)
    if not {"updates", "nonfinite"} <= metrics.keys():
        return 1, bad.astype(jnp.int32)
    skipped = _integer(metrics["nonfinite"])
    return _integer(metrics["updates"]), jnp.maximum(skipped, bad.astype(jnp.int32))


def _integer(x: Float[Array, ""]) -> Int[Array, ""]:
    return jnp.round(x).astype(jnp.int32)


def nonfinite(state: Any) -> Bool[Array, " leaves"]:
    """Return true for each leaf of `float_paths` with a non-finite value."""
    flags = [~jnp.all(jnp.isfinite(x)) for _, x in _floats(state)]
    return jnp.stack(flags) if flags else jnp.zeros(0, bool)


@eqx.filter_jit
def nonfinite_of_members(members: Members, state: Any) -> Bool[Array, "..."]:
    """Return `nonfinite` of all members."""
    return replicate(members.each(lambda _, state: nonfinite(state), state))


def float_paths(state: Any) -> list[str]:
    """Return the paths of floating-point leaves other than those of steps."""
    return [jtu.keystr(path) for path, _ in _floats(state)]


def _floats(state: Any) -> list[tuple[Any, Any]]:
    steps = lambda x: isinstance(x, _EXPERIENCE)
    leaves, _ = jtu.tree_flatten_with_path(state, is_leaf=steps)
    array = lambda x: eqx.is_array(x) or isinstance(x, jax.ShapeDtypeStruct)
    return [
        (p, x) for p, x in leaves if array(x) and jnp.issubdtype(x.dtype, jnp.inexact)
    ]


def on_host(report: Report) -> Report:
    """Convert a report to NumPy arrays with an axis of members."""
    report = jax.device_get(report)
    rows = lambda x: np.atleast_1d(np.asarray(x))
    broken = np.atleast_2d(np.asarray(report.broken))
    numbers = jtu.tree_map(rows, report._replace(broken=None))
    return numbers._replace(broken=broken)
