"""The command `eqsim`."""

from ._main import main as main
