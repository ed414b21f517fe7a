"""Gradients through long rollouts: their time, their memory, and how they grow.

python benchmarks/horizon.py --out out/bench
"""

import argparse
import pathlib
import sys as _sys
import time
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from _tables import caption, circumstances, table, write

import eqsim


EXPLANATION = """\
Value and gradient of the mean of the squared last coordinates, by the gains of a linear
policy, of {batch} ants through `steps` control steps (five physics steps each), on one
device. `every`: `checkpoint_every` of `eqsim.rollout`. `memory`: what the program needs
beside its arguments and results, MB. `cost`: time over that of the value alone.
`gradient`: its largest entry, and `share finite`: how much of it is a number."""
MIDDLE = {1: 1, 32: 8, 200: 20, 1000: 40}


class Linear(eqx.Module):
    """Controls as a linear function of what is seen."""

    gains: jax.Array

    def __call__(self, obs, key):
        return self.gains @ obs


def main() -> None:
    """Measures every horizon without and with checkpoints."""
    options = _options()
    where, rows = circumstances(), []
    env = eqsim.make("ant")
    for length in options.lengths:
        middle = MIDDLE.get(length, 1)
        for every in dict.fromkeys([None, 1, middle]):
            rows.append(_cell(env, length, every, options))
            print(rows[-1], file=_sys.stderr, flush=True)
            text = report(where, rows, options)
            write(options.out / "horizon.json", {"where": where, "rows": rows})
            write(options.out / "horizon.md", text)
            write(options.markdown, text)
    print(f"\n{report(where, rows, options)}")


def _cell(env, length: int, every: int | None, options) -> dict[str, Any]:
    keys = jr.split(jr.key(0), options.batch)
    size = env.sys.nu, env.observe(env.pipeline.init(env.sys)).shape[0]
    gains = 0.05 * jr.normal(jr.key(1), size)

    def loss(gains):
        _, last = eqsim.rollout(
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
    seconds = [
        min(_time(fn, gains) for _ in range(options.repeats)) for fn in (value, both)
    ]
    gradient = np.asarray(both(gains)[1])
    return {
        "steps": length,
        "every": every,
        "memory": memory,
        "seconds": seconds[1],
        "cost": seconds[1] / seconds[0],
        "gradient": float(np.max(np.abs(gradient))),
        "share finite": float(np.mean(np.isfinite(gradient))),
    }


def _time(fn, *args) -> float:
    begin = time.perf_counter()
    jax.block_until_ready(fn(*args))
    return time.perf_counter() - begin


def report(where: dict, rows: list[dict], options) -> str:
    """All cells as one table."""
    text = EXPLANATION.format(batch=options.batch)
    return f"## Long horizons\n\n{text}\n\n{table(rows)}\n\n{caption(where)}\n"


def _options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--lengths", nargs="*", type=int, default=list(MIDDLE))
    add("--batch", type=int, default=64)
    add("--repeats", type=int, default=2)
    add("--out", type=pathlib.Path, default=pathlib.Path("out/bench"))
    add("--markdown", type=pathlib.Path, help="a second place for the table")
    return parser.parse_args()


if __name__ == "__main__":
    main()
