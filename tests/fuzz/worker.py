"""A process that makes inputs from seeds, gives them to eqsim, and reports the outcomes.

Inputs that crash, hang or fill the memory end this process, and not that of the tests.
Usage: `python worker.py FOLDER`; requests and reports are lines of JSON.
"""

import contextlib
import importlib
import json
import os
import pathlib
import platform
import random
import resource
import sys
import time
import traceback
import warnings


_HERE = pathlib.Path(__file__).resolve().parent
# Python puts the folder of a script first on the path, where its modules would hide others.
sys.path[0] = str(_HERE.parent)
_MEMORY = 4 << 30
"""Bytes that the process may map beyond those it has after its imports."""
_GROWTH = 512 << 20
"""Bytes of memory in use by which one input may raise the peak."""
_EXECUTES = (
    "pickle.find_class",
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "subprocess.Popen",
)
_CACHES = tuple(
    os.path.realpath(os.environ[name]) + os.sep
    for name in ("JAX_COMPILATION_CACHE_DIR", "EQSIM_KERNELS_CACHE")
    if os.environ.get(name)
)
"""Folders of compiled programs, which a program that took long to compile is written to."""
_CHANGES = ("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link", "os.symlink")


class Watch:
    """Events of Python that no input may cause: writes outside a folder, execution."""

    def __init__(self, inside: pathlib.Path):
        self.inside, self.found, self.on = str(inside) + os.sep, [], False
        sys.addaudithook(self._hook)

    def _hook(self, event, args):
        if not self.on:
            return
        if event in _EXECUTES:
            self.found.append(f"{event} {args!r:.300}")
        elif event == "open":
            path, mode, flags = args
            writes = isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR)
            if writes and not self._allowed(path):
                self.found.append(f"writes to {path!r}")
        elif event in _CHANGES and not all(
            self._allowed(x) for x in args if isinstance(x, str | bytes | os.PathLike)
        ):
            self.found.append(f"{event} {args!r}")

    def _allowed(self, path) -> bool:
        if isinstance(path, int):
            return True
        # Importing a module that is new stores its bytecode.
        full = os.path.realpath(os.fsdecode(path))
        in_cache = "__pycache__" in full and not full.startswith(self.inside)
        in_cache = in_cache or full.startswith(_CACHES)
        return full.startswith(self.inside) or full == os.devnull or in_cache


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def clear(text: str) -> str:
    """Why a message is not clear; empty if it is."""
    if len(text) > 60_000:
        return f"has a message of {len(text)} characters"
    if "Traceback (most" in text:
        return "has a message with a traceback"
    return "" if " " in text.strip() and len(text) >= 12 else "has no message"


def judge(kind, seed: int, watch: Watch) -> tuple[str, str]:
    """The outcome of an input (`accepted`, `refused`, `broken`), and a description."""
    watch.found.clear()
    before, refusal, problem = peak(), "", ""
    try:
        watch.on = True
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                refusal = kind.attempt(random.Random(seed)) or ""
        finally:
            watch.on = False
    except kind.REFUSALS as error:
        refusal = str(error)
        unclear = clear(refusal)
        if unclear or isinstance(error, RecursionError | UnicodeError):
            text = "".join(traceback.format_exception(error)[-6:])
            problem = f"{type(error).__name__} {unclear}\n{text}"
    except BaseException as error:
        problem = "".join(traceback.format_exception(error))[-4000:]
    if watch.found:
        problem += "; ".join(watch.found[:5])
    if (growth := peak() - before) > _GROWTH:
        problem += f"memory grows by {growth / 2**20:.0f} MiB"
    if problem:
        return "broken", problem
    return ("refused", refusal) if refusal else ("accepted", "")


def main() -> None:
    root = pathlib.Path(sys.argv[1]).resolve()
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # What the code under test prints is not part of a report.
    with contextlib.suppress(ImportError):
        importlib.import_module(
            "glfw"
        )  # Starts a process; models of Gymnasium need it.
    platform.processor()  # Runs `uname` on its first call; libraries call it when needed.
    kinds, limited = {}, set()
    watch = Watch(root)
    for line in sys.stdin:
        name, seed = json.loads(line)
        if name not in kinds:
            folder = root / name
            (folder / "here").mkdir(parents=True, exist_ok=True)
            kinds[name] = importlib.import_module(f"fuzz.{name}").Kind(folder)
            replies.write(json.dumps(["ready", ""]) + "\n")
        kind, folder = kinds[name], root / name
        os.chdir(folder / "here")
        if name not in limited:
            mapped = int(open("/proc/self/statm").read().split()[0]) * 4096
            limit = mapped + _MEMORY
            resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
            limited.add(name)
        begin = time.monotonic()
        outcome, text = judge(kind, seed, watch)
        left = sorted(os.listdir(folder / "here"))
        if left != sorted(kind.WRITES if kind.WRITES is not None else left):
            outcome, text = "broken", f"{text} leaves {left[:5]} in its working folder"
        seconds = time.monotonic() - begin
        replies.write(json.dumps([outcome, text[:6000], round(seconds, 3)]) + "\n")


if __name__ == "__main__":
    main()
