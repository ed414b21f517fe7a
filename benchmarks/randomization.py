"""Cost of domain randomization, and of resets.

    python benchmarks/randomization.py --out out/bench

Compares with Brax's `DomainRandomizationVmapWrapper`, if Brax is installed.
"""

import os
from collections.abc import Callable
from typing import Any

import jax


# Before JAX is first used: one device per core.
jax.config.update("jax_num_cpu_devices", os.cpu_count() or 1)

import equinox as eqx
import jax.random as jr
import jax.tree_util as jtu
from _bench import caption, interleaved, parser, publish, say, setting, table
from _robots import nothing

import eqsim
from eqsim import AutoReset, DomainRandomization, randomize, TimeLimit


EXPLANATION = """\
Time of {steps} control steps of `{env}`, over that of the same without the feature, each
in one program on all cores. `randomized`: masses and inertias, friction of every shape,
damping and gears are drawn for each environment (`DomainRandomization`), against one
robot for all. `resets`: `AutoReset` with a whole reset of every environment in every step,
against none; `both`: with both, where each reset draws a robot; `pool`: resets from a pool
of 64. `control steps/s`: in thousands, without any of them. Brax: its
`DomainRandomizationVmapWrapper` with the same numbers, pipeline `{backend}`, against its
`VmapWrapper`, on one device; its robots stay as they were drawn once."""

ROBOTS = randomize.chain(
    randomize.masses(0.8, 1.2),
    randomize.uniform_factor(lambda sys: sys.geoms.friction, 0.6, 1.4),
    randomize.uniform_factor(lambda sys: sys.joints.damping, 0.7, 1.3),
    randomize.uniform_factor(lambda sys: sys.actuators.gear, 0.8, 1.2),
)
POOL = 64


def main() -> None:
    """Time all cells, and write the results after each."""
    options = _options()
    where, rows = setting(options), []
    for batch in options.batches:
        for label, cell in (("eqsim", _ours), ("Brax", _brax)):
            found = cell(batch, options)
            if found is None:
                continue
            rows.append({"B": batch, "runner": label} | found)
            say(rows[-1])
            data = {"where": where, "rows": rows}
            publish(options, "randomization", data, report(where, rows, options))
    print(f"\n{report(where, rows, options)}")


def _ours(batch: int, options) -> dict[str, Any]:
    task = eqsim.make(options.env, pipeline=options.pipeline)
    random = DomainRandomization(task, ROBOTS)
    limited, both = TimeLimit(task, 1000), TimeLimit(random, 1000)
    envs = {
        "static": limited,
        "randomized": both,
        "resets": AutoReset(limited),
        "both": AutoReset(both),
        "pool": AutoReset(eqsim.wrappers.pool_resets(limited, jr.key(1), POOL)),
    }
    calls = {
        name: _rollout(env, batch, options)
        for name, env in envs.items()
        if name in options.features or name == "static"
    }
    return _ratios(calls, batch, options)


def _rollout(env: eqsim.AbstractEnv, batch: int, options) -> Callable[[], Any]:
    low, high = env.action_range.T
    policy = lambda obs, key: jr.uniform(key, low.shape, low.dtype, low, high)
    keys = jr.split(jr.key(0), batch)
    start = eqx.filter_jit(eqx.filter_vmap(env.reset))(keys)

    def call():
        _, (state, _) = eqsim.rollout(
            env, policy, keys, options.steps, start=start, collect=nothing
        )
        return env.physics(state).q

    return call


def _brax(batch: int, options) -> dict[str, Any] | None:
    try:
        from brax import envs
        from brax.envs.wrappers import training
    except ImportError:
        say("Brax is left out: it is not installed.")
        return None
    make = lambda: envs.get_environment(options.env, backend=options.backend)
    random = lambda sys: _brax_robots(sys, batch)
    wrapped = {
        "static": training.VmapWrapper(make()),
        "randomized": training.DomainRandomizationVmapWrapper(make(), random),
    }
    keys = jr.split(jax.random.PRNGKey(0), batch)
    calls = {}
    for name, env in wrapped.items():
        state = jax.jit(env.reset)(keys)
        actions = jr.uniform(
            jr.key(0), (options.steps, batch, env.action_size), minval=-1.0
        )

        @jax.jit
        def run(state, actions, env=env):
            step = lambda state, action: (env.step(state, action), None)
            return jax.lax.scan(step, state, actions)[0].pipeline_state.q

        calls[name] = lambda run=run, state=state, actions=actions: run(state, actions)
    return _ratios(calls, batch, options)


def _brax_robots(sys, batch: int):
    """Return Brax's robots with the same random parameters, and their axes."""

    def one(key):
        keys = jr.split(key, 4)
        scale = lambda key, x, low, high: (
            x * jr.uniform(key, x.shape, x.dtype, low, high)
        )
        inertia = sys.link.inertia
        factor = jr.uniform(keys[0], inertia.mass.shape, inertia.mass.dtype, 0.8, 1.2)
        return {
            "geom_friction": scale(keys[1], sys.geom_friction, 0.6, 1.4),
            "dof.damping": scale(keys[2], sys.dof.damping, 0.7, 1.3),
            "actuator.gear": scale(keys[3], sys.actuator.gear, 0.8, 1.2),
            "link.inertia.mass": inertia.mass * factor,
            "link.inertia.i": inertia.i * factor[:, None, None],
        }

    changes = jax.vmap(one)(jr.split(jr.key(0), batch))
    axes = jtu.tree_map(lambda _: None, sys)
    return sys.tree_replace(changes), axes.tree_replace(dict.fromkeys(changes, 0))


def _ratios(calls: dict[str, Callable], batch: int, options) -> dict[str, Any]:
    taken = interleaved(calls, options.repeats, options.limit)
    base = taken.pop("static")
    speed = batch * options.steps / base.best / 1e3
    row: dict[str, Any] = {"control steps/s": speed}
    row |= {name: timing.best / base.best for name, timing in taken.items()}
    return row | {"spread": max(t.spread for t in (base, *taken.values()))}


def report(where: dict, rows: list[dict], options) -> str:
    """Return all results as one table."""
    title = f"## Random robots and resets, {where['precision']} precision"
    words = {"steps": options.steps, "env": options.env, "backend": options.backend}
    text = EXPLANATION.format(**words)
    return f"{title}\n\n{text}\n\n{table(rows)}\n\n{caption(where)}\n"


def _options():
    made = parser(__doc__, repeats=5, limit=60.0)
    add = made.add_argument
    add("--env", default="humanoid")
    add("--pipeline", default="generalized")
    add("--backend", default="spring", help="of Brax")
    add("--batches", nargs="*", type=int, default=[1024, 4096])
    add("--steps", type=int, default=5)
    features = ("randomized", "resets", "both", "pool")
    add("--features", nargs="*", choices=features, default=list(features))
    return made.parse_args()


if __name__ == "__main__":
    main()
