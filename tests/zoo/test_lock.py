"""Locks of run folders, also where a file system has none."""

import errno

import pytest

from eqsim_zoo.runs.folders import locked


fcntl = pytest.importorskip("fcntl", reason="other systems lock by another call")


def test_one_process_at_a_time(tmp_path):
    """The lock is free again after the block, also after an exception."""
    with pytest.raises(KeyError), locked(tmp_path):
        with pytest.raises(FileExistsError, match="choose another folder"):
            with locked(tmp_path):
                pass
        raise KeyError
    with locked(tmp_path):
        pass


@pytest.mark.parametrize("code", (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP))
def test_file_systems_without_locks(tmp_path, monkeypatch, code):
    def flock(*_):
        raise OSError(code, "no locks")

    monkeypatch.setattr(fcntl, "flock", flock)
    # A file that an earlier run left does not look like another process.
    (tmp_path / ".lock").touch()
    ran = []
    with pytest.warns(UserWarning, match="has no locks: make sure that no other"):
        with locked(tmp_path):
            ran.append(True)
    assert ran


def test_other_errors_are_raised(tmp_path, monkeypatch):
    def flock(*_):
        raise OSError(errno.EIO, "broken disk")

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(OSError, match="broken disk"):
        with locked(tmp_path):
            pass
