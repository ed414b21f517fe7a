"""A wrong shape is rejected; otherwise a dead hook would go unnoticed."""

import os
import pkgutil
import subprocess
import sys

import jax.numpy as jnp
import jaxtyping
import pytest

import eqsim


CODE = """
import eqsim
import jax.numpy as jnp
eqsim.State(q=jnp.zeros((2, 2)), qd=jnp.zeros(2), act=jnp.zeros(0))
"""


def test_the_tests_run_with_checks():
    with pytest.raises(jaxtyping.TypeCheckError):
        eqsim.State(q=jnp.zeros((2, 2)), qd=jnp.zeros(2), act=jnp.zeros(0))


def test_all_modules_are_checked(pytestconfig):
    """All but the kernel compiler and what hands it programs, which take no arrays."""
    checked = pytestconfig.getoption("--jaxtyping-packages").split(",")
    modules = {
        f"eqsim.{module.name}" for module in pkgutil.iter_modules(eqsim.__path__)
    }
    assert modules - set(checked) == {"eqsim._kernels", "eqsim._batching"}


@pytest.mark.parametrize("value, rejected", (("1", True), ("0", False), (None, False)))
@pytest.mark.slow  # `test_arguments.py` runs a process without checks.
def test_environment_variable(value, rejected):
    environment = {k: v for k, v in os.environ.items() if k != "EQSIM_TYPECHECK"}
    if value is not None:
        environment["EQSIM_TYPECHECK"] = value
    command = [sys.executable, "-c", CODE]
    run = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert (run.returncode != 0) == rejected, run.stderr
    assert ("TypeCheckError" in run.stderr) == rejected
