"""Commands of the zoo, run within this process; see the fixture `names`."""

import pathlib
import tomllib

from eqsim._cli import main


ZOO = pathlib.Path(__file__).parents[2] / "zoo" / "pyproject.toml"
PUBLISHED = tomllib.loads(ZOO.read_text())["project"]["entry-points"]
SHORT = "--steps 120 --episode-length 10 --pool-size 4 --turns 6 --evaluations 2"


def run(capsys, line):
    """Return the exit status, and what was printed, on one line each."""
    status = main(line.split())
    printed = capsys.readouterr()
    return status, " ".join(printed.out.split()), " ".join(printed.err.split())
