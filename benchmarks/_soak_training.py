"""Training that is interrupted again and again, and resumed."""

import collections
import contextlib
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.random as jr
import numpy as np
from _tables import circumstances

import eqsim
import eqsim_zoo as zoo
from eqsim_zoo.runs import read_about, read_metrics
from eqsim_zoo.training import Checkpoint


TURNS = 1500
"""Turns of the whole run, each one compiled call."""
PATIENCE = 300.0
"""Longest time that a process may take to write a row of metrics, s."""
DISK = 20_000_000
"""Size of the disk that is filled, bytes; the run itself takes less."""


def _setting() -> tuple[Any, eqsim.AbstractEnv, zoo.Plan]:
    agent = zoo.PPO(num_envs=16, unroll_length=8, policy_hidden=(8,), value_hidden=(8,))
    plan = zoo.Plan(
        TURNS * 16 * 8,
        episode_length=50,
        pool_size=16,
        turns=TURNS,
        evaluations=20,
        episodes=4,
    )
    return agent, eqsim.make("point_mass"), plan


def work(out: pathlib.Path) -> None:
    """Start the run, or resume it if there is one; print that it has ended."""
    agent, env, plan = _setting()
    told: dict[str, Any] = {"callbacks": [Checkpoint(0.0)]}
    last = out / "last.ckpt"
    if last.exists() and read_about(last)["counters"]["turn"] >= TURNS:
        # Its process was ended after the last checkpoint.
        print("the run has ended")
        return
    if (out / "config.json").exists():
        result = zoo.resume(out, agent=agent, env=env, **told)
    else:
        folder = zoo.RunFolder(out, overwrite=True)
        result = zoo.train(agent, env, plan, out=folder, **told)
    if not result.interrupted:
        print("the run has ended")


def interrupt(number: int, seed: int) -> tuple[dict[str, Any], list[str]]:
    """Train once without and once with interruptions, and compare.

    **Returns:** numbers, and descriptions of what went wrong.
    """
    chance, begin = random.Random(seed), time.monotonic()
    done, problems = collections.Counter(), []
    with tempfile.TemporaryDirectory() as folder, _disk() as disk:
        whole, broken = pathlib.Path(folder) / "whole", disk.path / "run"
        _finish(whole)
        kinds = ["kill -9", "SIGTERM", "two processes"]
        kinds += ["full disk"] if disk.limited else []
        for count in range(number):
            kind = kinds[count % len(kinds)]
            process = _started(broken)
            if process is None:
                break
            time.sleep(chance.uniform(0.0, 0.3))
            problems += _end(process, kind, broken, disk, chance)
            done[kind] += 1
        _finish(broken)
        problems += _differences(whole, broken)
        turns = len(read_metrics(broken))
    report = {
        "where": circumstances(),
        "seconds": round(time.monotonic() - begin, 1),
        "turns": turns,
        "interruptions": dict(done),
    }
    return report, problems


class _Disk:
    """A folder, on a disk of its own if that is possible."""

    def __init__(self, path: pathlib.Path, limited: bool):
        self.path, self.limited = path, limited

    @contextlib.contextmanager
    def full(self) -> Iterator[None]:
        """Fill the disk for a while."""
        ballast = self.path / "ballast"
        try:
            with open(ballast, "wb", buffering=0) as file:
                with contextlib.suppress(OSError):
                    while True:
                        file.write(b"0" * 4096)
            yield
        finally:
            ballast.unlink()


@contextlib.contextmanager
def _disk() -> Iterator[_Disk]:
    with tempfile.TemporaryDirectory() as folder:
        command = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", folder]
        try:
            limited = subprocess.run(command, capture_output=True).returncode == 0
        except OSError:
            limited = False
        try:
            yield _Disk(pathlib.Path(folder), limited)
        finally:
            if limited:
                subprocess.run(["umount", folder], check=True)


def _command(out: pathlib.Path) -> list[str]:
    script = pathlib.Path(__file__).with_name("soak.py")
    return [sys.executable, str(script), "worker", "--out", str(out)]


def _finish(out: pathlib.Path) -> None:
    done = subprocess.run(_command(out), capture_output=True, text=True)
    if "the run has ended" not in done.stdout:
        raise RuntimeError(f"The run does not end:\n{done.stdout}{done.stderr}")


def _rows(out: pathlib.Path) -> int:
    path = out / "metrics.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def _started(out: pathlib.Path) -> subprocess.Popen | None:
    """Return a process that has written rows of metrics; None if the run ended."""
    process = subprocess.Popen(
        _command(out), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    begin, before = time.monotonic(), None
    while time.monotonic() - begin < PATIENCE:
        if process.poll() is not None:
            said = process.communicate()[0]
            if "the run has ended" in said:
                return None
            raise RuntimeError(f"The run does not start again:\n{said}")
        # Rows after the checkpoint are cut at first, so the smallest number counts.
        rows = _rows(out)
        before = rows if before is None else min(before, rows)
        if rows > before + 1:
            return process
        time.sleep(0.01)
    process.kill()
    raise RuntimeError(f"The run wrote nothing in {PATIENCE:.0f} s.")


def _end(
    process: subprocess.Popen,
    kind: str,
    out: pathlib.Path,
    disk: _Disk,
    chance: random.Random,
) -> list[str]:
    """End a process in one of the ways; return what went wrong."""
    if kind == "SIGTERM":
        process.send_signal(signal.SIGTERM)
        said = process.communicate(timeout=PATIENCE)[0]
        return [] if process.returncode == 0 else [f"SIGTERM: {said}"]
    problems = []
    if kind == "two processes":
        # Stopped, the first one holds the folder all the same.
        process.send_signal(signal.SIGSTOP)
        second = subprocess.run(_command(out), capture_output=True, text=True)
        if second.returncode == 0 or "Another process" not in second.stderr:
            problems.append(f"a second process was not refused: {second.stderr[-500:]}")
    if kind == "full disk":
        with disk.full():
            time.sleep(chance.uniform(0.5, 2.0))
            if process.poll() not in (None, 0):
                problems.append("a full disk ended the run")
            process.kill()
            process.wait()
    process.kill()
    process.communicate()
    return problems


def _raw(x: Any) -> np.ndarray:
    is_key = jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key)
    return np.asarray(jr.key_data(x) if is_key else x)


def _differences(one: pathlib.Path, two: pathlib.Path) -> list[str]:
    """Return how two runs differ: states bit by bit, and metrics but for times."""
    agent, env, _ = _setting()
    problems = []
    for best in (False, True):
        states = [
            jax.tree.leaves(
                eqx.filter(
                    zoo.load_run(x, best=best, agent=agent, env=env).state, eqx.is_array
                )
            )
            for x in (one, two)
        ]
        pairs = zip(*states, strict=True)
        if not all(_raw(x).tobytes() == _raw(y).tobytes() for x, y in pairs):
            problems.append(f"the {'best' if best else 'last'} state differs")
    clock = {"seconds", "rate"}
    rows = [
        [
            repr({k: x for k, x in row.items() if k not in clock})
            for row in read_metrics(x)
        ]
        for x in (one, two)
    ]
    if rows[0] != rows[1]:
        problems.append("metrics differ")
    return problems
