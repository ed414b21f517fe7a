"""One program on several devices, and by several processes, learns what it learns on one."""

import json
import os
import pathlib
import socket
import subprocess
import sys

import numpy as np
import opengl
import pytest

import eqsim_zoo as zoo


SCRIPT = pathlib.Path(__file__).with_name("parallel.py")
AGENTS = "ppo", "recurrent_ppo", "sac", "shac", "es", "dads", "bc"
slow = pytest.mark.slow


def run(agent, out, devices=1, processes=1):
    """Runs the script in all its processes, side by side."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    start = lambda number: subprocess.Popen(
        [sys.executable, SCRIPT]
        + [str(x) for x in (devices, processes, number, port, agent, out)],
        # XLA's collectives wait in threads of its pool. Two that run at once may take all
        # of them, and then wait forever, where devices are more than cores.
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "NPROC": "32"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    started = [start(number) for number in range(processes)]
    for process in started:
        text, _ = process.communicate(timeout=300)
        assert process.returncode == 0, text


def reports(agent, path, **options):
    run(agent, path, **options)
    return json.loads(path.read_text())


def same(found, expected):
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.keys() == theirs.keys()
        for name in ours:
            np.testing.assert_allclose(ours[name], theirs[name], 1e-9, 1e-9, name)


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.quick_cases("ppo")
def test_eight_devices(agent, tmp_path):
    found = reports(agent, tmp_path / "out.json", devices=8)
    assert found["devices"] == 8
    same(found["reports"], found["alone"])
    # Nothing moves between devices from turn to turn, nor is compiled again for it.
    assert found["first"] == found["last"]
    if agent not in ("es", "bc"):
        assert any("batch" in spec for spec in found["last"])


@slow
@pytest.mark.parametrize("agent", ("ppo", "sac"))
def test_two_processes(agent, tmp_path):
    found = reports(agent, tmp_path / "out.json", devices=2, processes=2)
    assert found["devices"] == 4
    same(found["reports"], reports(agent, tmp_path / "one.json")["reports"])


@slow
def test_two_processes_write_one_run(tmp_path):
    """Equal to that of one process."""
    for folder, processes in (("one", 1), ("two", 2)):
        run("ppo", tmp_path / folder, processes=processes)
    rows = [zoo.runs.read_metrics(tmp_path / folder) for folder in ("one", "two")]
    assert len(rows[0]) == len(rows[1]) > 1
    for a, b in zip(*rows):
        for name in ("steps", "return", "loss", "eval/return"):
            if a.get(name) is not None:
                np.testing.assert_allclose(a[name], b[name], 1e-6, 1e-6, name)
    for folder in ("one", "two"):
        assert (tmp_path / folder / "last.ckpt").exists()
    if not opengl.REASON:
        videos = [sorted((tmp_path / x / "videos").iterdir()) for x in ("one", "two")]
        names = [[path.name for path in folder] for folder in videos]
        assert names[0] == names[1] and len(names[0]) == 2
        assert all(path.stat().st_size > 100 for path in videos[1])
