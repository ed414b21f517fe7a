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
    figures,
    identification,
    learning,
    linearization,
    recording,
    report,
    robot,
    tables,
)
from ant_demo.fleet import Throughput


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


def test_report(tmp_path):
    sys = robot.eqsim_system()
    rows = robot.parameters(sys)
    fit = identification.Fit(
        np.array(robot.HIDDEN), np.array([0.001, 0.1, 0.01, 0.01, 0.01]), 1.0, 3, 4, 5
    )
    entries = tables.identified(rows, fit)
    assert [entry["identifiable"] for entry in entries] == [True, False] + 3 * [True]
    assert all(abs(entry["error_percent"]) < 1e-9 for entry in entries)
    rate = Throughput(8, 2, 5, 2, 2e4, 1e4, 1.0)
    model = linearization.LinearModel(np.eye(28), np.ones((28, 8)))
    names = linearization.labels(sys)
    figures.parameters(tmp_path / "a.png", rows, fit)
    figures.throughput(tmp_path / "b.png", rate)
    figures.linear_model(tmp_path / "c.png", model, model, names)
    page = report.Page("<title>", "subtitle")
    page.table(tables.identification_table(entries))
    page.table(tables.throughput_table(rate))
    page.table(tables.linear_table(tables.linear_entries(model, model)))
    numbers = dict.fromkeys(learning.KNOWN, 1234.5)
    page.table(tables.learning_table([numbers, numbers]))
    page.command("eqsim train", "<done>")
    for name in "abc":
        page.image(tmp_path / f"{name}.png", name)
    page.write(tmp_path / "index.html")
    text = (tmp_path / "index.html").read_text()
    assert "&lt;title&gt;" in text and "http" not in text
    assert text.count("data:image/png;base64,") == 3 and text.count("<table>") == 4
    assert "$ eqsim train\n&lt;done&gt;</pre>" in text and text.count("1,234") == 4


def test_excerpt(tmp_path):
    """Pictures of the right moments, in order."""
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
    (found,) = results["learning"]["evaluations"]
    assert found["steps"] >= 4096 and np.isfinite(found["mean_return"])
    assert (tmp_path / "run" / "last.ckpt").exists()
    assert (tmp_path / "index.html").stat().st_size > 1e5
