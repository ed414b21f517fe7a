"""Validation of names and numbers given by users."""

import difflib
from collections.abc import Iterable

from .._registry import ENVS, PIPELINES, Registry
from ..envs import AbstractEnv, is_import_path, make
from ..pipelines import AbstractPipeline
from ..randomize import AbstractRandomizer, presets


class UsageError(Exception):
    """The arguments are invalid; the message gives the reason."""


def environment(name: str, pipeline: str | None) -> AbstractEnv:
    """Create an environment with a pipeline, by name or as `module:object`."""
    if not is_import_path(name):
        _known("environment", name, ENVS)
    if pipeline is not None:
        _known("pipeline", pipeline, PIPELINES)
    try:
        return make(name, pipeline=pipeline)
    except (TypeError, ValueError) as error:
        raise UsageError(f"Cannot make {name!r}: {error}") from error


def physics(name: str | None) -> AbstractPipeline | None:
    """Return the pipeline with a name; None without a name."""
    if name is None:
        return None
    _known("pipeline", name, PIPELINES)
    return PIPELINES.get(name)()


def preset(env: str, name: str) -> AbstractRandomizer:
    """Return a randomization preset by name."""
    found = presets(plain(env))
    _check("preset of randomization", name, found)
    return found[name]


def plain(env: str) -> str:
    """Return the name of an environment without the name of its package."""
    return env.rpartition(":")[2]


def at_least_one(option: str, value: int) -> None:
    """Raise `UsageError` unless the number is positive."""
    if value < 1:
        raise UsageError(f"`{option}` must be at least 1, got {value}.")


def _known(what: str, name: str, registry: Registry) -> None:
    if name not in {**registry.plugins(), **registry.hidden()}:
        _check(what, name, registry.names())


def _check(what: str, name: str, known: Iterable[str]) -> None:
    names = sorted(known)
    if name in names:
        return
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    hint = f" Did you mean {' or '.join(map(repr, close))}?" if close else ""
    raise UsageError(f"There is no {what} {name!r}.{hint} Known: {', '.join(names)}.")
