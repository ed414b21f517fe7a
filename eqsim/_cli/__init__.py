"""The command `eqsim`.

`main` is called by the shell. Files in reading order: `_app` (every command with its options
and help, and how one is found and run), `_common` (names given by users, tables), then what
the commands do: `_inventory` (`list`, `show`), `_simulation_commands` (`rollout`,
`control`), `_view_command`, `_identify_command` and `_plugin_commands`. No other package
imports this one.
"""

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
