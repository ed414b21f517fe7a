"""From what the library raises to sentences."""

from collections.abc import Iterator
from contextlib import contextmanager

from eqsim.plugins import CommandError

from ..runs._checkpoint import CheckpointError
from ..training._result import UnsavedError


@contextmanager
def sentences() -> Iterator[None]:
    """Print expected errors without a traceback, and end the command."""
    try:
        yield
    except (CheckpointError, UnsavedError) as error:
        raise CommandError(str(error), 1) from error
    except (ValueError, FileExistsError, FileNotFoundError, ImportError) as error:
        raise CommandError(str(error), 2) from error
