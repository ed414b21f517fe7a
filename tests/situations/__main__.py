"""Situations in which users of simulators stumble, drawn from a seed and judged by laws.

python tests/situations --count 240 --seed 0
python tests/situations --kinds ranges states --first 17 --count 1

Each situation has a number; the same seed and number draw the same one. Types of signatures
are not checked here, as in the process of a user.
"""

import argparse
import collections
import pathlib
import sys
import time
import traceback
import warnings

import jax
import numpy as np


TESTS = pathlib.Path(__file__).resolve().parents[1]


def kinds():
    """Return laws by name, and how often each is drawn: slow ones rarely."""
    # The tests whose cases they use.
    sys.path.append(str(TESTS))
    import arguments
    import runs

    return {
        "counts": (arguments.count, 12),
        "coordinates": (arguments.coordinates, 5),
        "ranges": (arguments.action_range, 5),
        "observations": (arguments.batch_of_observations, 5),
        "states": (arguments.batch_of_states, 2),
        "members": (runs.members, 1),
        "NaNs": (runs.nan_rewards, 1),
        "signals": (runs.interrupted, 1),
    }


def main() -> int:
    """Try situations; return 1 if a law does not hold."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=240, help="number of situations")
    parser.add_argument("--first", type=int, default=0, help="number of the first one")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", nargs="*", help="kinds to draw; all by default")
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_numpy_rank_promotion", "raise")
    warnings.simplefilter("ignore")
    known = kinds()
    chosen = options.kinds or [*known]
    if unknown := {*chosen} - {*known}:
        parser.error(f"unknown kinds {sorted(unknown)}; known are {[*known]}")
    share = np.array([known[name][1] for name in chosen], float)
    tried, failed = collections.Counter(), []
    seconds = collections.Counter()
    for number in range(options.first, options.first + options.count):
        rng = np.random.default_rng([options.seed, number])
        name = chosen[rng.choice(len(chosen), p=share / share.sum())]
        begin = time.monotonic()
        try:
            known[name][0](rng)
        except Exception:
            failed.append(number)
            print(f"{number}: {name}\n{traceback.format_exc()}", flush=True)
        tried[name] += 1
        seconds[name] += time.monotonic() - begin
    for name, count in sorted(tried.items()):
        print(f"{name}: {count} situations, {seconds[name]:.1f} s")
    print(f"{options.count} situations, {len(failed)} failed: {failed}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
