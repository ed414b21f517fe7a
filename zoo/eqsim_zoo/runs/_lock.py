"""Lock of a run folder."""

import errno
import pathlib
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import filelock


# Errors of file systems without locks, such as some network file systems.
_WITHOUT_LOCKS = errno.ENOSYS, errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP


@contextmanager
def locked(folder: pathlib.Path | None) -> Iterator[None]:
    """Lock an existing run folder against writes of other processes. The operating system
    releases the lock when the process ends. A file system without locks causes a warning,
    and the run continues.

    **Raises:** `FileExistsError` if another process holds the lock; `OSError` if the lock
    file cannot be opened.
    """
    if folder is None:
        yield
        return
    path = folder / ".lock"
    lock = filelock.FileLock(path, blocking=False, fallback_to_soft=False)
    try:
        lock.acquire()
    except filelock.Timeout as error:
        raise FileExistsError(
            f"Another process is writing to the run in {str(folder)!r}. Wait until it "
            "ends, or choose another folder."
        ) from error
    except (OSError, NotImplementedError) as error:
        if isinstance(error, OSError) and error.errno not in _WITHOUT_LOCKS:
            raise
        warnings.warn(
            f"The file system of {str(folder)!r} has no locks: make sure that no other "
            "process writes to this run.",
            stacklevel=4,
        )
    try:
        yield
    finally:
        lock.release()
