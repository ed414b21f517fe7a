"""Modules in parts, compiled by several processes."""

import sys

import jax.numpy as jnp
import numpy as np
import pytest
from kernels.harness import compare, Kernel

from eqsim._kernels import _compile, _object, _schedule
from eqsim._kernels._llvm import LLVMModule


@pytest.fixture
def small_parts(monkeypatch, nothing_compiled):
    """Many parts, of few operations each."""
    monkeypatch.setattr(_compile, "LEAST_PART", 2000)
    monkeypatch.setattr(_compile, "_processors", lambda: 4)
    monkeypatch.setattr(_schedule, "LONGEST_CHUNK", 20)
    monkeypatch.setenv("EQSIM_KERNELS_CACHE", "")


@pytest.fixture
def made(monkeypatch):
    """The parts of all modules."""
    found, split = [], LLVMModule.split

    def noted(module, count):
        found.append(split(module, count))
        return found[-1]

    monkeypatch.setattr(LLVMModule, "split", noted)
    return found


def function(x, k):
    """With helpers, tables of numbers, and loops."""
    table = jnp.asarray(np.linspace(0.0, 1.0, 80), x.dtype)
    y = x
    for _ in range(30):
        y = jnp.sin(y) * jnp.exp(-y * y) + jnp.arctan2(y, x)
    return y, table[k] * y, jnp.sum(jnp.tanh(table[:, None] * y[None]), axis=0)


def arguments():
    generator = np.random.default_rng(0)
    x = generator.normal(size=(21, 4)).astype(np.float32)
    return x, generator.integers(0, 80, (21, 4)).astype(np.int32)


joined = pytest.mark.skipif(
    not _object.joins_objects(_compile.machine().triple),
    reason="objects are joined on Linux with x86-64 only",
)


@joined
def test_parts_are_the_whole(small_parts, made):
    compare(function, *arguments())
    assert max(map(len, made)) == 4


@joined
def test_without_processes(small_parts, made, monkeypatch):
    """Where no process can be started, this one compiles all parts."""
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    compare(function, *arguments())
    assert max(map(len, made)) == 4


@joined
def test_processes_that_fail(small_parts, monkeypatch):
    monkeypatch.setattr(_object, "__file__", "/nowhere/file.py")
    compare(function, *arguments())


def test_objects_are_kept_apart():
    data = b"".join(len(x).to_bytes(8, "little") + x for x in (b"one", b"", b"three"))
    assert list(_compile.objects(data)) == [b"one", b"", b"three"]


def test_small_modules_are_whole(made):
    Kernel(lambda x: (x + 41.0,))(np.zeros((3, 1), np.float32))
    assert all(len(parts) == 1 for parts in made)
