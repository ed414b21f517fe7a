"""Values of fields as JSON and as text."""

import ast
import dataclasses
import enum
from typing import Any

import equinox as eqx
import jax
import numpy as np


_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


def encode(value: Any) -> Any:
    """Return a value in types that JSON supports; `build` decodes it."""
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, bool | int | float | str) or value is None:
        return value
    if isinstance(value, jax.Array | np.ndarray | np.generic):
        return _encode_array(np.asarray(value))
    if isinstance(value, tuple | list):
        return [encode(item) for item in value]
    if isinstance(value, eqx.Module):
        parts = {f.name: vars(value)[f.name] for f in dataclasses.fields(value)}
        inner = {name: encode(part) for name, part in parts.items()}
        return {"class": type(value).__name__, "fields": inner}
    try:  # Functions are identified by name, as addresses change.
        return {"object": f"{value.__module__}.{value.__qualname__}"}
    except AttributeError:
        return {"object": type(value).__name__}


def _encode_array(value: np.ndarray) -> Any:
    if value.ndim:
        return [_encode_array(np.asarray(item)) for item in value]
    if value.dtype.kind != "f":
        return value.item()
    # JSON has no infinity.
    return float(str(value)) if np.isfinite(value) else str(value)


def decode(value: Any, like: Any) -> Any:
    """Return the value that `encode` described, with the type of `like`."""
    if isinstance(like, enum.Enum) and isinstance(value, str):
        return type(like)[value]
    if isinstance(value, list) and isinstance(like, tuple):
        first = like[0] if like else None
        each = like if len(like) == len(value) else [first] * len(value)
        return tuple(map(decode, value, each))
    if isinstance(value, str) and isinstance(like, jax.Array | np.ndarray):
        return float(value)
    if isinstance(value, list) and isinstance(like, jax.Array | np.ndarray):
        return np.asarray(value, like.dtype)
    # Values that cannot be decoded are kept if they are unchanged.
    same = isinstance(value, dict) and value == encode(like)
    return like if same else value


def is_opaque(value: Any) -> bool:
    """Return true if a part of a value could not be decoded."""
    several = isinstance(value, tuple) and any(map(is_opaque, value))
    return several or isinstance(value, dict)


def parse_like(text: str, like: Any) -> Any:
    """Return the value of a text, with the type of `like`.

    **Raises:** `ValueError` or `KeyError` if the text has another form.
    """
    if isinstance(like, tuple) or np.ndim(like) == 1:
        words = [word for word in text.strip("()[] ").split(",") if word.strip()]
        first = like[0] if len(like) else None
        return tuple(parse_like(word.strip(), first) for word in words)
    if isinstance(like, enum.Enum):
        return type(like)[text]
    if isinstance(like, str):
        return text
    if like is None:
        try:
            return ast.literal_eval(text)
        except (ValueError, SyntaxError):
            return text
    kind = np.asarray(like).dtype.kind
    if kind == "b":
        if text.lower() not in (*_TRUE, *_FALSE):
            raise ValueError(text)
        return text.lower() in _TRUE
    if kind in "iu":
        value = float(text)  # 1e6 is accepted as an integer.
        if value != int(value):
            raise ValueError(text)
        return int(text) if text.lstrip("+-").isdecimal() else int(value)
    if kind == "f":
        return float(text)
    raise ValueError(text)


def expectation(like: Any) -> str:
    """Return the form of texts that `parse_like` accepts, for an error message."""
    if isinstance(like, tuple) or np.ndim(like) == 1:
        return "values separated by commas"
    if isinstance(like, enum.Enum):
        return f"one of {', '.join(type(like).__members__)}"
    kind = "s" if isinstance(like, str) else np.asarray(like).dtype.kind
    kinds = {
        "b": "true or false",
        "i": "an integer",
        "u": "an integer",
        "f": "a number",
    }
    return kinds.get(kind, "no value, as the field cannot be set as text")
