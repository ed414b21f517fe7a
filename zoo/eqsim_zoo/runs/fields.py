"""Hyper-parameters as JSON: `describe` writes the fields of an agent, `build` reads them.

Fields of nested modules have names such as `sac.discount`, their classes `sac.class`.
"""

import dataclasses
import difflib
import enum
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import equinox as eqx
import jax
import numpy as np

from eqsim import AbstractAgent


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


# Suffix for the class of a nested module; a keyword cannot be a field name.
_CLASS = "class"


def describe(agent: AbstractAgent) -> dict[str, Any]:
    """Return the fields of an agent by name, in types that JSON supports. Fields of nested
    modules have names such as `sac.discount`, their classes `sac.class`.

    Floats have the shortest representation that restores the same value.
    """
    classes = {f"{path}.{_CLASS}": name for path, name in _held(agent).items()}
    return classes | {name: encode(value) for name, value in fields_of(agent).items()}


def build(make: Callable[..., Any], settings: dict[str, Any]) -> AbstractAgent:
    """Build an agent with given fields, as written by `describe` or as Python objects.

    **Arguments:**

    - `make`: class of the agent, or a factory with the same parameters.
    - `settings`: values by field name; other fields have the defaults of `make`.

    **Raises:** `ValueError` if a field does not exist, a value is invalid, or the class of
    a nested module differs from the settings.
    """
    base = make()
    fields, taken = fields_of(base), _parameters(make)
    _check_held(base, settings)
    classes = {f"{path}.{_CLASS}" for path in _held(base)}
    changed = {}
    for name, value in settings.items():
        if name in classes:
            continue
        if name not in fields:
            raise ValueError(
                unknown(f"{type(base).__name__!r} has no field", name, fields)
            )
        try:
            value = decode(value, fields[name])
        except (KeyError, OverflowError, TypeError, ValueError) as error:
            raise ValueError(
                f"`{name}` of {type(base).__name__!r} must be of the form "
                f"{encode(fields[name])!r}, got {value!r}."
            ) from error
        if encode(value) == encode(fields[name]):
            continue
        if name.partition(".")[0] not in taken or is_opaque(value):
            shown = value if is_opaque(value) else encode(value)
            raise ValueError(
                f"`{name}` of {type(base).__name__!r} is {shown!r}, which cannot be "
                "restored from text. Create the agent in Python and pass it."
            )
        changed[name] = value
    try:
        return make(**_nested(base, changed)) if changed else base
    except (OverflowError, TypeError) as error:
        given = ", ".join(f"{name}={value!r}" for name, value in changed.items())
        raise ValueError(
            f"{type(base).__name__!r} cannot be made with {given}: {error}."
        ) from error


def _nested(base: eqx.Module, changed: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments for the class of `base`. Names such as `sac.discount` change
    fields of nested modules."""
    passed, inner = {}, {}
    for name, value in changed.items():
        first, dot, rest = name.partition(".")
        if dot:
            inner.setdefault(first, {})[rest] = value
        else:
            passed[name] = value
    for name, values in inner.items():
        held = vars(base)[name]
        passed[name] = type(held)(**{**vars(held), **_nested(held, values)})
    return passed


def full_name(agent: AbstractAgent, name: str) -> str:
    """Return the full name of a field: `sac.discount` for `discount`, if the agent has no
    such field and the name is unique among nested modules."""
    fields = fields_of(agent)
    inner = [known for known in fields if known.endswith(f".{name}")]
    return inner[0] if name not in fields and len(inner) == 1 else name


def has_default(agent: AbstractAgent, name: str) -> bool:
    """Return whether a field, such as `sac.discount`, has the default of its class."""
    holder: Any = agent
    *path, last = name.split(".")
    for part in path:
        holder = vars(holder)[part]
    for field in dataclasses.fields(holder):
        if field.name == last and field.default is not dataclasses.MISSING:
            default = field.metadata.get("converter", lambda x: x)(field.default)
            return encode(default) == encode(vars(holder)[last])
    return False


def unknown(what: str, name: str, known: Iterable[str]) -> str:
    """Return a message about an unknown name, with similar known names."""
    name, names = _brief(name), sorted(known)
    close = difflib.get_close_matches(name, names, n=2, cutoff=0.5)
    hint = f" Did you mean {' or '.join(map(repr, close))}?" if close else ""
    return f"{what} {name!r}.{hint} Known: {', '.join(names) or 'none'}."


def _brief(text: str) -> str:
    """Return the beginning of a long text, for messages."""
    return text if len(text) <= 200 else f"{text[:200]}..."


def fields_of(agent: eqx.Module) -> dict[str, Any]:
    """Return the fields of an agent and of its nested modules by name."""
    found: dict[str, Any] = {}
    for field in dataclasses.fields(agent):
        name, value = field.name, vars(agent)[field.name]
        if isinstance(value, eqx.Module):
            inner = fields_of(value)
            found |= {f"{name}.{own}": held for own, held in inner.items()}
        else:
            found[name] = value
    return found


def _held(agent: eqx.Module) -> dict[str, str]:
    """Return the classes of all nested modules of an agent, by path."""
    found: dict[str, str] = {}
    for field in dataclasses.fields(agent):
        value = vars(agent)[field.name]
        if isinstance(value, eqx.Module):
            inner = {f"{field.name}.{own}": name for own, name in _held(value).items()}
            found |= {field.name: type(value).__name__} | inner
    return found


def _check_held(base: eqx.Module, settings: dict[str, Any]) -> None:
    """Raise `ValueError` if the classes of nested modules differ from the settings."""
    held, fields = _held(base), fields_of(base)
    for name, value in settings.items():
        path, _, last = name.rpartition(".")
        # A field without a module has a value instead of a class.
        path = path if last == _CLASS else name
        if path in held:
            here = held[path]
        elif path in fields and last == _CLASS:
            here = encode(fields[path])
        else:
            continue
        if here != value:
            raise ValueError(
                f"`{path}` of {type(base).__name__!r} is {value!r} in the settings, but "
                f"{here!r} in the agent, and classes cannot be set by name. Create the "
                "agent in Python and pass it."
            )


def _parameters(make: Callable[..., Any]) -> set[str]:
    return {*inspect.signature(make).parameters}
