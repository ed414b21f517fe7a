"""A name for a jaxpr that is the same in every process."""

import dataclasses
import enum
import hashlib
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal


def fingerprint(closed: ClosedJaxpr) -> str:
    """A digest of everything in a jaxpr that decides what it computes."""
    digest = hashlib.sha256()
    _closed(closed, digest)
    return digest.hexdigest()


def _closed(closed: ClosedJaxpr, digest) -> None:
    for const in closed.consts:
        _array(const, digest)
    _jaxpr(closed.jaxpr, digest)


def _array(value, digest) -> None:
    array = np.asarray(value)
    digest.update(f"{array.dtype}{array.shape}".encode())
    digest.update(np.ascontiguousarray(array).tobytes())


def _jaxpr(jaxpr: Jaxpr, digest) -> None:
    numbers: dict[Any, int] = {}

    def name(var) -> str:
        number = numbers.setdefault(var, len(numbers))
        return f"{number}:{var.aval.str_short()}"

    def atom(x) -> str:
        if not isinstance(x, Literal):
            return str(numbers[x])
        return f"{x.aval.str_short()}{np.asarray(x.val).tobytes().hex()}"

    head = [name(var) for var in (*jaxpr.constvars, *jaxpr.invars)]
    digest.update(",".join(head).encode())
    for eqn in jaxpr.eqns:
        read = ",".join(atom(x) for x in eqn.invars)
        digest.update(f"{eqn.primitive.name}({read})".encode())
        for key in sorted(eqn.params):
            digest.update(f"{key}=".encode())
            _param(eqn.params[key], digest)
        digest.update(",".join(name(var) for var in eqn.outvars).encode())
    digest.update(("->" + ",".join(atom(x) for x in jaxpr.outvars)).encode())


def _param(value, digest) -> None:
    """A parameter of an equation. Functions, such as the rules of `custom_jvp`, are left
    out: they say how to differentiate, and nothing about the value."""
    if isinstance(value, ClosedJaxpr):
        _closed(value, digest)
    elif isinstance(value, Jaxpr):
        _jaxpr(value, digest)
    elif isinstance(value, np.ndarray | jax.Array):
        _array(value, digest)
    elif isinstance(value, tuple | list):
        for item in value:
            _param(item, digest)
        digest.update(f"#{len(value)};".encode())
    elif isinstance(value, enum.Enum):
        digest.update(f"{value};".encode())
    elif value is None or isinstance(value, int | float | str | np.dtype | np.generic):
        digest.update(f"{value!r};".encode())
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            _param(vars(value)[field.name], digest)
