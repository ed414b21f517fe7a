"""Identify robots from recordings of their motion.

python benchmarks/identify.py double_pendulum --recordings ../shared/data --out out/identify

Writes `SET.xml` (the fitted robot as MJCF), `SET.json` (parameters with intervals, and
errors on held-out runs if `--held-out` is given) for SET in double_pendulum,
simple_pendulum, cube_tosses, elbow_tosses. With `--objective violation`, cube_tosses is
fitted by the violation of the laws of contact instead of by simulation. With `--peer`,
compares the time of one Jacobian with finite differences of MuJoCo C, as in
`mujoco.sysid`, instead.
"""

import argparse
import json
import os
import pathlib
import time

import jax
from _bench import say
from _identify_peer import compare
from _identify_pendulums import double_pendulum, simple_pendulum
from _identify_tosses import cube_tosses, cube_violation, elbow_tosses


SETS = {
    "double_pendulum": double_pendulum,
    "simple_pendulum": simple_pendulum,
    "cube_tosses": cube_tosses,
    "elbow_tosses": elbow_tosses,
}


def main() -> None:
    """Fit one set of recordings."""
    options = _options()
    jax.config.update("jax_enable_x64", True)
    folder = options.recordings / options.set
    fit = SETS[options.set]
    if options.objective == "violation":
        if options.set != "cube_tosses":
            raise SystemExit("`--objective violation` is for cube_tosses.")
        fit = cube_violation
    if not folder.is_dir():
        raise SystemExit(
            f"There are no recordings in {str(folder)!r}: pass --recordings, or set "
            "EQSIM_RECORDINGS. docs/identification.md says where they come from."
        )
    if options.peer:
        print(json.dumps(compare(options.recordings / "double_pendulum"), indent=1))
        return
    begin, cpu = time.perf_counter(), time.process_time()
    result, extra = fit(folder, options.seed, options.held_out, say)
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / f"{options.set}.json"
    result.save(path)
    extra |= {"seconds": time.perf_counter() - begin}
    extra |= {"cpu_seconds": time.process_time() - cpu}
    path.write_text(json.dumps(result.dictionary() | {"extra": extra}, indent=1) + "\n")
    print(result)
    print(json.dumps(extra, indent=1))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    here = pathlib.Path(__file__).parents[1] / ".." / "shared" / "data"
    default = os.environ.get("EQSIM_RECORDINGS", here)
    parser.add_argument("set", choices=SETS, nargs="?", default="double_pendulum")
    parser.add_argument(
        "--recordings", type=pathlib.Path, default=pathlib.Path(default)
    )
    parser.add_argument(
        "--out", type=pathlib.Path, default=pathlib.Path("out/identify")
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--held-out", action="store_true", help="fit half of the runs, score the others"
    )
    parser.add_argument(
        "--objective", choices=("simulation", "violation"), default="simulation"
    )
    parser.add_argument("--peer", action="store_true", help="time one Jacobian instead")
    return parser.parse_args()


if __name__ == "__main__":
    main()
