"""The commands that eqsim-zoo adds to `eqsim`."""

from ._eval import evaluate_run as evaluate_run
from ._record import record_data as record_data
from ._runs import runs as runs
from ._train import resume_run as resume_run
from ._train_command import train_agent as train_agent
from ._view import view_run as view_run
