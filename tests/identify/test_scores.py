"""The scorer of identified models by MuJoCo C, on recordings whose scores are known."""

import json
import sys

import _identify_scores as scores
import mujoco
import numpy as np
import pytest


PENDULUM = """
<mujoco><option timestep="0.002"/><worldbody>
  <body><joint name="pivot" axis="0 -1 0" damping="{damping}"/>
    <inertial mass="0.5" pos="0 0 -0.3" diaginertia="0.01 0.01 0.01"/></body></worldbody>
  <actuator><motor joint="pivot"/></actuator></mujoco>"""
CUBE = """
<mujoco><option timestep="0.001" gravity="0 0 {gravity}"/><worldbody>
  <body><freejoint/>
    <inertial mass="0.37" pos="0 0 0" diaginertia="8e-4 8e-4 8e-4"/></body></worldbody>
</mujoco>"""
RATE = 100.0


def _model(text: str, **numbers: float) -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_string(text.format(**numbers))


def _swings(model: mujoco.MjModel, runs: int = 2, count: int = 900) -> dict:
    """Runs of a pendulum, one row per step."""
    q, torque, rng = [], [], np.random.default_rng(0)
    for _ in range(runs):
        data = mujoco.MjData(model)
        data.qpos[:], speed = rng.uniform(-1, 1, 1), rng.uniform(2, 5)
        for k in range(count):
            q.append(data.qpos.copy())
            data.ctrl[:] = 0.5 * np.sin(speed * 0.002 * k)
            torque.append(data.ctrl.copy())
            mujoco.mj_step(model, data)
    time = np.tile(0.002 * np.arange(count), runs)
    offsets = count * np.arange(runs + 1)
    return {"time": time, "q": np.array(q), "tau": np.array(torque), "offsets": offsets}


def _flights(model: mujoco.MjModel, lengths=(30, 20)) -> dict:
    """Tosses of a body that touches nothing, at `RATE`."""
    q, qd, rng = [], [], np.random.default_rng(1)
    for length in lengths:
        data = mujoco.MjData(model)
        data.qpos[:3], data.qvel[:] = rng.normal(size=3), rng.normal(size=6)
        for _ in range(length):
            q.append(data.qpos.copy())
            qd.append(data.qvel.copy())
            mujoco.mj_step(model, data, 10)
    offsets = np.cumsum([0, *lengths])
    return {"q": np.array(q), "qd": np.array(qd), "offsets": offsets, "rate": RATE}


def test_pendulum():
    """Nearly zero for the model that made the runs; for another, the rms of the angles."""
    model = _model(PENDULUM, damping=0.02)
    runs = _swings(model)
    same = scores.pendulum(model, runs, "tau", 0.5)
    # Windows of 250 steps from row 7 on. Velocities of local cubics are those of the middle
    # of two Euler steps, hence not exact.
    assert same["windows"] == 2 * 3 and same["median"] < 3e-3
    other = scores.pendulum(_model(PENDULUM, damping=0.2), runs, "tau", 0.5)
    assert other["median"] > 10 * same["median"] and len(other["rms"]) == 1
    # An encoder with an offset: a window of a constant error moves with its start.
    still = runs | {"q": 0 * runs["q"] + 0.1, "tau": 0 * runs["tau"]}
    weightless = mujoco.MjModel.from_xml_string(
        PENDULUM.format(damping=0.02).replace("<option", '<option gravity="0 0 0"')
    )
    assert scores.pendulum(weightless, still, "tau", 0.5)["median"] < 1e-12


def test_tosses():
    """Zero for the model that made them; for other gravity, as far as it falls apart."""
    runs = _flights(_model(CUBE, gravity=-9.81))
    same = scores.tosses(_model(CUBE, gravity=-9.81), runs)
    assert same["tosses"] == 2
    assert same["position"] < 1e-6 and same["rotation"] < 1e-5
    other = scores.tosses(_model(CUBE, gravity=-9.0), runs)
    apart = []
    for length in (30, 20):
        steps = 10 * np.arange(length)
        # Semi-implicit Euler: half of g dt^2 n (n + 1).
        apart.append(np.mean(0.5 * 0.81 * 0.001**2 * steps * (steps + 1)))
    expected = 100 * np.mean(apart) / scores.WIDTH
    assert other["position"] == pytest.approx(expected, rel=1e-6)
    assert other["rotation"] < 1e-5


def test_rotations_are_geodesic():
    """A known turn of every recorded orientation is the score; the sign of quaternions, and
    their length, do not matter."""
    model = _model(CUBE, gravity=-9.81)
    runs = _flights(model)
    angle = np.deg2rad(30.0)
    turn = np.array(
        [np.cos(angle / 2), *(np.sin(angle / 2) * np.array([0.6, 0.0, 0.8]))]
    )
    q, out = runs["q"].copy(), np.zeros(4)
    starts = set(runs["offsets"].tolist())
    for k, row in enumerate(q):
        if k not in starts:  # Predictions start from these.
            mujoco.mju_mulQuat(out, turn, row[3:])
            row[3:] = -2.0 * out
    found = scores.tosses(model, runs | {"q": q})
    expected = 30.0 * np.mean([29 / 30, 19 / 20])
    assert found["rotation"] == pytest.approx(expected, rel=1e-6)
    assert found["position"] < 1e-6


def test_command_line(tmp_path, monkeypatch, capsys):
    """One line of JSON, for both kinds."""
    (tmp_path / "swing.xml").write_text(PENDULUM.format(damping=0.02))
    (tmp_path / "cube.xml").write_text(CUBE.format(gravity=-9.81))
    np.savez(tmp_path / "swings.npz", **_swings(_model(PENDULUM, damping=0.02)))
    np.savez(tmp_path / "flights.npz", **_flights(_model(CUBE, gravity=-9.81)))
    for kind, *files in (
        ("pendulum", "swing.xml", "swings.npz", "--torque", "tau", "--length", "0.5"),
        ("tosses", "cube.xml", "flights.npz"),
    ):
        paths = [str(tmp_path / file) for file in files[:2]]
        monkeypatch.setattr(sys, "argv", ["scores", kind, *paths, *files[2:]])
        scores.main()
        found = json.loads(capsys.readouterr().out)
        assert found.get("median", 0.0) < 3e-3 and found.get("position", 0.0) < 1e-6
        assert (
            found.get("windows", found.get("tosses"))
            == {"pendulum": 6, "tosses": 2}[kind]
        )
