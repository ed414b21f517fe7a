"""The parts of `docs/examples/demo.py`, and the whole in small."""

import json
import os
import pathlib
import subprocess
import sys

import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from PIL import Image


EXAMPLES = pathlib.Path(__file__).parents[2] / "docs" / "examples"
sys.path.insert(0, str(EXAMPLES))

from ant_demo import (
    learning,
    quadruped,
    recording,
    robot,
)
from ant_demo.countdown import Countdown


def test_both_simulators_get_the_same_changes():
    model = robot.mujoco_model(robot.HIDDEN)
    sys = robot.changed(robot.eqsim_system(), jnp.array(robot.HIDDEN))
    pairs = [
        (sys.links.mass, model.body_mass[1:]),
        (sys.links.inertia, model.body_inertia[1:]),
        (sys.joints.damping, model.dof_damping),
        (sys.actuators.gear, model.actuator_gear),
        (sys.geoms.friction, model.geom_friction),
    ]
    for ours, theirs in pairs:
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-15)
    true = [row.hidden for row in robot.parameters(robot.eqsim_system())]
    legs = model.body_mass[2:].sum()
    damping, gear = model.dof_damping[-1], model.actuator_gear[robot.GEARED, 0]
    expected = [model.body_mass[1], legs, damping, gear, model.geom_friction[0, 0]]
    np.testing.assert_allclose(true, expected)


def test_bare_model_moves_the_same():
    full, bare = robot.mujoco_model(), robot.mujoco_model(bare=True)
    assert mujoco.mj_sizeModel(bare) < mujoco.mj_sizeModel(full) / 5
    for one, other in zip(*(recording.record(m, 0.1, 3) for m in (full, bare))):
        np.testing.assert_array_equal(one, other)


def test_noise_is_as_stated():
    data = recording.record(robot.mujoco_model(), 1.0, 0)
    np.testing.assert_allclose(np.std(data.qd - data.true_qd), 5e-3, rtol=0.1)
    np.testing.assert_allclose(np.std((data.q - data.true_q)[:, 7:]), 1e-3, rtol=0.1)
    np.testing.assert_allclose(np.linalg.norm(data.q[:, 3:7], axis=1), 1)
    assert 0.1 < data.touching.mean() < 0.9


def test_countdown():
    """The pace of finished parts is expected of the others."""
    now = [0.0]
    countdown = Countdown({"a": 10.0, "b": 20.0, "c": 30.0}, lambda: now[0])
    countdown.start("a")
    assert countdown.left() == 60.0
    now[0] = 4.0
    assert countdown.left() == 56.0
    now[0] = 20.0  # `a` takes twice its usual time; `b` and `c` are still to come.
    assert countdown.left() == 50.0
    countdown.start("b")
    assert countdown.left() == 100.0
    now[0] = 30.0
    assert countdown.left() == 90.0 and countdown.words() == "about 90 s left"
    countdown.say("searching")
    assert countdown.__rich__() == "searching (about 90 s left)"


def test_targets_of_the_gait():
    """Servo targets place the feet where the trot requires them, by MuJoCo's forward
    kinematics."""
    model = mujoco.MjModel.from_xml_string(quadruped.MODEL)
    data = mujoco.MjData(model)
    length, frequency, lift, height, offset = gait = (0.12, 2.0, 0.05, 0.27, 0.01)
    hips = np.array([[0.19, -0.13], [0.19, 0.13], [-0.19, -0.13], [-0.19, 0.13]])
    feet = [k for k in range(model.ngeom) if model.geom_size[k, 0] == 0.024]
    for moment in (0.6, 0.7, 0.93):
        data.qpos[:7] = (0, 0, 0, 1, 0, 0, 0)
        data.qpos[7:] = quadruped.targets(jnp.array(gait), moment)
        mujoco.mj_kinematics(model, data)
        phase = (frequency * moment + np.array([0.0, 0.5, 0.5, 0.0])) % 1.0
        ground = phase < 0.5
        x = np.where(ground, 0.5 - 2 * phase, 2 * phase - 1.5) * length + offset
        up = np.where(ground, 0.0, np.sin(np.pi * (2 * phase - 1.0))) * lift
        expected = np.column_stack([hips + np.column_stack([x, 0 * x]), up - height])
        np.testing.assert_allclose(data.geom_xpos[feet], expected, atol=1e-6)


def test_value_of_a_walk():
    """Speed counts, drift and tilt cost, and a fall excludes a gait."""
    q = np.zeros((4, 10, 19))
    q[..., 2], q[..., 3] = 0.27, 1.0
    q[:, -1, 0] = 5.0
    q[1, -1, 1] = 1.0
    q[2, :, 3:5] = np.cos(0.1), np.sin(0.1)
    q[3, 4, 2] = 0.1
    value, speed = quadruped._value(q)
    np.testing.assert_allclose(speed, [1.0, 1.0, 1.0, 0.0])
    np.testing.assert_allclose(value[:2], [1.0, 0.8])
    np.testing.assert_allclose(value[2], 1.0 - 10.0 * (1.0 - np.cos(0.2)))
    assert value[3] == -np.inf


def test_excerpt(tmp_path):
    """Frames of the right moments, in order."""
    shades = [Image.new("L", (8, 6), 2 * k) for k in range(100)]
    whole, loop, strip = (tmp_path / name for name in ("a.gif", "b.gif", "c.png"))
    shades[0].save(whole, save_all=True, append_images=shades[1:], duration=50)
    learning.excerpt(whole, loop, strip, first=30, frames=20)
    with Image.open(loop) as image:
        assert image.n_frames == 20 and image.info["duration"] == 50
    with Image.open(strip) as image:
        assert image.size == (32, 12)
        cells = [image.getpixel((8 * (k % 4) + 4, 6 * (k // 4) + 3)) for k in range(8)]
    np.testing.assert_allclose([c[0] for c in cells], 60 + 2 * np.arange(8), atol=1)
    learning.excerpt(whole, loop, strip, first=95, frames=20)
    with Image.open(strip) as image:
        assert abs(image.getpixel((4, 3))[0] - 160) <= 1


@pytest.mark.slow
def test_a_run_that_fails_says_why(tmp_path, monkeypatch):
    monkeypatch.setattr(learning, "ENV", "half_chetah")
    with pytest.raises(RuntimeError, match="Did you mean 'half_cheetah'"):
        learning.learn(tmp_path / "run", True, lambda line: None)


@pytest.mark.slow  # Derivatives of the ant by all parameters take a minute to compile.
def test_demo(tmp_path):
    command = [sys.executable, EXAMPLES / "demo.py", "--quick", "--out", tmp_path]
    run = subprocess.run(command, capture_output=True, text=True, env=os.environ)
    assert run.returncode == 0, run.stdout + run.stderr
    results = json.loads((tmp_path / "results.json").read_text())
    for entry in results["identification"]["parameters"]:
        if entry["identifiable"]:
            assert abs(entry["error_percent"]) < 2, entry
    for entry in results["linear_model"]["matrices"]:
        assert entry["largest_difference"] < 1e-6 * entry["largest_entry"]
    assert results["fleet"]["eqsim"] > 0
    assert len(results["figures"]) == 5 and results["gait"]["steps_per_second"] > 0
    page = (tmp_path / "index.html").read_text()
    assert "<iframe" in page and page.count("data:image/") >= 6
    (found,) = results["learning"]["evaluations"]
    assert found["steps"] >= 4096 and np.isfinite(found["mean_return"])
    assert (tmp_path / "run" / "last.ckpt").exists()
    assert (tmp_path / "index.html").stat().st_size > 1e5
