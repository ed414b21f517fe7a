import pytest


@pytest.fixture(autouse=True)
def no_store(monkeypatch):
    """Kernels are compiled anew: an object that an older compiler left would hide what
    this one does."""
    monkeypatch.setenv("EQSIM_KERNELS_CACHE", "")
    monkeypatch.delenv("EQSIM_KERNELS", raising=False)
