"""Long runs: environment steps without growth, and training that is interrupted.

    python tests/soak steps --minutes 10
    python tests/soak steps --steps 1e8 --envs inverted_pendulum point_mass \
        --num-envs 8192
    python tests/soak training --interruptions 50

`steps` steps wrapped environments with resets and randomization, and computes a gradient
now and then. It fails if a number becomes NaN or infinite, if a program is compiled after
the first rounds, or if memory keeps growing. `training` starts a run, ends its process
again and again (`kill -9`, SIGTERM, a full disk), starts a second process in the same
folder, and resumes. It fails unless the run ends bit for bit as one that was not
interrupted. Both write their numbers as JSON to the folder `--out`.
"""

import argparse
import json
import pathlib
import sys


def main() -> None:
    """Run one part; exit with 1 if it fails."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=("steps", "training", "worker"))
    parser.add_argument("--minutes", type=float, default=10.0, help="of `steps`")
    parser.add_argument(
        "--steps", type=float, help="control steps to take, instead of minutes"
    )
    parser.add_argument(
        "--envs", nargs="+", help="of `steps`; all but point_mass if none"
    )
    parser.add_argument("--num-envs", type=int, default=256, help="of `steps`")
    parser.add_argument("--interruptions", type=int, default=50, help="of `training`")
    parser.add_argument("--seed", type=int, default=0, help="of the interruptions")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("out/soak"))
    options = parser.parse_args()
    if options.part == "worker":
        from training import work

        return work(options.out, options.interruptions)
    if options.part == "steps":
        from steps import soak

        sizes = options.minutes, options.steps, options.num_envs
        report, problems = soak(options.envs, *sizes)
    else:
        from training import interrupt

        report, problems = interrupt(options.interruptions, options.seed)
    options.out.mkdir(parents=True, exist_ok=True)
    text = json.dumps(report | {"problems": problems}, indent=1)
    (options.out / f"{options.part}.json").write_text(text, encoding="utf-8")
    print(text)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
