"""The function that the shell calls, which checks that the extra `cli` is installed."""

import importlib.util
import sys
from collections.abc import Sequence


_NEEDED = ("matplotlib", "PIL", "rich", "tyro")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command `eqsim`.

    **Arguments:**

    - `argv`: arguments of `eqsim`; by default those of the shell.

    **Returns:** the exit status: 0; 1 if something failed, a package is missing, or the
    reader of the output has exited; 2 if the arguments are invalid.
    """
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        print(
            f"The command `eqsim` needs {', '.join(missing)}. Run "
            "`pip install 'eqsim[cli]'`.",
            file=sys.stderr,
        )
        return 1
    from ._app import run

    return run(sys.argv[1:] if argv is None else argv)
