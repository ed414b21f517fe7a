"""Integer arrays as static fields: constants of a robot that are not differentiated."""

import dataclasses
import functools as ft
import hashlib

import numpy as np


class AbstractConnectivity:
    """A set of integer arrays that is hashable by content.

    JAX hashes the static fields of a robot in every call of a compiled function. The
    hash is computed once, so its cost does not depend on the size of the arrays.
    Subclasses are dataclasses whose fields are integer arrays.
    """

    def __post_init__(self):
        for name, value in vars(self).items():
            # Copied, because the array becomes read-only.
            array = np.array(value, np.int32)
            array.setflags(write=False)
            object.__setattr__(self, name, array)

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays by name."""
        names = (field.name for field in dataclasses.fields(self))  # pyright: ignore
        return {name: vars(self)[name] for name in names}

    @ft.cached_property
    def digest(self) -> bytes:
        """Hash of the content."""
        found = hashlib.sha256(type(self).__name__.encode())
        for name, array in self.arrays.items():
            found.update(f"{name}{array.shape}".encode())
            found.update(array.tobytes())
        return found.digest()

    @ft.cached_property
    def _hash(self) -> int:
        # Python's hash of bytes differs between processes, but copies keep this value.
        return int.from_bytes(self.digest[:7], "little")

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other) -> bool:
        if self is other:
            return True
        return type(self) is type(other) and self.digest == other.digest

    def __repr__(self) -> str:
        sizes = (f"{name}: {array.size}" for name, array in self.arrays.items())
        return f"{type(self).__name__}({', '.join(sizes)})"
