"""The command `eqsim identify`, within this process."""

import json
import re
import sys as python

import mujoco
import numpy as np
import pytest
from recorded_arm import record, SMOOTH

import eqsim
from eqsim import identify
from eqsim._cli import main
from eqsim._cli._identify_command import read_class


PARAMETERS = """
[damping]
path = "joints.damping"

[lower]
kind = "bounded"
path = "links.mass"
entries = [1]
lower = 0.1
upper = 1.0
prior_sd = 0.2
"""


@pytest.fixture
def files(tmp_path):
    """Model, recordings and parameters, as arguments."""
    spec = mujoco.MjSpec.from_string(SMOOTH)
    spec.body("lower").mass = 0.55
    runs = [record(spec.compile(), k, 2.0, 2e-3) for k in range(3)]
    (tmp_path / "arm.xml").write_text(SMOOTH)
    (tmp_path / "parameters.toml").write_text(PARAMETERS)
    identify.save_recordings(tmp_path / "runs.npz", runs)
    names = tmp_path / "arm.xml", tmp_path / "runs.npz"
    options = "--parameters", tmp_path / "parameters.toml", "--out", tmp_path / "out"
    return [str(x) for x in ("identify", *names, *options)]


def test_identify(files, tmp_path, capsys):
    """Parameters, robot and page are written, and one run in three is held out."""
    assert main(files) == 0
    assert "held out: 1 runs" in capsys.readouterr().out
    found = json.loads((tmp_path / "out" / "result.json").read_text())
    assert found["finished"] and found["validation"]["runs"] == 1
    mass = found["parameters"]["lower"]
    assert mass["low"] < 0.55 < mass["high"] and mass["value"] == pytest.approx(
        0.55, 0.05
    )
    model = mujoco.MjModel.from_xml_path(str(tmp_path / "out" / "model.xml"))
    np.testing.assert_allclose(model.body_mass[2], mass["value"])
    page = (tmp_path / "out" / "report.html").read_text()
    assert "data:image/png;base64," in page and "damping[1]" in page


SPEED = """
[friction]
kind = "actuator"
model = "StribeckFriction"
actuators = ["upper", "lower"]
coulomb = 0.0
static = 0.0
stribeck_velocity = 1.0
width = 0.1
fit = ["viscous"]
"""
GAIN = """
[gain]
kind = "free"
path = "actuators.gain"
entries = [[0, 0], [1, 0]]
"""
LEARNED = """
[network]
kind = "actuator"
model = "MLPActuator"
features = ["velocity"]
scales = [3.0]
hidden = [4]
"""
NAMED = SMOOTH.replace("<motor", '<motor name="upper"', 1)
NAMED = NAMED.replace('<motor joint="elbow"', '<motor name="lower" joint="elbow"')


@pytest.fixture
def torques(tmp_path):
    """Arguments for recordings of torques with viscous friction, and files of models."""
    runs = []
    for seed in range(4):
        rng, time = np.random.default_rng(seed), np.arange(0.0, 2.0, 0.01)
        phase = rng.uniform(0.0, 6.0, 2)
        qd = 4.0 * np.cos(4.0 * time[:, None] + phase)
        ctrl = np.sin(9.0 * time[:, None] + phase)
        tau = 0.9 * ctrl - 0.1 * qd + rng.normal(0.0, 0.02, qd.shape)
        q = np.sin(4.0 * time[:, None] + phase)
        runs.append(identify.Recording(time, ctrl, {"q": q, "tau": tau}, f"run-{seed}"))
    identify.save_recordings(tmp_path / "runs.npz", runs)
    (tmp_path / "arm.xml").write_text(NAMED)
    texts = {"gain": GAIN, "friction": GAIN + SPEED, "learned": GAIN + LEARNED}
    for name, text in texts.items():
        (tmp_path / f"{name}.toml").write_text(text)
    names = [str(tmp_path / x) for x in ("arm.xml", "runs.npz")]
    options = "--objective", "forces", "--forces", "tau", "--out", str(tmp_path / "out")
    return ["identify", *names, *options]


def test_actuator_models_are_compared(torques, tmp_path, capsys):
    """By held-out errors; the chosen one is fitted and written with its models."""
    files = [str(tmp_path / f"{name}.toml") for name in ("gain", "friction")]
    assert main([*torques, "--parameters", *files]) == 0
    out = capsys.readouterr().out
    assert re.search(r"friction .* chosen, least error", out) and "robot.npz" in out
    found = json.loads((tmp_path / "out" / "result.json").read_text())
    assert found["parameters"]["friction.viscous[0]"]["value"] == pytest.approx(
        0.1, 0.1
    )
    robot = eqsim.load(tmp_path / "out" / "robot.npz")
    viscous = robot.actuator_models[0].model.viscous
    np.testing.assert_allclose(viscous, [0.1, 0.1], rtol=0.1)
    mujoco.MjModel.from_xml_path(str(tmp_path / "out" / "model.xml"))


OWN = """
import jax
from eqsim import actuators


class ViscousDrag(actuators.AbstractForceModel):
    coefficient: jax.Array

    @property
    def num_states(self):
        return 0

    def __call__(self, state, inputs):
        return state, inputs.force - self.coefficient * inputs.velocity
"""
DRAG = """
[drag]
kind = "actuator"
model = "gearboxes_of_a_user:ViscousDrag"
coefficient = 0.05
fit = {coefficient = "positive"}
"""


def test_models_of_users_are_fitted(torques, tmp_path, capsys):
    """From a module in the folder of the file of parameters."""
    (tmp_path / "gearboxes_of_a_user.py").write_text(OWN)
    (tmp_path / "drag.toml").write_text(GAIN + DRAG)
    before = [*python.path]
    assert main([*torques, "--parameters", str(tmp_path / "drag.toml")]) == 0
    assert python.path == before and "robot.npz" in capsys.readouterr().out
    found = json.loads((tmp_path / "out" / "result.json").read_text())["parameters"]
    values = [found[f"drag.coefficient[{k}]"]["value"] for k in range(2)]
    np.testing.assert_allclose(values, [0.1, 0.1], rtol=0.1)


def test_modules_of_one_name_in_two_folders(tmp_path):
    """Each file of parameters has the class beside it. Installed modules are not hidden."""
    sys, found = eqsim.load_mjcf(NAMED), []
    for k in range(2):
        folder = tmp_path / str(k)
        folder.mkdir()
        (folder / "gearboxes_of_a_user.py").write_text(
            f"import colorsys{OWN}    kind = {k}\n"
        )
        (folder / "colorsys.py").write_text(
            "raise ImportError('not the installed one')"
        )
        (folder / "drag.toml").write_text(DRAG)
        found.append(
            read_class(folder / "drag.toml", sys, 0).sys.actuator_models[0].model
        )
    assert [model.kind for model in found] == [0, 1]
    assert "gearboxes_of_a_user" not in python.modules


@pytest.mark.slow
def test_networks_are_learned(torques, tmp_path, capsys):
    assert main([*torques, "--parameters", str(tmp_path / "learned.toml")]) == 0
    assert "ratio 0." in capsys.readouterr().out
    found = json.loads((tmp_path / "out" / "result.json").read_text())
    assert found["parameters"]["gain[0,0]"]["sd"] is None
    assert not (tmp_path / "out" / "report.html").exists()


def test_runs_that_choose_a_model_are_not_held_out(
    torques, tmp_path, capsys, monkeypatch
):
    """Unless there are too few, which is printed, as is a network without early stop."""
    seen = []

    def compared(candidates, recordings, **options):
        seen.append({recording.run for recording in recordings})
        score = identify.ModelScore("learned", 1, *[0.0] * 8, {}, {})
        return identify.ModelComparison((score,), "learned", "learned")

    def fitted(sys, recordings, unknowns, *, validate, stop, **options):
        seen.append({recording.run for recording in validate})
        raise ValueError(f"stop is {stop is not None}")

    monkeypatch.setattr(identify, "compare", compared)
    monkeypatch.setattr(identify, "fit", fitted)
    files = [str(tmp_path / f"{name}.toml") for name in ("gain", "learned")]
    assert main([*torques, "--parameters", *files]) == 2
    found, (chosen_on, held) = capsys.readouterr(), seen
    assert "note:" not in found.out and "stop is True" in found.err
    assert len(chosen_on) == 3 and len(held) == 1 and not chosen_on & held
    # Two runs: one is fitted.
    runs = identify.load_recordings(
        tmp_path / "runs.npz", channels={"q": "q", "tau": "tau"}
    )
    identify.save_recordings(tmp_path / "runs.npz", runs[:2])
    assert main([*torques, "--parameters", *files]) == 2
    found = capsys.readouterr()
    assert "the held-out run also took part" in found.out
    assert "without an early stop" in found.out and "stop is False" in found.err


INNOVATIONS = ["innovations", "--disturbance", "2.0", "--noise", "2e-3"]


@pytest.mark.parametrize(
    ("options", "channel", "share"),
    ((["inverse"], "qdd", 0.5), (INNOVATIONS, "q", 0.15)),
)
@pytest.mark.slow
def test_objective(options, channel, share, files, tmp_path, capsys):
    """Noise is that of the residuals of the objective; validation simulates."""
    assert main([*files, "--objective", *options]) == 0
    out = capsys.readouterr().out
    assert f"noise of {channel}:" in out and "s, q: median" in out
    found = json.loads((tmp_path / "out" / "result.json").read_text())
    # The measurements are noisy, which biases equation errors.
    assert found["parameters"]["lower"]["value"] == pytest.approx(0.55, share)


CUBE = """<mujoco><option timestep="0.005" cone="elliptic"/><worldbody>
  <geom type="plane" size="1 1 1" friction="0.8 0 0"/>
  <body><freejoint/><inertial mass="1" pos="0 0 0" diaginertia="0.01 0.01 0.01"/>
    <geom type="box" size="0.1 0.1 0.1" friction="0.8 0 0"/></body></worldbody></mujoco>"""
FRICTION = """
[friction]
path = "geoms.friction"
entries = [[0, 0], [1, 0]]
shared = true
"""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Channel 'q' is constant")
def test_violation(tmp_path):
    """Friction of a rigid box that slides on its face and is slowed down by nothing else."""
    time, q = 0.005 * np.arange(40), np.zeros((40, 7))
    q[:, 0] = time - 0.5 * 0.3 * 9.81 * time**2
    q[:, 2], q[:, 3] = 0.1, 1.0
    run = identify.Recording(time, np.zeros((40, 0)), {"q": q})
    identify.save_recordings(tmp_path / "runs.npz", [run])
    (tmp_path / "cube.xml").write_text(CUBE)
    (tmp_path / "friction.toml").write_text(FRICTION)
    names = [
        str(tmp_path / x) for x in ("cube.xml", "runs.npz", "friction.toml", "out")
    ]
    files = *names[:2], "--parameters", names[2], "--out", names[3]
    options = "--objective", "violation", "--ctrl", "none"
    assert main(["identify", *files, *options]) == 0
    found = json.loads((tmp_path / "out" / "result.json").read_text())
    assert found["parameters"]["friction"]["value"] == pytest.approx(0.3, 0.05)


WRONG_OBJECTIVES = {
    "missing": (["innovations", "--noise", "1"], "requires --disturbance"),
    "not used": (["inverse", "--noise", "1"], "--noise requires `--objective inn"),
    "negative": (
        ["innovations", "--noise", "-1", "--disturbance", "1"],
        "`Innovations.noise` must be positive",
    ),
    "forces": (["forces"], "`--objective forces` and `--forces`"),
    "no contact": (["violation"], "no shapes of this robot can touch"),
}


@pytest.mark.parametrize("case", WRONG_OBJECTIVES)
def test_wrong_objectives(case, files, capsys):
    options, message = WRONG_OBJECTIVES[case]
    assert main([*files, "--objective", *options]) == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_interrupt_keeps_the_best_step(files, tmp_path, capsys, monkeypatch):
    """The robot on disk is the one of the last step."""
    fit = identify.fit

    def interrupted(*args, progress, **rest):
        def told(values, cost, step):
            progress(values, cost, step)
            if step >= 1:
                raise KeyboardInterrupt

        return fit(*args, progress=told, **rest)

    monkeypatch.setattr(identify, "fit", interrupted)
    assert main(files) == 1
    assert "Interrupted after step 2" in " ".join(capsys.readouterr().err.split())
    found = json.loads((tmp_path / "out" / "result.json").read_text())
    assert not found["finished"] and found["parameters"]["lower"] != 0.4
    model = mujoco.MjModel.from_xml_path(str(tmp_path / "out" / "model.xml"))
    np.testing.assert_allclose(model.body_mass[2], found["parameters"]["lower"])


WRONG = {
    "no table": ("damping = 3", "Parameter 'damping' must be a table [damping]"),
    "kind": ("[x]\nkind = 'odd'", "has the unknown kind 'odd'. Kinds:"),
    "no path": ("[x]", "Parameter 'x' of kind 'positive' lacks 'path'"),
    "path": ("[x]\npath = 'joints.dumping'", "has no array 'dumping'"),
    "option": (
        "[x]\npath = 'links.mass'\nlow = 1",
        "unexpected keyword argument 'low'",
    ),
    "path of another type": ("[x]\npath = 3", "path of parameter 'x' must be text"),
    "entries": ("[x]\npath = 'links.mass'\nentries = 0", "Parameter 'x': 'int' object"),
    "prior": (
        "[x]\npath = 'links.mass'\nprior_sd = 0",
        "`NormalPrior.sd` must be positive, got 0",
    ),
    "actuator model": (
        "[x]\nkind = 'actuator'\nmodel = 'Rubber'",
        "Table 'x': unknown `model` 'Rubber'. Models: ['Delay',",
    ),
    "parameter of a model": (
        "[x]\nkind = 'actuator'\nmodel = 'TorqueLag'\nfit = ['lag']",
        "TorqueLag has no parameter 'lag' to fit. Parameters: ['time_constant']",
    ),
    "argument of a model": (
        "[x]\nkind = 'actuator'\nmodel = 'TorqueLag'",
        "Table 'x': TorqueLag lacks 'time_constant'. Required: ['time_constant'].",
    ),
    "other argument of a model": (
        "[x]\nkind = 'actuator'\nmodel = 'TorqueLag'\nlag = 1",
        "Table 'x': TorqueLag has no argument 'lag'. Arguments: ['time_constant'].",
    ),
    "module": (
        "[x]\nkind = 'actuator'\nmodel = 'no_such_module:Drag'",
        "Table 'x': the module of `model` 'no_such_module:Drag' cannot be imported from",
    ),
    "class of a module": (
        "[x]\nkind = 'actuator'\nmodel = 'eqsim.actuators:Rubber'",
        "'eqsim.actuators' has no actuator model 'Rubber'. Models: ['Backlash',",
    ),
    "kind of a parameter": (
        "[x]\nkind = 'actuator'\nmodel = 'TorqueLag'\nfit = {time_constant = 'odd'}",
        "Table 'x': kinds in `fit` must be 'positive' or 'free', got 'odd'.",
    ),
    "list of parameters": (
        "[x]\nkind = 'actuator'\nmodel = 'TorqueLag'\nfit = 3",
        "Table 'x': `fit` must be a list of parameters, or a table of their kinds, got 3.",
    ),
    "actuator": (
        "[x]\nkind = 'actuator'\nmodel = 'TorqueLag'\ntime_constant = 1\nactuators = 'z'",
        "Table 'x': There is no actuator",
    ),
    "syntax": ("[x", "parameters.toml' is not valid"),
    "empty": ("", "lists no parameters"),
    "channel": ("[x]\nkind = 'gain'\nchannel = 'imu'", "channel 'imu', which is not"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_parameters(case, files, tmp_path, capsys):
    """Errors name the entry, in one sentence."""
    text, message = WRONG[case]
    (tmp_path / "parameters.toml").write_text(text)
    assert main(files) == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_refused_models_and_simulations(files, tmp_path, capsys, monkeypatch):
    """A model that cannot be read, and a simulation that is not finite."""
    (tmp_path / "arm.xml").write_text(SMOOTH.replace('name="elbow"', 'name="shoulder"'))
    assert main(files) == 2
    assert "shoulder" in capsys.readouterr().err
    lag = '<general joint="elbow" dyntype="filter" dynprm="0.1"/>'
    slow = SMOOTH.replace('<motor joint="elbow"/>', lag)
    (tmp_path / "arm.xml").write_text(slow)

    def diverges(*args, **options):
        raise FloatingPointError("The simulation of window 3 is not finite.")

    monkeypatch.setattr(identify, "fit", diverges)
    assert main(files) == 2
    found = capsys.readouterr()
    assert "window 3 is not finite" in " ".join(found.err.split())
    assert "note: the first 0.05 s of each window are simulated" in found.out


def test_missing_files(files, capsys):
    for k in (1, 2, 4):
        wrong = [*files[:k], "missing.npz", *files[k + 1 :]]
        assert main(wrong) == 2
        assert "There is no" in capsys.readouterr().err
