"""The command `eqsim`.

Files in reading order: `_main` (called by the shell), `_app` (every command with its options
and help, and how one is found and run), `_inventory` (names given by users, `list` and
`show`), then what the other commands do: `_simulation_commands` (`rollout`, `control`),
`_view_command`, `_identify_command` and `_plugin_commands`. No other package imports this
one.
"""

from ._main import main as main
