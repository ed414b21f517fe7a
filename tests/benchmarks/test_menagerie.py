"""Measurements of `benchmarks/menagerie.py`, with a robot that compiles quickly."""

import argparse
import json
import pathlib
import sys

import _menagerie_runs as runs
import menagerie
import numpy as np
import pytest


FILE = """
<mujoco>
  <option timestep="0.002"/>
  <worldbody>
    <geom type="plane" size="1 1 1"/>
    <body pos="0 0 .1">
      <joint type="slide" axis="0 0 1"/>
      <joint name="hinge" axis="0 1 0" damping=".1"/>
      <geom size=".1"/>
    </body>
  </worldbody>
  <actuator><motor joint="hinge"/></actuator>
  <keyframe><key qpos="-.001 .5" ctrl=".2"/></keyframe>
</mujoco>"""
BATCH = 3


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    folder = tmp_path_factory.mktemp("menagerie")
    (folder / "ball.xml").write_text(FILE)
    return runs.Task(str(folder / "ball.xml"), str(folder / "ball.npz"), BATCH)


@pytest.fixture(scope="module")
def facts(task):
    return runs.write_states(task)


@pytest.fixture(autouse=True)
def short_timings(monkeypatch):
    monkeypatch.setattr(runs, "SAMPLE", 1e-3)


def test_states(task, facts):
    assert facts == {"nv": 2, "contacts": 1.0}
    start = runs.read_states(task)
    assert start.q.shape == start.qd.shape == start.last.shape == (BATCH, 2)
    assert len(np.unique(start.q[:, 1])) == len(np.unique(start.ctrl)) == BATCH
    assert np.all(np.abs(start.ctrl - 0.2) <= runs.SCALE)
    few = runs.read_states(task._replace(batch=1))
    assert few.q.tolist() == start.q[:1].tolist()


def test_peer_in_a_process(task, facts):
    """A child process returns the results; errors of the child name their cause."""
    command = [sys.executable, runs.__file__]
    found = runs.child(command, "mujoco", task, {}, 60.0)
    assert found["error"] == 0.0
    steps = BATCH * runs.STEPS
    assert found["steps_per_second"] * found["seconds"] == pytest.approx(steps)
    with pytest.raises(runs.Failed, match="missing.npz"):
        runs.child(command, "mujoco", task._replace(states="missing.npz"), {}, 60.0)


def test_eqsim(task, facts):
    assert menagerie.count_pairs(task) == {"pairs": 1}
    found = menagerie.throughput(task)
    assert found["error"] < 1e-6 and found["steps_per_second"] > 0
    found = menagerie.gradient(task)
    assert found["finite"] and found["cost"] > 0
    found = menagerie.MEASUREMENTS["first gradient"](task)
    assert found["seconds"] > found["later"] > 0
    found = menagerie.memory(task)
    assert 50 < found["before"] <= found["peak"]


def _options(folder):
    return argparse.Namespace(
        folder=folder,
        out=folder,
        markdown=None,
        scenes=["a.xml", "b.xml", "c.xml"],
        batches=[1],
        gradient_batch=2,
        memory_batch=2,
        repeats=1,
        first_repeats=2,
        mjbatch="python",
        precision="double",
        only=list(menagerie.PARTS),
        limit=1.0,
    )


RESULTS = {
    "states": {"nv": 2, "contacts": 1.0},
    "pairs": {"pairs": 1},
    "eqsim": {"steps_per_second": 3e3, "error": 0.0},
    "mujoco": {"steps_per_second": 1e3, "error": 0.0},
    "mjbatch": {"steps_per_second": 2e3, "error": 0.0, "version": "1"},
    "gradient": {"gradients_per_second": 1e3, "cost": 3.0, "finite": True},
    "memory": {"before": 100.0, "peak": 200.0},
}


def test_caches_and_report(tmp_path, monkeypatch):
    """A cold run finds empty caches, a cached one what all other scenes stored."""
    found = []

    def child(command, what, task, environment, limit):
        scene, cache = pathlib.Path(task.file).stem, environment["EQSIM_KERNELS_CACHE"]
        if what not in menagerie.FIRST:
            return dict(RESULTS[what])
        folder = pathlib.Path(cache)
        folder.mkdir(parents=True, exist_ok=True)
        found.append((scene, {file.name for file in folder.iterdir()}))
        (folder / f"{scene} {what}").touch()
        return {"seconds": 2.0, "later": 1.0}

    monkeypatch.setattr(runs, "child", child)
    bench = menagerie.Bench(_options(tmp_path), tmp_path / "scratch")
    for name in bench.options.scenes:
        bench.describe(name)
    for cached in (False, True):
        for name in bench.options.scenes:
            bench.time_first(name, cached)
    for name in bench.options.scenes:
        bench.measure(name)
    everything = {f"{scene} {what}" for scene in "abc" for what in menagerie.FIRST}
    assert [files for _, files in found[:12]] == [set()] * 12
    for scene, files in found[12:]:
        assert files == {file for file in everything if file[0] != scene}
    assert len(found) == 24
    text = (tmp_path / "menagerie.md").read_text()
    assert "| 1 (3x)" in text and "| 2 (1.5x)" in text and "200 (100)" in text
    assert len(json.loads((tmp_path / "menagerie.json").read_text())["cells"]) == 45
