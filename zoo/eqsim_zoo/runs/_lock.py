"""Lock of a run folder."""

import pathlib
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import filelock


@contextmanager
def locked(folder: pathlib.Path | None) -> Iterator[None]:
    """Lock an existing run folder against writes of other processes. The operating system
    releases the lock when the process ends.

    **Raises:** `FileExistsError` if another process holds the lock.
    """
    if folder is None:
        yield
        return
    lock = filelock.FileLock(folder / ".lock", blocking=False)
    try:
        lock.acquire()
    except filelock.Timeout as error:
        raise FileExistsError(
            f"Another process is writing to the run in {str(folder)!r}. Wait until it "
            "ends, or choose another folder."
        ) from error
    except NotImplementedError:
        warnings.warn(
            f"The file system of {str(folder)!r} has no locks: make sure that no other "
            "process writes to this run.",
            stacklevel=4,
        )
    try:
        yield
    finally:
        lock.release()
