"""Machine code of a kernel: LLVM through llvmlite, and a store of objects on disk.

No pass of LLVM's optimizer runs: the graph is already free of dead code, common
subexpressions and constants, and the passes gain nothing (measured). Code generation at
level 1 gives code within a few per cent of level 2; level 0 compiles three times faster
to code that is 10 to 50 % slower.
"""

import ctypes
import functools as ft
import hashlib
import importlib.metadata
import logging
import os
import pathlib
import sys
import tempfile
import threading
from collections.abc import Callable
from typing import Any

from . import _emit_object, _parts
from ._assumptions import maker, REQUEST


_LOG = logging.getLogger("eqsim.kernels")
_LOCK = threading.RLock()


class CompileError(Exception):
    """LLVM is missing, or refuses the code."""


@ft.lru_cache(maxsize=1)
def _llvm() -> Any:
    try:
        return _emit_object.initialized()
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


def object_code(text: str) -> bytes:
    """Return the object files of a module; see `_parts.py`."""
    _llvm()
    with _LOCK:
        try:
            return _parts.objects_of(text, _settings())
        except RuntimeError as error:
            raise CompileError(f"LLVM cannot compile the kernel: {error}") from error


def object_code_apart(text: str) -> bytes:
    """Return the object file of a module, compiled in a process of its own."""
    try:
        return _parts.object_apart(text, _settings())
    except RuntimeError as error:
        raise CompileError(f"LLVM cannot compile a function: {error}") from error


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
            target = _emit_object.target_machine(*_settings(), False)
            self._engine = llvm.create_mcjit_compiler(empty, target)
            try:
                # LLVM reads the bytes until the end: they must not be freed before.
                parts = list(_parts.objects(code))
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
