"""Cost of a replay buffer: `eqsim_zoo.blocks.Replay`, compared with flashbax.

    python benchmarks/replay.py --out out/bench

Flashbax is skipped if it is not installed (`pip install flashbax`).
"""

import importlib.metadata
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
from _bench import caption, interleaved, parser, publish, say, setting, table
from jax import lax

from eqsim_zoo.blocks import Replay, Transition


EXPLANATION = """\
A full memory of {capacity:,} transitions with {obs} observations and {action} actions. A
turn adds a block of {block} rows and draws {sample}, whose mean is taken. `loop`:
thousands of turns per second within one program, as within an agent's; `call`: with one
call of a compiled program per turn. The memory is donated; one process, one device, in
turns. `item buffer`, `trajectory buffer`: flashbax with single rows in one long axis, and
with the block as its first axis, sequences of length 1. `time / ours`: above 1 it is
slower than `eqsim-zoo`; `spread`: how much slower than the best the median is."""


def main() -> None:
    """Time all buffers, and write the table."""
    options = _options()
    where = setting(options)
    where["versions"] |= {name: _version(name) for name in ("eqsim-zoo", "flashbax")}
    made: dict[str, Callable] = {"eqsim-zoo": _ours}
    if _version("flashbax") is None:
        say("flashbax is left out: it is not installed. Run `pip install flashbax`.")
    else:
        made |= {"item buffer": _items, "trajectory buffer": _trajectories}
    rows = _measured(made, options)
    data = {"where": where, "rows": rows}
    publish(options, "replay", data, report(where, rows, options))
    print(report(where, rows, options))


def _measured(made: dict[str, Callable], options) -> list[dict[str, Any]]:
    loops, calls = {}, {}
    for name, make in made.items():
        memory, add, sample = make(options)
        turn = _turn(add, sample, options)
        loops[name] = _Owner(_loop(turn, options.turns), memory)
        calls[name] = _Owner(_loop(turn, 1), loops[name])
    several = lambda owner: lambda: [owner() for _ in range(options.turns)][-1]
    loop = interleaved(loops, options.repeats, options.limit)
    call = interleaved(
        {name: several(owner) for name, owner in calls.items()},
        options.repeats,
        options.limit,
    )
    rows = []
    for name in made:
        row: dict[str, Any] = {"memory": name}
        for kind, taken in (("loop", loop), ("call", call)):
            best = taken[name].best
            row[f"{kind}, k/s"] = options.turns / best / 1e3
            row[f"{kind}, time / ours"] = best / taken["eqsim-zoo"].best
            row[f"{kind}, spread"] = taken[name].spread
        rows.append(row)
        say(row)
    return rows


class _Owner:
    """Calls a program repeatedly with the buffer that it returned."""

    def __init__(self, program: Callable, memory: Any):
        self.program, self.memory, self.key = program, memory, jr.key(0)

    def __call__(self):
        # One buffer, which the owners use alternately.
        shared = isinstance(self.memory, _Owner)
        holder = self.memory if shared else self
        holder.memory, self.key, total = self.program(holder.memory, self.key)
        return total


def _turn(add: Callable, sample: Callable, options) -> Callable:
    block = _rows(options.block, options)

    def turn(memory, key):
        key, key_sample = jr.split(key)
        # Different values each time, so that nothing can be precomputed.
        shift = jr.uniform(key, (), block.reward.dtype)
        rows = eqx.tree_at(lambda b: b.reward, block, block.reward + shift)
        memory = add(memory, rows)
        means = [
            jnp.mean(x.astype(jnp.float32))
            for x in jtu.tree_leaves(sample(memory, key_sample))
        ]
        return memory, key, jnp.sum(jnp.stack(means))

    return turn


def _loop(turn: Callable, number: int) -> Callable:
    @eqx.filter_jit(donate="all")
    def run(memory, key):
        def body(_, now):
            memory, key, total = now
            memory, key, more = turn(memory, key)
            return memory, key, total + more

        return lax.fori_loop(0, number, body, (memory, key, jnp.zeros(())))

    return run


def _rows(number: int, options) -> Transition:
    """Return random transitions, so that every page of memory is allocated."""
    keys = jr.split(jr.key(1), 4)
    vector = lambda key, size: jr.normal(key, (number, size))
    flag = jnp.zeros(number, bool)
    obs, next_obs = vector(keys[0], options.obs), vector(keys[1], options.obs)
    action, reward = vector(keys[2], options.action), jr.normal(keys[3], (number,))
    return Transition(obs, action, reward, next_obs, flag, ~flag)


def _ours(options):
    rows = _rows(options.capacity, options)
    memory = Replay.create(jtu.tree_map(lambda x: x[0], rows), 1, options.block)
    full = jnp.asarray(options.capacity, jnp.int32)
    memory = eqx.tree_at(lambda r: (r.rows, r.size), memory, (rows, full))
    sample = lambda memory, key: memory.sample(key, options.sample)
    return memory, lambda memory, rows: memory.add(rows), sample


def _items(options):
    import flashbax

    buffer = flashbax.make_item_buffer(
        options.capacity, 1, options.sample, add_batches=True
    )
    return _filled(buffer, options, lambda x: x[None], lambda rows: rows)


def _trajectories(options):
    import flashbax

    length = options.capacity // options.block
    buffer = flashbax.make_trajectory_buffer(
        add_batch_size=options.block,
        sample_batch_size=options.sample,
        sample_sequence_length=1,
        period=1,
        min_length_time_axis=1,
        max_length_time_axis=length,
    )
    fold = lambda x: x.reshape(options.block, length, *x.shape[1:])
    in_time = lambda rows: jtu.tree_map(lambda x: x[:, None], rows)
    return _filled(buffer, options, fold, in_time)


def _filled(buffer, options, fold: Callable, given: Callable):
    rows = _rows(options.capacity, options)
    memory = buffer.init(jtu.tree_map(lambda x: x[0], rows))
    experience = jtu.tree_map(fold, rows)
    memory = memory.replace(experience=experience, is_full=jnp.asarray(True))
    add = lambda memory, rows: buffer.add(memory, given(rows))
    return memory, add, lambda memory, key: buffer.sample(memory, key).experience


def report(where: dict, rows: list[dict], options) -> str:
    """Return all results as one table."""
    text = EXPLANATION.format(**vars(options))
    return f"## Replay\n\n{text}\n\n{table(rows)}\n\n{caption(where)}\n"


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _options():
    made = parser(__doc__, repeats=7, limit=60.0)
    add = made.add_argument
    add("--capacity", type=int, default=1_000_000)
    add("--obs", type=int, default=27)
    add("--action", type=int, default=8)
    add("--block", type=int, default=64, help="rows that are added at once")
    add("--sample", type=int, default=256, help="rows that are drawn at once")
    add("--turns", type=int, default=1000, help="of one measurement")
    options = made.parse_args()
    if options.capacity % options.block:
        made.error("--capacity must be a multiple of --block")
    return options


if __name__ == "__main__":
    main()
