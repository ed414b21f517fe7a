"""Commands that compare eqsim with its references on many inputs, and write tables.

    python tests/parity sweep --help          # accelerations, steps and sensors; MuJoCo C
    python tests/parity scenes MENAGERIE      # robots with meshes, with causes; MuJoCo C
    python tests/parity files FOLDER          # which MJCF files load and move alike
    python tests/parity colliders             # contact points of all pairs; MuJoCo C
    python tests/parity environments          # environments; Gymnasium
    python tests/parity drift                 # energy, momentum and joints over time
    python tests/parity derivatives           # every derivative; finite differences

The tests beside this file state the same as laws, on few inputs.
"""

import gc
import importlib
import pathlib
import sys
import warnings


ROOT = pathlib.Path(__file__).resolve().parents[2]
COMMANDS = {
    "sweep": "sweep",
    "scenes": "scenes",
    "files": "files",
    "colliders": "colliders",
    "environments": "environments",
    "drift": "drift",
    "derivatives": "derivative_tables",
}


def main() -> int:
    """Run the command that the first argument names."""
    if len(sys.argv) < 2 or sys.argv[1] not in COMMANDS:
        print(__doc__)
        return 2
    # The modules of this package and of tests; tables and facts about the machine.
    sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "benchmarks")]
    name = sys.argv.pop(1)
    sys.argv[0] += f" {name}"
    # Tracing creates millions of long-lived objects, which slow down garbage collection.
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)
    # MuJoCo's warning about an attribute of half_cheetah.xml.
    warnings.filterwarnings("ignore", message=".*settotalmass.*")
    return importlib.import_module(f"parity.{COMMANDS[name]}").main() or 0


if __name__ == "__main__":
    raise SystemExit(main())
