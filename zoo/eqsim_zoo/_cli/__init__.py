"""The commands that eqsim-zoo adds to `eqsim`.

`_train_commands` has `eqsim train` and `eqsim resume`, `_reading` the commands that read runs
(`eval`, `runs compare`, and what `eqsim view` shows), `_policy_commands` those that write
datasets and policies and replay them, and `_printing` tables and messages of all of them.
Nothing imports this package.
"""

from ._policy_commands import (
    export_run as export_run,
    record_data as record_data,
    replay_policy as replay_policy,
)
from ._reading import (
    evaluate_run as evaluate_run,
    runs as runs,
    view_run as view_run,
)
from ._train_commands import resume_run as resume_run, train_agent as train_agent
