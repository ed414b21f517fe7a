"""The commands that eqsim-zoo adds to `eqsim`.

`_train` has `eqsim train` and `eqsim resume`, `_reading` the commands that read runs (`eval`,
`runs compare`, and what `eqsim view` shows), `_record` writes datasets, `_export_commands`
writes policies and replays them, and `_printing` has tables and messages of all of them.
Nothing imports this package.
"""

from ._export_commands import (
    export_run as export_run,
    replay_policy as replay_policy,
)
from ._reading import (
    evaluate_run as evaluate_run,
    runs as runs,
    view_run as view_run,
)
from ._record import record_data as record_data
from ._train_commands import resume_run as resume_run, train_agent as train_agent
