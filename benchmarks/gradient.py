"""Cost of a derivative: value and gradient of 32 steps, relative to the value alone.

python benchmarks/gradient.py --out out/bench
python benchmarks/gradient.py --quick --peers brax
"""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from _command import parser, publish, robots, say, setting
from _driven import Driven, nothing
from _models import NotInstalled
from _peers import brax_step, mjx_step
from _starts import Start, start, STARTS, SUBSTEPS
from _tables import caption, table
from _timing import interleaved
from jax import lax

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
    """A simulator: `simulate(model, ctrl, mass, q, qd)` gives the last coordinates.

    `ctrl` is `(batch, steps, nu)`; `wrt` are the supported names in `WRT`.
    """

    label: str
    simulate: Callable
    model: Any
    mass: Any
    wrt: tuple[str, ...] = tuple(WRT)


def main() -> None:
    """Time all cells, and write the results after each."""
    options = _options()
    where, cells = setting(options), []
    for name, sys, model in robots(options.models):
        peers = _peers(name, model, options.peers)
        for batch in options.batches:
            for kind in options.states:
                begin = start(kind, sys, model, batch, -(-options.steps // SUBSTEPS))
                runners = [*_eqsim(sys, begin, options.steps), *peers]
                cells += time_cell(name, kind, begin, runners, options)
                data = {"where": where, "cells": cells}
                text = report(where, cells, options.steps)
                publish(options, "gradient", data, text)
    print(f"\n{report(where, cells, options.steps)}")


def time_cell(name, kind, begin: Start, runners, options) -> list[dict]:
    """Time value and gradient of all runners from the same initial states,
    alternately."""
    dtype = jnp.result_type(float)
    ctrl = np.repeat(begin.ctrl, SUBSTEPS, axis=1)[:, : options.steps]
    ctrl, q, qd = (jnp.asarray(x, dtype) for x in (ctrl, begin.q, begin.qd))
    calls, facts = {}, {}
    for runner in runners:
        arguments = (runner.model, ctrl, jnp.asarray(runner.mass, dtype), q, qd)
        for wrt in (by for by in runner.wrt if by in options.by):
            key = runner.label, wrt
            forward = eqx.filter_jit(_loss(runner.simulate))
            try:
                gradient, facts[key] = _gradient(runner, WRT[wrt], arguments)
            except REFUSALS as error:
                say(f"{name}, {runner.label} by {wrt}: {str(error).splitlines()[0]}")
                continue
            say(
                f"{name}, {runner.label} by {wrt}: {facts[key]['mode']} mode, "
                f"ready after {facts[key]['prepared']:.0f} s"
            )
            calls[*key, "value"] = lambda f=forward, a=arguments: f(*a)
            calls[*key, "gradient"] = lambda f=gradient, a=arguments: f(*a)
    taken = interleaved(calls, options.repeats, options.limit)
    found, steps = [], len(begin.q) * options.steps
    for (label, wrt), fact in facts.items():
        value, gradient = (taken[label, wrt, what] for what in ("value", "gradient"))
        cell = {
            "model": name,
            "start": kind,
            "B": len(begin.q),
            "runner": label,
            "by": wrt,
            "forward": steps / value.best / 1e3,
            "gradient": steps / gradient.best / 1e3,
            "cost": gradient.best / value.best,
        }
        found.append(cell | fact | {"spread": max(value.spread, gradient.spread)})
        say(
            ", ".join(
                f"{k} {v:.3g}" if isinstance(v, float) else f"{v}"
                for k, v in found[-1].items()
            )
        )
    return found


def _loss(simulate):
    def loss(*arguments):
        return jnp.mean(jnp.sum(simulate(*arguments) ** 2, axis=-1))

    return loss


def _gradient(runner: Runner, which: int, arguments):
    """Return value and derivative, compiled, with facts about them; in reverse mode if
    supported."""
    loss = _loss(runner.simulate)

    def reverse(*arguments):
        def of(x):
            return loss(*arguments[:which], x, *arguments[which + 1 :])

        return jax.value_and_grad(of)(arguments[which])

    def forward(*arguments):
        def of(x):
            return loss(*arguments[:which], x, *arguments[which + 1 :])

        x = arguments[which]
        return jax.jvp(of, (x,), (jnp.ones_like(x),))

    for mode, function in (("reverse", reverse), ("forward", forward)):
        compiled, began = eqx.filter_jit(function), time.perf_counter()
        try:
            _, out = jax.block_until_ready(compiled(*arguments))
        except ValueError:
            # Loops of unknown length do not support reverse mode in JAX.
            if mode == "forward":
                raise
            continue
        prepared = time.perf_counter() - began
        finite = float(np.mean(np.isfinite(np.asarray(out))))
        return compiled, {"mode": mode, "finite": finite, "prepared": prepared}
    raise AssertionError


def _eqsim(sys: eqsim.System, begin: Start, steps: int) -> list[Runner]:
    pipeline = eqsim.Generalized()
    with_mass = lambda sys, mass: eqx.tree_at(lambda s: s.links.mass, sys, mass)

    def simulate(sys, ctrl, mass, q, qd):
        sys = with_mass(sys, mass)

        def one(ctrl, q, qd):
            move = lambda state, now: (pipeline.step(sys, state, now), None)
            return eqsim.scan(move, pipeline.init(sys, q, qd), ctrl)[0].q

        return jax.vmap(one)(ctrl, q, qd)

    def through_rollout(sys, ctrl, mass, q, qd):
        env = Driven(with_mass(sys, mass), frame_skip=1)
        place = lambda q, qd: env.begin(pipeline.init(env.sys, q, qd))
        _, (last, _) = eqsim.rollout(
            env,
            begin.policy,
            begin.keys,
            steps,
            start=jax.vmap(place)(q, qd),
            collect=nothing,
        )
        return last.q

    mass = np.asarray(sys.links.mass)
    return [
        Runner("eqsim", simulate, sys, mass),
        Runner("eqsim.rollout", through_rollout, sys, mass, ("masses",)),
    ]


def _peers(name: str, model, chosen: list[str]) -> list[Runner]:
    makers = {"mjx": lambda: _mjx(model), "brax": lambda: _brax(name)}
    found = []
    for peer in chosen:
        try:
            found.append(makers[peer]())
        except (NotInstalled, NotImplementedError) as error:
            say(f"{name}: {peer} is left out: {error}")
    return found


def _mjx(model) -> Runner:
    """Run MJX with one iteration, because it does not support reverse mode
    otherwise."""
    step, mjx_model, init = mjx_step(model, iterations=1)

    def simulate(mjx_model, ctrl, mass, q, qd):
        mjx_model = mjx_model.replace(body_mass=mass)

        def one(ctrl, q, qd):
            move = lambda data, now: (step(mjx_model, data, now), None)
            return lax.scan(move, init(q, qd), ctrl)[0].qpos

        return jax.vmap(one)(ctrl, q, qd)

    return Runner("MJX (1 it.)", simulate, mjx_model, np.asarray(mjx_model.body_mass))


def _brax(name: str) -> Runner:
    step, sys, init = brax_step(name)

    def simulate(sys, ctrl, mass, q, qd):
        sys = sys.tree_replace({"link.inertia.mass": mass})

        def one(ctrl, q, qd):
            move = lambda state, now: (step(sys, state, now), None)
            return lax.scan(move, init(sys, q, qd), ctrl)[0].q

        return jax.vmap(one)(ctrl, q, qd)

    mass = np.asarray(sys.link.inertia.mass)
    return Runner("Brax generalized", simulate, sys, mass)


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
