import pytest

from eqsim._kernels import _arrays, _compile, _programs


@pytest.fixture(autouse=True)
def no_store(monkeypatch):
    """Kernels are compiled anew: an object that an older compiler left would hide what
    this one does."""
    monkeypatch.setenv("EQSIM_KERNELS_CACHE", "")
    monkeypatch.delenv("EQSIM_KERNELS", raising=False)


@pytest.fixture
def nothing_compiled(monkeypatch, request):
    """No kernel is in memory, and those of this test have names of their own, as XLA keeps
    what it knows by name."""
    monkeypatch.setattr(_programs, "_LOADED", {})
    monkeypatch.setattr(_programs, "_KERNELS", {})
    monkeypatch.setattr(_compile, "versions", lambda: request.node.nodeid)


@pytest.fixture(params=("unrolled", "large"))
def size(request, monkeypatch):
    """Runs a test a second time with all arrays of more than four elements in memory,
    where loops compute them. The mark keeps apart the kernels of both."""
    if request.param == "large":
        monkeypatch.setattr(_arrays, "LARGEST_UNROLLED", 4)
        monkeypatch.setattr(_compile, "versions", lambda: "large arrays")
    return request.param
