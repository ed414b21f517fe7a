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

import eqsim
import eqsim_zoo as zoo
from eqsim.bridges import is_key
from eqsim_zoo.runs import read_about, read_metrics
from eqsim_zoo.training import Checkpoint


TURNS = 40
"""Turns of the run for each interruption, each one compiled call."""
ENDED = "the run has ended"
PATIENCE = 300.0
"""Longest time that a process may take to write a checkpoint, s."""
DISK = 20_000_000
"""Size of the disk that is filled, bytes; the run itself takes less."""


def _setting(number: int) -> tuple[Any, eqsim.AbstractEnv, dict[str, int]]:
    agent = zoo.PPO(num_envs=16, unroll_length=8, policy_hidden=(8,), value_hidden=(8,))
    turns = TURNS * (1 + number)
    plan = dict(
        steps=turns * 16 * 8,
        episode_length=50,
        pool_size=16,
        turns=turns,
        evaluations=turns // 4,
        episodes=4,
    )
    return agent, eqsim.make("point_mass"), plan


def work(out: pathlib.Path, number: int) -> None:
    """Start the run, or resume it if there is one; print that it has ended."""
    agent, env, plan = _setting(number)
    told: dict[str, Any] = {"callbacks": [Checkpoint(0.0)]}
    last = out / "last.ckpt"
    if last.exists() and read_about(last)["counters"]["steps"] >= plan["steps"]:
        # Its process was ended after the last checkpoint.
        print(ENDED)
        return
    if (out / "config.json").exists():
        zoo.resume(out, agent=agent, env=env, **told)
    else:
        zoo.train(zoo.Run(agent, env, **plan), out=out, overwrite=True, **told)
    print(ENDED)


def interrupt(number: int, seed: int) -> tuple[dict[str, Any], list[str]]:
    """Train once without and once with interruptions, and compare.

    **Returns:** numbers, and descriptions of what went wrong.
    """
    chance, begin = random.Random(seed), time.monotonic()
    done, problems = collections.Counter(), []
    with tempfile.TemporaryDirectory() as folder, _disk() as disk:
        whole = _Process(pathlib.Path(folder) / "whole", number)
        broken = _Process(disk.path / "run", number)
        whole.finish()
        kinds = ["kill -9", "SIGTERM", "two processes"]
        kinds += ["full disk, killed", "full disk, freed"] if disk.limited else []
        for count in range(number):
            kind = kinds[count % len(kinds)]
            if not broken.start(chance.randint(1, TURNS // 2)):
                problems.append(f"the run ended before interruption {count}")
                break
            problems += _end(broken, kind, disk, chance)
            done[kind] += 1
        broken.finish()
        problems += _differences(whole.out, broken.out, number)
        turns = len(read_metrics(broken.out))
    report = {
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


class _Process:
    """A process that trains in a folder, again and again."""

    def __init__(self, out: pathlib.Path, number: int):
        script = pathlib.Path(__file__).parent
        self._command = [sys.executable, str(script), "worker", "--out", str(out)]
        self._command += ["--interruptions", str(number)]
        self.out, self._process = out, subprocess.Popen(["true"])

    def finish(self) -> None:
        """Train to the end."""
        said = self.second()
        if ENDED not in said.stdout:
            raise RuntimeError(f"The run does not end:\n{said.stdout}{said.stderr}")

    def second(self) -> subprocess.CompletedProcess:
        """Run a process in the same folder, and wait for it."""
        return subprocess.run(self._command, capture_output=True, text=True)

    def start(self, turns: int) -> bool:
        """Start a process, and wait for a number of turns; false if the run ended."""
        self._process = subprocess.Popen(
            self._command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        return self.wait(turns)

    def wait(self, turns: int) -> bool:
        """Wait until checkpoints of a number of turns are written; false if the run
        ended."""
        begin, wanted = time.monotonic(), self.turn() + turns
        while time.monotonic() - begin < PATIENCE:
            if self._process.poll() is not None:
                said = self._process.communicate()[0]
                if ENDED in said:
                    return False
                raise RuntimeError(f"The run does not go on:\n{said}")
            if self.turn() >= wanted:
                return True
            time.sleep(0.005)
        self.signal(signal.SIGKILL)
        raise RuntimeError(f"The run wrote nothing in {PATIENCE:.0f} s.")

    def turn(self) -> int:
        """Return the turn of the last checkpoint; 0 without one."""
        last = self.out / "last.ckpt"
        return read_about(last)["counters"]["turn"] if last.exists() else 0

    def signal(self, number: int) -> tuple[int, str]:
        """Send a signal, and return the exit code and the output of the process."""
        self._process.send_signal(number)
        said = self._process.communicate(timeout=PATIENCE)[0]
        return self._process.returncode, said

    def stop(self) -> None:
        """Stop the process, which still holds the folder."""
        self._process.send_signal(signal.SIGSTOP)


def _end(process: _Process, kind: str, disk: _Disk, chance: random.Random) -> list[str]:
    """End a process in one of the ways; return what went wrong."""
    problems = []
    if kind == "SIGTERM":
        code, said = process.signal(signal.SIGTERM)
        return [] if code == 128 + signal.SIGTERM else [f"SIGTERM: {said}"]
    if kind == "two processes":
        process.stop()
        second = process.second()
        if second.returncode == 0 or "Another process" not in second.stderr:
            problems.append(f"a second process was not refused: {second.stderr[-500:]}")
    if kind == "full disk, killed":
        with disk.full():
            time.sleep(chance.uniform(0.0, 0.5))
            process.signal(signal.SIGKILL)
    elif kind == "full disk, freed":
        with disk.full():
            time.sleep(chance.uniform(0.0, 0.5))
        if not process.wait(1):
            return problems
    process.signal(signal.SIGKILL)
    return problems


def _raw(x: Any) -> np.ndarray:
    return np.asarray(jr.key_data(x) if is_key(x) else x)


def _differences(one: pathlib.Path, two: pathlib.Path, number: int) -> list[str]:
    """Return how two runs differ: states bit by bit, and metrics but for times."""
    agent, env, _ = _setting(number)
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
