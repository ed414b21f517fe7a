"""Description of an environment in `config.json`, and comparison with another one."""

import dataclasses
import hashlib
import json
import pathlib
import warnings
from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from eqsim import AbstractEnv
from eqsim.wrappers import AbstractWrapper, nested_envs

from ._values import encode


# Longest JSON text that is stored itself; of longer ones, a digest is.
_LONGEST = 60
# Most entries of an array that is stored itself.
_ENTRIES = 4
# Most differences that a warning names.
_SHOWN = 8
# Known zeros and ones of a robot: a hint to the compiler, without effect on results.
_WITHOUT_EFFECT = ("sys.pattern",)


class EnvironmentWarning(UserWarning):
    """An environment differs from that of a run."""


def env_name(env: AbstractEnv | None) -> str:
    """Return the names of an environment and its wrappers."""
    if env is None:
        return "no environment"
    return " in ".join([type(layer).__name__ for layer in nested_envs(env)][::-1])


def env_values(env: AbstractEnv | None) -> dict[str, Any]:
    """Return the settings of an environment and the parameters of its robot by name, such
    as `sys.links.mass` or `ActionRepeat.repeat`, in types that JSON supports. Arrays and
    other long values are stored as digests.

    Floating-point numbers are described in single precision, so that a run can be loaded
    with and without `jax_enable_x64`.
    """
    found: dict[str, Any] = {}
    seen: dict[str, int] = {}
    for layer in [] if env is None else nested_envs(env):
        name = type(layer).__name__
        seen[name] = seen.get(name, 0) + 1
        # The second of two wrappers of one class is `Name#2`.
        name = name if seen[name] == 1 else f"{name}#{seen[name]}"
        for field in dataclasses.fields(layer):
            if field.name == "env" and isinstance(layer, AbstractWrapper):
                continue
            robot = field.name in ("sys", "pipeline")
            path = field.name if robot else f"{name}.{field.name}"
            found |= _parts(path, vars(layer)[field.name])
    return {name: _brief(value) for name, value in found.items()}


def _parts(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Return the values in a field with their names."""
    if path in _WITHOUT_EFFECT:
        return
    if isinstance(value, eqx.Module):
        yield f"{path}.class", type(value).__name__
        for field in dataclasses.fields(value):
            yield from _parts(f"{path}.{field.name}", vars(value)[field.name])
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _parts(f"{path}[{key!r}]", item)
    elif isinstance(value, tuple | list) and any(map(_is_structured, value)):
        for k, item in enumerate(value):
            yield from _parts(f"{path}[{k}]", item)
    else:
        yield path, value


def _is_structured(value: Any) -> bool:
    array = isinstance(value, jax.Array | np.ndarray)
    return array or isinstance(value, eqx.Module | dict)


def _brief(value: Any) -> Any:
    """Return a value in types that JSON supports, or its digest if it is long."""
    if not isinstance(value, jax.Array | np.ndarray):
        encoded = encode(value)
        text = json.dumps(encoded, default=repr)
        return encoded if len(text) <= _LONGEST else _digest(text.encode())
    if isinstance(value, jax.Array) and not value.is_fully_addressable:
        return {"shape": list(value.shape)}  # Other processes hold parts of it.
    is_key = jnp.issubdtype(value.dtype, jax.dtypes.prng_key)
    array = np.asarray(jr.key_data(value) if is_key else value)
    if array.dtype.kind == "f":
        # The sum makes zeros positive.
        array = array.astype(np.float32) + np.float32(0.0)
    elif array.dtype.kind in "iu":
        array = array.astype(np.int64)
    if array.size <= _ENTRIES:
        return encode(array)
    return _digest(repr(array.shape).encode() + array.tobytes())


def _digest(data: bytes) -> dict[str, str]:
    return {"digest": hashlib.sha256(data).hexdigest()[:16]}


def warn_if_different(
    folder: pathlib.Path, config: dict[str, Any], env: AbstractEnv | None
) -> None:
    """Warn if an environment differs from that of a run, with the names of what differs.

    **Arguments:**

    - `folder`: folder of the run.
    - `config`: content of its `config.json`. Values that it does not have, such as those of
        fields added since, are not compared.
    """
    if env is None or config["env"] == env_name(None):
        return
    lines = []
    if config["env"] != env_name(env):
        lines.append(f"  environment: {config['env']} in the run, {env_name(env)} here")
    stored, ours = config.get("environment"), env_values(env)
    for name, theirs in (stored if isinstance(stored, dict) else {}).items():
        if name in ours and ours[name] != theirs:
            lines.append(f"  {name}: {_pair(theirs, ours[name])}")
    if not lines:
        return
    if len(lines) > _SHOWN:
        lines[_SHOWN:] = [f"  and {len(lines) - _SHOWN} more"]
    warnings.warn(
        f"The environment differs from that of the run in {str(folder)!r}:\n"
        + "\n".join(lines)
        + "\nThe agent was trained in the environment of the run, and may fail in this one. "
        "Pass the same environment, unless the difference is intended.",
        EnvironmentWarning,
        stacklevel=4,
    )


def _pair(theirs: Any, ours: Any) -> str:
    if isinstance(theirs, dict) or isinstance(ours, dict):
        return "other values in the run than here"
    return f"{theirs} in the run, {ours} here"
