"""The commands that eqsim-zoo adds to `eqsim`."""

from ._reading import evaluate_run as evaluate_run, runs as runs, view_run as view_run
from ._record import record_data as record_data
from ._train import resume_run as resume_run, train_agent as train_agent
