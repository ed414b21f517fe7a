"""Sources of `load_mjcf`: a file, XML text, an `MjSpec`, an `MjModel`."""

import copy
import os
import pathlib
import threading
import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ._expansion import check_expansion
from ._mujoco import engine


# The handlers of MuJoCo and of Python are those of the process: two threads that replace and
# restore them at the same time would leave one of the replacements in place.
_HANDLERS = threading.Lock()


class Compiled(NamedTuple):
    """A source compiled by MuJoCo.

    **Arguments:**

    - `label`: name of the source in messages.
    - `model`: a private `mujoco.MjModel`.
    - `warnings`: warnings of MuJoCo.
    """

    label: str
    model: Any
    warnings: tuple[str, ...]


def compile_source(
    source: Any, assets: Mapping[str, bytes | str] | None = None
) -> Compiled:
    """Compile a source with MuJoCo, without output to the terminal or to log files.

    **Arguments:**

    - `source`: path, XML text, `mujoco.MjSpec` or `mujoco.MjModel`.
    - `assets`: contents of files that a path or a text refers to, by name.

    **Raises:** `FileNotFoundError`, `TypeError`, or `ValueError` with MuJoCo's message.
    """
    mujoco = engine()
    label, shown, build = _reader(source, _assets(assets))
    try:
        model, said = _build(build)
        return Compiled(label, model, said)
    except (ValueError, RuntimeError, mujoco.FatalError) as error:
        raise ValueError(
            f"MuJoCo cannot read {label}{shown}. It says:\n{error}\n"
            "Correct the file at the place named."
        ) from error


def _build(build: Callable[[], Any]) -> tuple[Any, tuple[str, ...]]:
    """Return a model and the warnings of MuJoCo; one thread at a time."""
    mujoco, said = engine(), []
    with _HANDLERS:
        # Without a handler, MuJoCo prints, and writes a log file to the working directory.
        handler = mujoco.get_mju_user_warning()
        mujoco.set_mju_user_warning(said.append)
        try:
            # An MjSpec issues Python warnings.
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                model = build()
            said += [str(warning.message) for warning in caught]
        finally:
            mujoco.set_mju_user_warning(handler)
    return model, tuple(said)


def _assets(assets: Mapping[str, bytes | str] | None) -> dict[str, bytes] | None:
    if assets is None:
        return None
    if not isinstance(assets, Mapping):
        raise TypeError(
            "`assets` must be a dictionary of file contents by name, got "
            f"{type(assets).__name__}."
        )
    contents = {}
    for name, content in assets.items():
        if isinstance(content, str):
            content = content.encode()
        if not isinstance(content, bytes):
            raise TypeError(
                f"`assets[{name!r}]` must be bytes or text, got "
                f"{type(content).__name__}. Pass the content of the file."
            )
        contents[str(name)] = content
    return contents


def _reader(
    source: Any, assets: dict[str, bytes] | None
) -> tuple[str, str, Callable[[], Any]]:
    """Return the name of the source in messages, its representation, and a function
    that reads it."""
    mujoco = engine()
    if isinstance(source, (mujoco.MjModel, mujoco.MjSpec)):
        kind = type(source).__name__
        if assets is not None:
            raise ValueError(
                "`assets` can only be passed with a path or XML text, but the source "
                f"is an {kind}, which has its own assets. Leave `assets` out."
            )
        if isinstance(source, mujoco.MjSpec):
            return "The MjSpec", "", source.compile
        # Arrays of the model may be shared with JAX, so copy it.
        return "The MjModel", "", lambda: copy.copy(source)
    if not isinstance(source, (str, os.PathLike)):
        raise TypeError(
            "load_mjcf takes the path of a file, XML text, a mujoco.MjSpec or a "
            f"mujoco.MjModel, but got {type(source).__name__}."
        )
    shown = f" ({str(source)[:200]!r})"
    text = str(source).lstrip("\ufeff \t\r\n")
    if isinstance(source, str) and text.startswith("<"):
        check_expansion("The MJCF text", text, pathlib.Path.cwd(), assets)
        read = lambda: mujoco.MjModel.from_xml_string(text, assets)
        return "The MJCF text", shown, read
    path = pathlib.Path(source).expanduser()
    if not path.is_file():
        raise FileNotFoundError(
            f"There is no MJCF file {str(source)!r} (looked in {pathlib.Path.cwd()}). "
            "Pass the path of an existing file, or the XML text itself, which starts "
            "with '<'."
        )
    check_expansion(path.name, path.read_text("latin-1"), path.parent, assets)
    read = lambda: mujoco.MjModel.from_xml_path(str(path), assets)
    return path.name, shown, read
