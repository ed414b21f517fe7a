"""Values of fields as JSON and as text."""

import ast
import dataclasses
import difflib
import enum
import inspect
import re
import typing
from collections.abc import Callable, Iterable
from typing import Any

import equinox as eqx
import jax
import numpy as np

from eqsim import AbstractAgent


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


# Names of one or several fields and a colon, at the start of an item or a sentence.
_NAMES = re.compile(r"(?:^|(?<=[.;] ))((?:`\w+`(?:, | and )?)+): ")
_GREEK = {
    "alpha": "α",
    "beta": "β",
    "gamma": "γ",
    "delta": "δ",
    "epsilon": "ε",
    "eta": "η",
    "lambda": "λ",
    "nu": "ν",
    "rho": "ρ",
    "sigma": "σ",
    "tau": "τ",
    "theta": "θ",
    "pi": "π",
}


def field_descriptions(holder: type) -> dict[str, str]:
    """Return the descriptions of the fields of a class by name, as plain text.

    They are read from the section `**Arguments:**` in the docstrings of the class and of
    its bases. Fields without a description are left out.
    """
    found: dict[str, str] = {}
    for base in reversed(holder.__mro__):
        if issubclass(base, eqx.Module) and base.__doc__:
            found |= _described(inspect.cleandoc(base.__doc__))
    return found


def _described(docstring: str) -> dict[str, str]:
    _, _, rest = docstring.partition("**Arguments:**")
    section = re.split(r"\n\n(?=\S)(?!- )", rest, maxsplit=1)[0]
    found = {}
    for item in re.split(r"^- ", section, flags=re.MULTILINE)[1:]:
        # Names and texts alternate after the text before the first name.
        parts = _NAMES.split(" ".join(item.split()))[1:]
        for names, text in zip(parts[::2], parts[1::2]):
            for name in re.findall(r"\w+", names):
                if name != "and":
                    found[name] = _plain(text.strip())
    return found


def _plain(text: str) -> str:
    """Remove the markup of mathematics and code."""
    text = re.sub(r"\\\\?(\w+)", lambda m: _GREEK.get(m[1], m[1]), text)
    return re.sub(r"[$`{}]", "", text)
