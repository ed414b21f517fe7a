"""Hyperparameters as text: fields of agents in JSON and on the command line."""

import dataclasses
import difflib
import inspect
import typing
from collections.abc import Callable, Iterable
from typing import Any

import equinox as eqx

from eqsim import AbstractAgent

from ._values import decode, encode, expectation, is_opaque, parse_like


# Suffix for the class of a nested module; a keyword cannot be a field name.
_CLASS = "class"


def describe(agent: AbstractAgent) -> dict[str, Any]:
    """Return the fields of an agent by name, in types that JSON supports. Fields of nested
    modules have names such as `sac.discount`, their classes `sac.class`.

    Floats have the shortest representation that restores the same value.
    """
    classes = {f"{path}.{_CLASS}": name for path, name in _held(agent).items()}
    return classes | {name: encode(value) for name, value in _fields(agent).items()}


def build(make: Callable[..., Any], settings: dict[str, Any]) -> AbstractAgent:
    """Build an agent with given fields, as written by `describe` or as Python objects.

    **Arguments:**

    - `make`: class of the agent, or a factory with the same parameters.
    - `settings`: values by field name; other fields have the defaults of `make`.

    **Raises:** `ValueError` if a field does not exist, a value is invalid, or the class of
    a nested module differs from the settings.
    """
    base = make()
    fields, taken = _fields(base), _parameters(make)
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
                f"`{name}` of {type(base).__name__!r} must be "
                f"{expectation(fields[name])}, got {value!r}."
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
    fields = _fields(agent)
    inner = [known for known in fields if known.endswith(f".{name}")]
    return inner[0] if name not in fields and len(inner) == 1 else name


def options(
    agent: AbstractAgent, make: Callable[..., Any]
) -> dict[str, tuple[eqx.Module, Any]]:
    """Return the fields that can be given as text by name, each with the module that holds
    it and its value.

    **Arguments:**

    - `agent`: agent with the values of the fields.
    - `make`: class of the agent, or a factory; only its parameters can be set.
    """
    taken, found = _parameters(make), {}
    for name, value in _fields(agent).items():
        *path, _ = name.split(".")
        holder: Any = agent
        for part in path:
            holder = vars(holder)[part]
        encoded = encode(value)
        items = encoded if isinstance(encoded, list) else [encoded]
        writable = not any(isinstance(x, dict | list) for x in items)
        writable = writable and not _holds_module(holder, name.rpartition(".")[2])
        # The items of an empty tuple have no known type.
        if writable and items and name.partition(".")[0] in taken:
            found[name] = holder, value
    return found


def _holds_module(holder: eqx.Module, name: str) -> bool:
    """Return whether a field is declared to hold a module, even if it is None."""
    (declared,) = (f.type for f in dataclasses.fields(holder) if f.name == name)
    kinds = typing.get_args(declared) or (declared,)
    return any(isinstance(x, type) and issubclass(x, eqx.Module) for x in kinds)


def parse(agent: AbstractAgent, name: str, text: str) -> Any:
    """Parse text as the value of a field.

    The type is that of the field in `agent`: a number, a boolean, a name, or several of
    them separated by commas.

    **Raises:** `ValueError` if there is no such field or the text cannot be parsed.
    """
    fields = _fields(agent)
    if name not in fields:
        raise ValueError(
            unknown(f"{type(agent).__name__!r} has no field", name, fields)
        )
    try:
        return parse_like(text.strip(), fields[name])
    except (ValueError, SyntaxError, KeyError, OverflowError) as error:
        expected = expectation(fields[name])
        raise ValueError(
            f"`{name}={_brief(text)}`: expected {expected}, such as "
            f"{encode(fields[name])}."
        ) from error


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


def _fields(agent: eqx.Module) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in dataclasses.fields(agent):
        name, value = field.name, vars(agent)[field.name]
        if isinstance(value, eqx.Module):
            inner = _fields(value)
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
    held, fields = _held(base), _fields(base)
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
