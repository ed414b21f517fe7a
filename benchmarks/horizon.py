"""Gradients through long rollouts: time, memory, and growth with the horizon.

python benchmarks/horizon.py --out out/bench
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from _bench import parser, publish, say, setting
from _bench import caption, table
from _bench import interleaved

import eqsim


EXPLANATION = """\
Value and gradient of the mean squared final coordinates with respect to the gains of a
linear policy, for {batch} ants over `steps` control steps (five physics steps each), on
one device. `every`: `checkpoint_every` of `eqsim.rollout`. `memory`: temporary memory of
the program, MB. `cost`: time for value and gradient over time for the value. `gradient`:
largest entry of the gradient. `share finite`: fraction of its entries that are finite."""
MIDDLE = {1: 1, 32: 8, 200: 20, 1000: 40}


class Linear(eqx.Module):
    """A linear policy."""

    gains: jax.Array

    def __call__(self, obs, key):
        return self.gains @ obs


def main() -> None:
    """Measure every horizon with and without checkpoints."""
    options = _options()
    where, rows = setting(options), []
    env = eqsim.make("ant", include_cfrc_ext_in_observation=False)
    for length in options.lengths:
        middle = MIDDLE.get(length, 1)
        for every in dict.fromkeys([None, 1, middle]):
            rows.append(_cell(env, length, every, options))
            say(rows[-1])
            data = {"where": where, "rows": rows}
            publish(options, "horizon", data, report(where, rows, options))
    print(f"\n{report(where, rows, options)}")


def _cell(env, length: int, every: int | None, options) -> dict[str, Any]:
    keys = jr.split(jr.key(0), options.batch)
    size = env.sys.nu, env.begin(env.pipeline.init(env.sys))[1].obs.shape[0]
    gains = 0.05 * jr.normal(jr.key(1), size)

    def loss(gains):
        _, (last, _) = eqsim.rollout(
            env,
            Linear(gains),
            keys,
            length,
            collect=lambda *_: (),
            checkpoint_every=every,
        )
        return jnp.mean(last.q**2)

    value = jax.jit(loss).lower(gains).compile()
    both = jax.jit(jax.value_and_grad(loss)).lower(gains).compile()
    memory = both.memory_analysis().temp_size_in_bytes / 1e6
    calls = {"value": lambda: value(gains), "both": lambda: both(gains)}
    taken = interleaved(calls, options.repeats, options.limit)
    seconds = taken["both"].best
    gradient = np.asarray(both(gains)[1])
    return {
        "steps": length,
        "every": every,
        "memory": memory,
        "seconds": seconds,
        "cost": seconds / taken["value"].best,
        "gradient": float(np.max(np.abs(gradient))),
        "share finite": float(np.mean(np.isfinite(gradient))),
    }


def report(where: dict, rows: list[dict], options) -> str:
    """Return all results as one table."""
    text = EXPLANATION.format(batch=options.batch)
    title = f"## Long horizons, {where['precision']} precision"
    return f"{title}\n\n{text}\n\n{table(rows)}\n\n{caption(where)}\n"


def _options():
    made = parser(__doc__, repeats=2, limit=60.0)
    made.add_argument("--lengths", nargs="*", type=int, default=list(MIDDLE))
    made.add_argument("--batch", type=int, default=64)
    return made.parse_args()


if __name__ == "__main__":
    main()
