"""Cost of a derivative: value and gradient of 32 steps, relative to the value alone.

python benchmarks/gradient.py --out out/bench
python benchmarks/gradient.py --quick --peers brax

The loss is differentiated with respect to the controls of every step and the masses of the links,
on one device. MJX uses one solver iteration, because it does not support reverse mode otherwise.
If a simulator does not support reverse mode, one directional derivative is measured instead, and
the table says `forward`.
"""

import time
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from _bench import caption, interleaved, parser, publish, say, setting, table
from _robots import (
    Driven,
    eqsim_simulator,
    nothing,
    RandomControls,
    robots,
    SCALE,
    Simulator,
    simulators,
    start,
    STARTS,
    SUBSTEPS,
)

import eqsim


EXPLANATION = """\
Loss: the mean over the batch of the sum of squares of the coordinates after {steps}
steps. `controls`: its gradient by the controls of every step of every robot;
`masses`: by the masses of the links, which all robots share. Steps per second in
thousands, forward and with the gradient; `cost`: time for value and gradient over time
for the value. All run on one device. `mode`: reverse, or forward where reverse is
refused; forward mode is one directional derivative, not a gradient. `finite`: share of
the gradient that is a number. `eqsim.rollout`: through the environment, with a random
policy."""
WRT = {"controls": 1, "masses": 2}
REFUSALS = (ValueError, TypeError, NotImplementedError, jax.errors.JaxRuntimeError)


class Runner(NamedTuple):
    """`loss(robot, ctrl, mass, q, qd, act)`, and its derivatives by names in `WRT`."""

    label: str
    loss: Any
    robot: Any
    mass: Any
    wrt: tuple[str, ...] = tuple(WRT)


def main() -> None:
    """Time all cells, and write the results after each."""
    options = _options()
    where, cells = setting(options), []
    # MJX supports reverse mode with one solver iteration only.
    chosen = [{"mjx": "mjx-1"}.get(peer, peer) for peer in options.peers]
    for name, sys, model in robots(options.models):
        peers = [_runner(peer) for peer in simulators(name, model, chosen)]
        for batch in options.batches:
            for kind in options.states:
                policy = RandomControls.create(model, SCALE[kind])
                own = [_runner(eqsim_simulator(sys)), _rollout(sys, policy, options)]
                begin = start(kind, model, batch, -(-options.steps // SUBSTEPS))
                runners = [*own, *peers]
                cells += time_cell(name, kind, begin.arrays(), runners, options)
                data = {"where": where, "cells": cells}
                text = report(where, cells, options.steps)
                publish(options, "gradient", data, text)
    print(f"\n{report(where, cells, options.steps)}")


def time_cell(name, kind, begin, runners: list[Runner], options) -> list[dict]:
    """Time value and gradient of all runners from the same initial states,
    alternately."""
    q, qd, act, ctrl = begin
    ctrl = jnp.repeat(ctrl, SUBSTEPS, axis=1)[:, : options.steps]
    calls, facts = {}, {}
    for runner in runners:
        mass = jnp.asarray(runner.mass, jnp.result_type(float))
        arguments = runner.robot, ctrl, mass, q, qd, act
        for wrt in (by for by in runner.wrt if by in options.by):
            key = runner.label, wrt
            try:
                gradient, facts[key] = _gradient(runner.loss, WRT[wrt], arguments)
            except REFUSALS as error:
                say(f"{name}, {runner.label} by {wrt}: {str(error).splitlines()[0]}")
                continue
            value = eqx.filter_jit(runner.loss)
            calls[*key, "value"] = lambda f=value, a=arguments: f(*a)
            calls[*key, "gradient"] = lambda f=gradient, a=arguments: f(*a)
    taken = interleaved(calls, options.repeats, options.limit)
    found, steps = [], len(q) * options.steps
    for (label, wrt), fact in facts.items():
        value, gradient = (taken[label, wrt, what] for what in ("value", "gradient"))
        cell = {"model": name, "start": kind, "B": len(q), "runner": label, "by": wrt}
        cell["forward"] = steps / value.best / 1e3
        cell["gradient"] = steps / gradient.best / 1e3
        cell["cost"] = gradient.best / value.best
        cell |= fact | {"spread": max(value.spread, gradient.spread)}
        found.append(cell)
        say(cell)
    return found


def _gradient(loss, which: int, arguments):
    """Return value and derivative, compiled, with facts about them; in reverse mode if
    supported."""

    def of(x, arguments):
        return loss(*arguments[:which], x, *arguments[which + 1 :])

    def reverse(*arguments):
        return jax.value_and_grad(of)(arguments[which], arguments)

    def forward(*arguments):
        x = arguments[which]
        return jax.jvp(lambda x: of(x, arguments), (x,), (jnp.ones_like(x),))

    for mode, function in (("reverse", reverse), ("forward", forward)):
        program, began = eqx.filter_jit(function), time.perf_counter()
        try:
            _, out = jax.block_until_ready(program(*arguments))
        except ValueError:
            # Loops of unknown length do not support reverse mode in JAX.
            if mode == "forward":
                raise
            continue
        prepared = time.perf_counter() - began
        finite = float(np.mean(np.isfinite(np.asarray(out))))
        return program, {"mode": mode, "finite": finite, "prepared": prepared}
    raise AssertionError


def _runner(peer: Simulator) -> Runner:
    def loss(robot, ctrl, mass, q, qd, act):
        robot = peer.with_mass(robot, mass)

        def one(ctrl, q, qd, act):
            move = lambda state, now: (peer.step(robot, state, now), None)
            return peer.coordinates(
                peer.scan(move, peer.init(robot, q, qd, act), ctrl)[0]
            )

        return _mean_square(jax.vmap(one)(ctrl, q, qd, act))

    return Runner(peer.label, loss, peer.robot, np.asarray(peer.mass))


def _rollout(sys: eqsim.System, policy: RandomControls, options) -> Runner:
    """Differentiate `eqsim.rollout` of a random policy."""

    def loss(sys, ctrl, mass, q, qd, act):
        sys = eqx.tree_at(lambda s: s.links.mass, sys, mass)
        env = Driven(sys, eqsim.Generalized(), 1)
        first = jax.vmap(lambda *x: env.begin(eqsim.State(*x)))(q, qd, act)
        keys = jr.split(jr.key(0), len(q))
        _, (last, _) = eqsim.rollout(
            env, policy, keys, options.steps, start=first, collect=nothing
        )
        return _mean_square(last.q)

    mass = np.asarray(sys.links.mass)
    return Runner("eqsim.rollout", loss, sys, mass, ("masses",))


def _mean_square(q):
    return jnp.mean(jnp.sum(q**2, axis=-1))


def report(where: dict, cells: list[dict], steps: int) -> str:
    """Return all results as one table."""
    rows = [
        cell | {"gradient": f"{cell['gradient']:.3g}", "cost": f"{cell['cost']:.2f}x"}
        for cell in cells
    ]
    columns = ["model", "start", "B", "runner", "by", "forward", "gradient", "cost"]
    columns += ["mode", "finite"]
    title = f"## Value and gradient, {where['precision']} precision"
    text = EXPLANATION.format(steps=steps)
    return f"{title}\n\n{text}\n\n{table(rows, columns)}\n\n{caption(where)}\n"


def _options():
    made = parser(__doc__, repeats=5, limit=20.0)
    add = made.add_argument
    add("--models", nargs="*", default=["brax_ant", "ant"])
    add("--batches", nargs="*", type=int, default=[1, 64, 1024])
    add("--states", nargs="*", choices=STARTS, default=list(STARTS))
    add("--peers", nargs="*", choices=("mjx", "brax"), default=["mjx", "brax"])
    add("--by", nargs="*", choices=tuple(WRT), default=list(WRT))
    add("--steps", type=int, default=32)
    add("--quick", action="store_true", help="small batches and few repeats")
    options = made.parse_args()
    if options.quick:
        options.models, options.batches = options.models[:1], [8]
        options.repeats, options.limit = 2, 2.0
    return options


if __name__ == "__main__":
    main()
