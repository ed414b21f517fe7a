"""Large modules in parts, which LLVM compiles at the same time.

The chunks of a kernel (see `_schedule.py`) call nobody but helpers. They are distributed
over several modules; each gets the helpers and tables that its chunks need. Objects are
kept one after the other, each after its size.
"""

import concurrent.futures
import os
import re
import struct
import subprocess
import sys
from collections.abc import Iterator

from . import _emit_object


Settings = tuple[str, str, str, int]
"""Triple, processor, features and level, as `_emit_object.emit_object` takes them."""

LEAST = 2_000_000
"""Characters of a part: for less, a process is not worth its start."""

_CHUNK = re.compile(
    r"^define internal (void @c\d+\(ptr noalias %S\).*?^}\n?)", re.M | re.S
)
_HELPER = re.compile(r"^define internal [^@]*(@[\w.]+)\(.*?^}\n?", re.M | re.S)
_TABLE = re.compile(r"^(@[\w.]+) = [^\n]*\n", re.M)
_NAME = re.compile(r"@[\w.]+")


def objects_of(text: str, settings: Settings) -> bytes:
    """Compile the object files of a module in parallel.

    **Raises:** `RuntimeError` if LLVM refuses the text.
    """
    several = _emit_object.joins_objects(settings[0])
    parts = split(text, min(_processors(), len(text) // LEAST) if several else 1)
    with concurrent.futures.ThreadPoolExecutor(len(parts)) as pool:
        others = [
            pool.submit(_in_a_process, part, settings, True) for part in parts[1:]
        ]
        found = [_emit_object.emit_object(parts[0], *settings, len(parts) > 1)]
        found += [other.result() for other in others]
    return b"".join(map(_sized, found))


def object_apart(text: str, settings: Settings) -> bytes:
    """Compile the object file of a module in a process of its own."""
    return _sized(_in_a_process(text, settings, False))


def _sized(code: bytes) -> bytes:
    return struct.pack("<Q", len(code)) + code


def objects(data: bytes) -> Iterator[bytes]:
    """Return the single objects."""
    start = 0
    while start < len(data):
        (size,) = struct.unpack_from("<Q", data, start)
        yield data[start + 8 : start + 8 + size]
        start += 8 + size


def split(text: str, count: int) -> list[str]:
    """Split a module into at most `count` modules. The first one keeps everything
    except the chunks of the others."""
    chunks = list(_CHUNK.finditer(text)) if count > 1 else []
    if len(chunks) < 2:
        return [text]
    shares: list[list[str]] = [[] for _ in range(count)]
    size, total = 0, sum(len(chunk[0]) for chunk in chunks)
    for chunk in chunks:
        shares[min(size * count // total, count - 1)].append(chunk[1])
        size += len(chunk[0])
    rest = text[: chunks[0].start()] + text[chunks[-1].end() :]
    between = zip(chunks, chunks[1:])
    rest += "".join(text[a.end() : b.start()] for a, b in between)
    own = "".join(f"define hidden {chunk}\n" for chunk in shares[0])
    away = [chunk for share in shares[1:] for chunk in share]
    known = "".join(f"declare hidden void {_head(chunk)}\n" for chunk in away)
    preamble = text[: chunks[0].start()]
    modules = [known + rest + own]
    return modules + [_part(preamble, share) for share in shares[1:] if share]


def _head(chunk: str) -> str:
    """Return the name and the arguments of a chunk."""
    name = _NAME.search(chunk)
    assert name is not None, "a chunk has a name"
    return f"{name[0]}(ptr noalias)"


def _part(preamble: str, chunks: list[str]) -> str:
    """Return a module of chunks, with the part of the preamble that they need."""
    own = "".join(f"define hidden {chunk}\n" for chunk in chunks)
    helpers = {found[1]: found[0] for found in _HELPER.finditer(preamble)}
    tables = {found[1]: found[0] for found in _TABLE.finditer(preamble)}
    available = {**tables, **helpers}
    needed: dict[str, str] = {}
    names = set(_NAME.findall(own))
    while names:
        new = {
            n: available[n] for n in sorted(names) if n in available and n not in needed
        }
        needed.update(new)
        names = {name for text in new.values() for name in _NAME.findall(text)}
        names -= set(needed)
    lines = preamble.splitlines()
    declared = [line for line in lines if line.startswith("declare ")]
    return "\n".join([*declared, *needed.values(), own])


def _processors() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


def _in_a_process(text: str, settings: Settings, joined: bool) -> bytes:
    """Compile an object file in a separate process, or here if that fails."""
    given = [*map(str, settings), "joined" if joined else "alone"]
    command = [sys.executable, _emit_object.__file__, *given]
    try:
        done = subprocess.run(command, input=text.encode(), capture_output=True)
    except OSError:
        return _emit_object.emit_object(text, *settings, joined)
    if done.returncode or not done.stdout:
        return _emit_object.emit_object(text, *settings, joined)
    return done.stdout
