"""Machine code of a kernel: LLVM through llvmlite, a store of objects on disk, and the keys
of the store.

No pass of LLVM's optimizer runs: the graph is already free of dead code, common
subexpressions and constants, and the passes gain nothing (measured). Code generation at
level 1 gives code within a few per cent of level 2; level 0 compiles three times faster
to code that is 10 to 50 % slower.
"""

import concurrent.futures
import ctypes
import dataclasses
import enum
import functools as ft
import hashlib
import importlib.metadata
import logging
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from . import _object
from ._assumptions import maker, REQUEST
from ._llvm import LLVMModule


_LOG = logging.getLogger("eqsim.kernels")
_LOCK = threading.RLock()


class CompileError(Exception):
    """LLVM is missing, or refuses the code."""


@ft.lru_cache(maxsize=1)
def _llvm() -> Any:
    try:
        return _object.initialized()
    except ImportError as error:
        raise CompileError(
            "llvmlite is not installed. Run `pip install llvmlite`."
        ) from error


class Machine:
    """The processor that code is made for.

    - `features`: LLVM's names of its features, such as `+avx2`.
    - `lanes`: bytes of its vector registers.
    """

    def __init__(self, name: str, features: str, triple: str):
        self.name, self.features, self.triple = name, features, triple
        own = set(features.split(","))
        self.bytes = 64 if "+avx512f" in own else 32 if "+avx2" in own else 16
        self.key = f"{triple} {name} {features}"

    def width(self, dtype: str) -> int:
        """Return the number of lanes of a vector of numbers of a type."""
        return max(2, self.bytes // int(dtype[1:]))


@ft.lru_cache(maxsize=1)
def machine() -> Machine:
    """Return the processor of this computer."""
    llvm = _llvm()
    features = llvm.get_host_cpu_features().flatten()
    return Machine(llvm.get_host_cpu_name(), features, llvm.get_process_triple())


@ft.lru_cache(maxsize=1)
def versions() -> str:
    """Return all versions that affect the code of a jaxpr: LLVM, JAX and this package."""
    digest = hashlib.sha256()
    for file in sorted(pathlib.Path(__file__).parent.glob("*.py")):
        digest.update(file.read_bytes())
    named = [f"{x} {importlib.metadata.version(x)}" for x in ("llvmlite", "jaxlib")]
    return " ".join((*named, digest.hexdigest()))


def level() -> int:
    """Return LLVM's optimization level, 0 to 3, from `EQSIM_KERNELS_LEVEL`."""
    text = os.environ.get("EQSIM_KERNELS_LEVEL", "1")
    if text not in ("0", "1", "2", "3"):
        raise ValueError(f"`EQSIM_KERNELS_LEVEL` must be 0, 1, 2 or 3, got {text!r}.")
    return int(text)


def object_code(module: LLVMModule) -> bytes:
    """Return the object files of a module, one after the other, each after its size.

    The chunks of a large module are distributed over several modules, which processes
    compile at the same time. One LLVM compiles one module at a time in a process.
    """
    _llvm()
    several = _object.joins_objects(machine().triple)
    count = min(_processors(), module.size // LEAST_PART) if several else 1
    with _LOCK:
        try:
            parts = module.split(count)
            joined = len(parts) > 1
            with concurrent.futures.ThreadPoolExecutor(len(parts)) as pool:
                others = [
                    pool.submit(_in_a_process, part, joined) for part in parts[1:]
                ]
                found = [_object.emit_object(parts[0], *_settings(), joined)]
                found += [other.result() for other in others]
        except RuntimeError as error:
            raise CompileError(f"LLVM cannot compile the kernel: {error}") from error
    return b"".join(map(_sized, found))


def object_code_apart(module: LLVMModule) -> bytes:
    """Return the object file of a module, compiled in a process of its own."""
    try:
        return _sized(_in_a_process(module.text(), False))
    except RuntimeError as error:
        raise CompileError(f"LLVM cannot compile a function: {error}") from error


LEAST_PART = 2_000_000
"""Characters of a part: for less, a process is not worth its start."""


def _processors() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


def _in_a_process(text: str, joined: bool) -> bytes:
    """Compile an object file in a separate process, or here if that fails."""
    given = [*map(str, _settings()), "joined" if joined else "alone"]
    command = [sys.executable, _object.__file__, *given]
    try:
        done = subprocess.run(command, input=text.encode(), capture_output=True)
        if done.stdout and not done.returncode:
            return done.stdout
    except OSError:
        pass
    return _object.emit_object(text, *_settings(), joined)


def _sized(code: bytes) -> bytes:
    return struct.pack("<Q", len(code)) + code


def objects(data: bytes) -> Iterator[bytes]:
    """Return the single objects."""
    start = 0
    while start < len(data):
        (size,) = struct.unpack_from("<Q", data, start)
        yield data[start + 8 : start + 8 + size]
        start += 8 + size


def define(symbol: str, address: int) -> None:
    """Let machine code that is loaded later call a function."""
    with _LOCK:
        _llvm().add_symbol(symbol, address)


def _settings() -> tuple[str, str, str, int]:
    host = machine()
    return host.triple, host.name, host.features, level()


class Loaded:
    """Machine code in memory; `address` is that of its entry."""

    def __init__(self, code: bytes, entry: str = "handler"):
        llvm = _llvm()
        with _LOCK:
            empty = llvm.parse_assembly("")
            empty.triple = machine().triple
            target = _object.target_machine(*_settings(), False)
            self._engine = llvm.create_mcjit_compiler(empty, target)
            try:
                # LLVM reads the bytes until the end: they must not be freed before.
                parts = list(objects(code))
                files = [llvm.ObjectFileRef.from_data(part) for part in parts]
                for file in files:
                    self._engine.add_object_file(file)
                self._engine.finalize_object()
                self.address = self._engine.get_function_address(entry)
                self._request = self._engine.get_global_value_address(REQUEST)
            except RuntimeError as error:
                raise CompileError(f"the object cannot be loaded: {error}") from error
        if not self.address:
            raise CompileError("the object has no entry")

    @property
    def pointer(self) -> ctypes.c_void_p:
        """The entry, for XLA."""
        return ctypes.c_void_p(self.address)

    def otherwise(self, make: Callable[[], int]) -> None:
        """Set the function that returns the entry of the kernel for arguments that violate
        the assumptions of this one."""
        self._make = maker(make)
        place = ctypes.c_void_p.from_address(self._request)
        place.value = ctypes.cast(self._make, ctypes.c_void_p).value

    def close(self) -> None:
        """Free the code, which must not be called afterwards."""
        with _LOCK:
            self._engine.close()


# The store.


def _user_cache() -> pathlib.Path:
    """Return the system's folder for a user's caches."""
    home = pathlib.Path.home()
    if sys.platform == "win32":
        return pathlib.Path(os.environ.get("LOCALAPPDATA", home / "AppData" / "Local"))
    if sys.platform == "darwin":
        return home / "Library" / "Caches"
    return pathlib.Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache")


def folder() -> pathlib.Path | None:
    """Return the folder of compiled objects: `EQSIM_KERNELS_CACHE`, or the user's
    cache; None if the variable is empty or the user has no home folder."""
    named = os.environ.get("EQSIM_KERNELS_CACHE")
    if named == "":
        return None
    try:
        return pathlib.Path(named) if named else _user_cache() / "eqsim" / "kernels"
    except RuntimeError:
        return None


def stored(key: str) -> bytes | None:
    """Return the object under a key; None if there is none or the file is damaged."""
    place = folder()
    if place is None:
        return None
    try:
        data = (place / f"{key}.o").read_bytes()
    except OSError:
        return None
    digest, code = data[:32], data[32:]
    return code if hashlib.sha256(code).digest() == digest else None


def store(key: str, code: bytes) -> None:
    """Store an object. The file is written atomically, also if other processes write
    it."""
    place = folder()
    if place is None:
        return
    try:
        place.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=place, suffix=".part")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(hashlib.sha256(code).digest() + code)
            os.replace(name, place / f"{key}.o")
        except BaseException:
            os.unlink(name)
            raise
    except OSError as error:
        _LOG.warning("eqsim: kernels are not kept in %s: %s", place, error)


def key_of(*parts: str) -> str:
    """Return the key of a kernel, a digest of everything that affects its code."""
    text = "\n".join([versions(), machine().key, str(level()), *parts])
    return hashlib.sha256(text.encode()).hexdigest()[:40]


# Fingerprints: names of jaxprs that are the same in every process.


def fingerprint(closed: ClosedJaxpr) -> str:
    """Return a digest of everything in a jaxpr that affects its results."""
    return _Digest().closed(closed)


def _hashed(parts: list[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _array(value) -> str:
    array = np.ascontiguousarray(value)
    return f"{array.dtype}{array.shape}{hashlib.sha256(array.tobytes()).hexdigest()}"


_PLAIN = frozenset({type(None), bool, int, float, str})


class _Digest:
    """Digests of jaxprs. Equal parts of a program are mostly the same object, which is
    digested once."""

    def __init__(self) -> None:
        # The jaxprs themselves are kept too: a number is that of a living object.
        self.known: dict[int, tuple[Jaxpr, str]] = {}
        self.types: dict[Any, str] = {}

    def closed(self, closed: ClosedJaxpr) -> str:
        """Return the digest of a jaxpr and its constants."""
        return _hashed([*map(_array, closed.consts), self.jaxpr(closed.jaxpr)])

    def jaxpr(self, jaxpr: Jaxpr) -> str:
        """Return the digest of a jaxpr."""
        found = self.known.get(id(jaxpr))
        if found is None:
            found = jaxpr, _hashed(self._parts(jaxpr))
            self.known[id(jaxpr)] = found
        return found[1]

    def _type(self, aval) -> str:
        found = self.types.get(aval)
        if found is None:
            found = self.types[aval] = aval.str_short()
        return found

    def _parts(self, jaxpr: Jaxpr) -> list[str]:
        numbers: dict[Any, int] = {}

        def name(var) -> str:
            number = numbers.setdefault(var, len(numbers))
            return f"{number}:{self._type(var.aval)}"

        def atom(x) -> str:
            if not isinstance(x, Literal):
                return str(numbers[x])
            return f"{self._type(x.aval)}{np.asarray(x.val).tobytes().hex()}"

        parts = [name(var) for var in (*jaxpr.constvars, *jaxpr.invars)]
        parts.append("|")
        for eqn in jaxpr.eqns:
            parts.append(eqn.primitive.name)
            parts += map(atom, eqn.invars)
            for key in sorted(eqn.params):
                parts.append(key)
                self._param(eqn.params[key], parts)
            parts += map(name, eqn.outvars)
        return [*parts, "->", *map(atom, jaxpr.outvars)]

    def _param(self, value, parts: list[str]) -> None:
        """Add a parameter of an equation. Functions, such as the rules of `custom_jvp`,
        are left out: they say how to differentiate, and nothing about the value."""
        if type(value) in _PLAIN:
            parts.append(repr(value))
        elif isinstance(value, ClosedJaxpr):
            parts.append(self.closed(value))
        elif isinstance(value, Jaxpr):
            parts.append(self.jaxpr(value))
        elif isinstance(value, np.ndarray | jax.Array):
            parts.append(_array(value))
        elif isinstance(value, tuple | list):
            for item in value:
                self._param(item, parts)
            parts.append(f"#{len(value)}")
        elif isinstance(value, enum.Enum):
            parts.append(str(value))
        elif isinstance(value, int | float | str | np.dtype | np.generic):
            parts.append(repr(value))
        elif dataclasses.is_dataclass(value) and not isinstance(value, type):
            for field in dataclasses.fields(value):
                self._param(vars(value)[field.name], parts)
