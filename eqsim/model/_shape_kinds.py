"""Kinds of shapes added by users."""

import dataclasses
from collections.abc import Callable
from typing import Any

from ._kinds import GeomKind


@dataclasses.dataclass(frozen=True)
class ShapeKind:
    """A kind of shape in addition to those of MuJoCo, created by `register_shape`.

    - `name`: name in capitals, as in `GeomKind`.
    - `value`: position in the order of a pair, after all of `GeomKind`.
    """

    name: str
    value: int

    def extents(self, size: Any) -> Any:
        """Compute the half sizes of the bounding box, in the frame of the shape, from
        its sizes."""
        return _EXTENTS[self.name](size)

    def __reduce__(self):
        return _registered, (self.name,)


AnyKind = GeomKind | ShapeKind
"""A kind of shape, built-in or added by a user."""

_KINDS: dict[str, ShapeKind] = {}
_EXTENTS: dict[str, Callable] = {}


def register_shape(name: str, extents: Callable) -> ShapeKind:
    """Add a kind of shape, whose collisions are defined by `register_collider`.

    Such shapes have no MJCF, and can be neither drawn nor hit by rays: each raises an
    error. Other processes, for example those that load a pickle, must register the
    shape as well.

    **Arguments:**

    - `name`: a valid identifier.
    - `extents`: function of the sizes, an `eqsim.spatial.Vec3` of arrays, that returns
        the half sizes of a box around the origin that contains the shape, a `Vec3`, m.

    **Returns:** the kind, for `register_collider` and `replace_shape`.

    **Raises:** `ValueError` if the name is not an identifier, or is taken.
    """
    key = name.upper()
    if not name.isidentifier():
        raise ValueError(f"`name` must be an identifier, got {name!r}.")
    if key in GeomKind.__members__ or key in _KINDS:
        raise ValueError(
            f"A kind of shape named {key} exists already. Choose another name."
        )
    last = max(kind.value for kind in GeomKind)
    _KINDS[key] = ShapeKind(key, last + 1 + len(_KINDS))
    _EXTENTS[key] = extents
    return _KINDS[key]


def _registered(name: str) -> ShapeKind:
    if name not in _KINDS:
        raise ValueError(
            f"The kind of shape {name} is not registered in this process. Call "
            f"`eqsim.model.register_shape({name.lower()!r}, ...)` first."
        )
    return _KINDS[name]


def require_known(kind: AnyKind, what: str) -> None:
    """Raise `ValueError` for a kind added by a user.

    **Arguments:**

    - `what`: end of the message, for instance `"cannot be drawn"`.
    """
    if isinstance(kind, ShapeKind):
        raise ValueError(
            f"Shapes of the registered kind {kind.name} {what}. Use `replace_shape` to "
            "put one of MuJoCo's kinds in its place."
        )
