"""Objects on disk, and compilation by several threads and processes at once."""

import json
import os
import subprocess
import sys
import threading

import jax.numpy as jnp
import numpy as np
import pytest
from kernels.harness import Kernel

from eqsim._kernels import _compile, _programs
from eqsim._kernels._llvm import LLVMModule, Uses


def polynomial(k: int):
    """A function whose code depends on `k`."""

    def evaluated(x):
        y = x
        for n in range(k):
            y = jnp.sin(y) * x + n
        return (y,)

    return evaluated


X = np.linspace(-1.0, 1.0, 21).astype(np.float32)


def expected(k: int) -> np.ndarray:
    y = X
    for n in range(k):
        y = np.sin(y) * X + np.float32(n)
    return y


@pytest.fixture
def place(tmp_path, monkeypatch, nothing_compiled):
    """A store of its own."""
    monkeypatch.setenv("EQSIM_KERNELS_CACHE", str(tmp_path / "store"))
    return tmp_path / "store"


def objects(place) -> list:
    return sorted(place.glob("*"))


def loads(key="key", text=None) -> bytes | None:
    """The code of a key, where compiling is an error if `text` is None."""

    def compile() -> LLVMModule:
        if text is None:
            raise AssertionError("compiled")
        return text

    loaded = _programs._load(key, compile)
    loaded.close()
    return _compile.stored(key)


def module(name: str, result: int = 0) -> LLVMModule:
    text = f"define i32 @{name}() {{\n  ret i32 {result}\n}}\n"
    return LLVMModule(1, [], {}, text, Uses())


MODULE = module("handler")


def test_an_object_is_kept(place):
    first = loads(text=MODULE)
    assert first and loads() == first
    assert [path.suffix for path in objects(place)] == [".o"]


def damage(data: bytes) -> dict[str, bytes]:
    """What may become of a file."""
    flipped = bytearray(data)
    flipped[len(data) // 2] ^= 1
    return {
        "empty": b"",
        "cut off": data[: len(data) // 2],
        "only a digest": data[:32],
        "a flipped bit": bytes(flipped),
        "text": b"no object at all",
        "with more at the end": data + b"x",
        "zeros": bytes(len(data)),
    }


@pytest.mark.parametrize("kind", damage(bytes(100)))
def test_a_damaged_object_is_compiled_again(place, kind):
    good = loads(text=MODULE)
    (path,) = objects(place)
    path.write_bytes(damage(path.read_bytes())[kind])
    assert _compile.stored("key") is None
    assert loads(text=MODULE) == good == loads()


def test_an_object_that_does_not_load_is_compiled_again(place):
    """The digest is right, but the code is that of nothing."""
    _compile.store("key", _compile.object_code(module("other")))
    assert loads(text=MODULE) == loads()


@pytest.mark.usefixtures("nothing_compiled")
def test_a_folder_that_cannot_be_written_is_said(tmp_path, monkeypatch, caplog):
    file = tmp_path / "file"
    file.write_text("in the way")
    monkeypatch.setenv("EQSIM_KERNELS_CACHE", str(file))
    (got,) = Kernel(polynomial(3))(X)
    assert np.allclose(got, expected(3), atol=1e-6)
    assert str(file) in caplog.text


def test_no_store(place, monkeypatch):
    monkeypatch.setenv("EQSIM_KERNELS_CACHE", "")
    loads_twice = [_programs._load("key", lambda: MODULE) for _ in range(2)]
    assert all(loaded.address for loaded in loads_twice)
    assert not place.exists()


def test_what_decides_the_code_decides_the_key(place, monkeypatch):
    keys = {_compile.key_of("a"), _compile.key_of("b"), _compile.key_of("a", "b")}
    monkeypatch.setenv("EQSIM_KERNELS_LEVEL", "2")
    keys.add(_compile.key_of("a"))
    monkeypatch.setattr(_compile, "versions", lambda: "another compiler")
    keys.add(_compile.key_of("a"))
    assert len(keys) == 5


# Processes.

SCRIPT = """
import json, os, sys
import jax, jax.numpy as jnp
import eqsim
from eqsim import _kernels
from eqsim._kernels import _compile, _programs

compiled = []
code = _programs.object_code
_programs.object_code = lambda text: compiled.append(1) or code(text)

def work():
    env = eqsim.make("point_mass")
    sys, state = env.sys, env.pipeline.init(env.sys)
    state = env.pipeline.step(sys, state, jnp.ones(sys.nu))
    return {"compiled": len(compiled), "q": state.q.tolist()}
"""


def script(ending: str, place, **variables) -> str:
    environment = {
        **os.environ,
        "EQSIM_KERNELS_CACHE": str(place),
        "JAX_COMPILATION_CACHE_DIR": "",
        **variables,
    }
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT + ending],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


PRINTED = "print(json.dumps(work()))"


def test_another_process_compiles_nothing(tmp_path):
    """Names of kernels do not depend on the process, nor on its hash seed."""
    first = json.loads(script(PRINTED, tmp_path, PYTHONHASHSEED="1"))
    second = json.loads(script(PRINTED, tmp_path, PYTHONHASHSEED="2"))
    assert first["compiled"] > 0 and second["compiled"] == 0
    assert first["q"] == second["q"]


FORKS = """
children = []
for k in range(4):
    pid = os.fork()
    if pid == 0:
        done = work()
        os._exit(0 if done["q"] == done["q"] else 1)
    children.append(pid)
assert all(os.waitpid(pid, 0)[1] == 0 for pid in children)
print(json.dumps(work()))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.slow  # test_another_process_compiles_nothing shares one too.
def test_forked_processes_share_a_store(tmp_path):
    """They write the same objects at once. They are forked before JAX has started."""
    last = json.loads(script(FORKS, tmp_path))
    assert last["compiled"] == 0
    assert {path.suffix for path in tmp_path.iterdir()} == {".o"}


def test_threads(place):
    """Eight threads compile and run at once, the same kernels and others."""
    wrong: list = []
    start = threading.Barrier(8)

    def work(number: int) -> None:
        start.wait()
        for k in (number % 3, 3 + number):
            for _ in range(5):
                (got,) = Kernel(polynomial(1 + k))(X)
                if not np.allclose(got, expected(1 + k), atol=1e-5):
                    wrong.append((number, k))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert {path.suffix for path in objects(place)} == {".o"}


def memory() -> tuple[int, int]:
    """Resident bytes, and pieces of memory, of this process."""
    with open("/proc/self/statm") as file:
        pages = int(file.read().split()[1])
    with open("/proc/self/maps") as file:
        return pages * os.sysconf("SC_PAGE_SIZE"), sum(1 for _ in file)


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc/self/maps"), reason="needs Linux")
def test_compilation_leaks_nothing():
    """5,000 kernels, compiled, loaded and closed."""

    def compile(count: int, start: int) -> None:
        for k in range(start, start + count):
            code = _compile.object_code(module("handler", k))
            _compile.Loaded(code).close()

    compile(500, 0)
    before = memory()
    compile(5_000, 500)
    after = memory()
    assert after[0] - before[0] < 5_000 * 1_000
    assert after[1] - before[1] < 100
