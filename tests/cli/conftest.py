"""The command `eqsim`, within this process."""

import pytest

from eqsim._cli import main


@pytest.fixture
def run(capsys):
    """Function that runs the words of a line, and returns the exit status and what was
    printed, on one line each."""

    def run(*argv):
        words = argv[0].split() if len(argv) == 1 else map(str, argv)
        status = main([*words])
        printed = capsys.readouterr()
        return status, " ".join(printed.out.split()), " ".join(printed.err.split())

    return run
