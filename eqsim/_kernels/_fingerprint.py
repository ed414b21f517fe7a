"""A name for a jaxpr that is the same in every process."""

import dataclasses
import enum
import hashlib
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal


def fingerprint(closed: ClosedJaxpr) -> str:
    """Return a digest of everything in a jaxpr that affects its results."""
    return _Digest().closed(closed)


def _hashed(parts: list[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _array(value) -> str:
    array = np.ascontiguousarray(value)
    return f"{array.dtype}{array.shape}{hashlib.sha256(array.tobytes()).hexdigest()}"


_PLAIN = frozenset({type(None), bool, int, float, str})


class _Digest:
    """Digests of jaxprs. Equal parts of a program are mostly the same object, which is
    digested once."""

    def __init__(self) -> None:
        # The jaxprs themselves are kept too: a number is that of a living object.
        self.known: dict[int, tuple[Jaxpr, str]] = {}
        self.types: dict[Any, str] = {}

    def closed(self, closed: ClosedJaxpr) -> str:
        """Return the digest of a jaxpr and its constants."""
        return _hashed([*map(_array, closed.consts), self.jaxpr(closed.jaxpr)])

    def jaxpr(self, jaxpr: Jaxpr) -> str:
        """Return the digest of a jaxpr."""
        found = self.known.get(id(jaxpr))
        if found is None:
            found = jaxpr, _hashed(self._parts(jaxpr))
            self.known[id(jaxpr)] = found
        return found[1]

    def _type(self, aval) -> str:
        found = self.types.get(aval)
        if found is None:
            found = self.types[aval] = aval.str_short()
        return found

    def _parts(self, jaxpr: Jaxpr) -> list[str]:
        numbers: dict[Any, int] = {}

        def name(var) -> str:
            number = numbers.setdefault(var, len(numbers))
            return f"{number}:{self._type(var.aval)}"

        def atom(x) -> str:
            if not isinstance(x, Literal):
                return str(numbers[x])
            return f"{self._type(x.aval)}{np.asarray(x.val).tobytes().hex()}"

        parts = [name(var) for var in (*jaxpr.constvars, *jaxpr.invars)]
        parts.append("|")
        for eqn in jaxpr.eqns:
            parts.append(eqn.primitive.name)
            parts += map(atom, eqn.invars)
            for key in sorted(eqn.params):
                parts.append(key)
                self._param(eqn.params[key], parts)
            parts += map(name, eqn.outvars)
        return [*parts, "->", *map(atom, jaxpr.outvars)]

    def _param(self, value, parts: list[str]) -> None:
        """Add a parameter of an equation. Functions, such as the rules of `custom_jvp`,
        are left out: they say how to differentiate, and nothing about the value."""
        if type(value) in _PLAIN:
            parts.append(repr(value))
        elif isinstance(value, ClosedJaxpr):
            parts.append(self.closed(value))
        elif isinstance(value, Jaxpr):
            parts.append(self.jaxpr(value))
        elif isinstance(value, np.ndarray | jax.Array):
            parts.append(_array(value))
        elif isinstance(value, tuple | list):
            for item in value:
                self._param(item, parts)
            parts.append(f"#{len(value)}")
        elif isinstance(value, enum.Enum):
            parts.append(str(value))
        elif isinstance(value, int | float | str | np.dtype | np.generic):
            parts.append(repr(value))
        elif dataclasses.is_dataclass(value) and not isinstance(value, type):
            for field in dataclasses.fields(value):
                self._param(vars(value)[field.name], parts)
