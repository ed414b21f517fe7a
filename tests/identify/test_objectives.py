"""Measurements and objectives: equation error and innovations, beside simulation."""

import equinox as eqx
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from helpers import check_gradients, tree_allclose
from recorded_arm import ARM, record

import eqsim
from eqsim import identify
from eqsim.estimate.stochastic_model import measurement
from eqsim.identify._fit import prepare
from eqsim.identify._fit_problem import residuals


DAMPING = identify.Positive(lambda s: s.joints.damping)
MASS = identify.Positive(lambda s: s.links.mass)
OBJECTIVES = (
    identify.Simulation(),
    identify.Inverse(),
    identify.Innovations(2.0, 1e-3),
)


def _problem(sys, runs, unknowns, windows, objective, pipeline=eqsim.Generalized()):
    measure = measurement(identify.JointPositions())
    args = sys, runs, unknowns, windows, None, measure, pipeline, objective
    return prepare(*args).problem


def _zero(problem):
    return problem.origin, jnp.zeros(problem.batch.sd.shape)


# `test_jacobian.py` differentiates simulations, and `Inverse` reads signals as they do.
@pytest.mark.parametrize("objective", OBJECTIVES, ids=lambda x: type(x).__name__)
@pytest.mark.quick_cases("Inverse")
def test_derivatives(objective):
    """Forward mode = reverse mode = differences, with a delay and a gain of the commands."""
    sys = eqsim.load_mjcf(ARM)
    runs = [record(mujoco.MjModel.from_xml_string(ARM), 3, 0.5, 1e-3)]
    unknowns = {
        "damping": DAMPING,
        "delay": identify.ChannelDelay(initial=6.2e-3),
        "gain": identify.ChannelGain("ctrl", shared=True),
    }
    problem = _problem(sys, runs, unknowns, identify.Windows(0.2), objective)
    channel = "qdd" if isinstance(objective, identify.Inverse) else "q"
    f = jax.jit(lambda *x: residuals(problem, *x)[channel])
    assert check_gradients(f, *_zero(problem), eps=1e-5)["[0]"] > 0.0


BODY = """
<mujoco>
  <option timestep="0.005"/>
  <worldbody>
    <body name="box"><freejoint/>
      <inertial mass="1" pos="0 0 0" diaginertia="0.01 0.02 0.03"/>
      <site name="top" pos="0 0 0.1"/>
    </body>
  </worldbody>
  <sensor>
    <framepos name="place" objtype="site" objname="top"/>
    <framequat name="attitude" objtype="site" objname="top"/>
  </sensor>
</mujoco>
"""


def _flight(sys, gravity: float):
    """A tumbling flight."""
    other = eqsim.load_mjcf(BODY.replace("<option", f'<option gravity="0 0 {gravity}"'))
    pipeline = eqsim.Generalized()
    q = jnp.array([0.1, 0.0, 1.0, 0.8, 0.6, 0.0, 0.0])
    first = pipeline.init(other, q, jnp.array([1.0, -0.5, 2.0, 3.0, -4.0, 5.0]))
    step = lambda state, _: (pipeline.step(other, state, jnp.zeros(0)), state)
    _, states = eqsim.scan(step, first, None, 160)
    return states


GRAVITY = {"gravity": identify.Unbounded(lambda s: s.gravity, entries=(2,))}


@pytest.mark.parametrize(
    "measure",
    (
        (identify.JointPositions(), identify.FreeBodyPose("box")),
        (identify.JointPositions(), identify.SensorMeasurement()),
    ),
    ids=("pose", "sensors"),
)
@pytest.mark.slow  # Two fits of a free body compile for half a minute.
def test_gravity_is_found_from_a_tumbling_body(measure):
    """The sign of a measured quaternion does not matter."""
    sys = eqsim.load_mjcf(BODY)
    states = _flight(sys, -8.5)
    q = np.array(states.q)
    q[::3, 3:] *= -1
    get = lambda s: measure[1].predict(sys, s, jnp.zeros(0))
    values = {k: np.array(v) for k, v in jax.vmap(get)(states).items()}
    if "pos" in values:
        # The pose of the link is that of its free joint.
        assert tree_allclose(values["pos"], q[:, :3], atol=1e-12)
        np.testing.assert_allclose(np.abs((values["quat"] * q[:, 3:]).sum(axis=1)), 1.0)
    predicted = {"q": q} | values
    time = 0.005 * np.arange(len(q))
    recording = identify.Recording(time, np.zeros((len(q), 0)), predicted)
    result = identify.fit(
        sys, recording, GRAVITY, measure=measure, windows=identify.Windows(0.25)
    )
    assert result.values[0] == pytest.approx(-8.5, abs=1e-3)


RAIL = """
<mujoco><option gravity="0 0 0" timestep="0.01"/><worldbody>
  <body><joint name="rail" type="slide" axis="1 0 0" damping="{damping}"/>
    <inertial mass="2" pos="0 0 0" diaginertia="1 1 1"/></body></worldbody>
  <actuator><motor joint="rail"/></actuator></mujoco>"""


def test_inverse_is_linear_regression():
    """Of accelerations on commands and velocities, for a mass with friction."""
    text = RAIL.format(damping=0.5)
    sys = eqsim.load_mjcf(text)
    result = identify.fit(
        sys,
        record(mujoco.MjModel.from_xml_string(text), 0, 6.0, 1e-3),
        {"damping": DAMPING, "mass": MASS},
        windows=identify.Windows(2.0),
        objective=identify.Inverse(),
        solver=identify.Solver(rtol=1e-12),
    )
    batch = jax.tree.map(np.asarray, result.problem.batch)
    qd, qdd = (batch.measured[k][batch.mask][:, 0] for k in ("local qd", "qdd"))
    rows = np.stack([_commands(batch)[batch.mask], -qd], axis=1)
    (inverse_mass, rate), *_ = np.linalg.lstsq(rows, qdd)
    expected = rate / inverse_mass, 1 / inverse_mass
    np.testing.assert_allclose(result.values, expected, rtol=1e-6)
    np.testing.assert_allclose(result.values, [0.5, 2.0], rtol=0.2)
    noise = np.sqrt(((qdd - rows @ [inverse_mass, rate]) ** 2).mean())
    np.testing.assert_allclose(result.sigma["qdd"], noise, rtol=0.01)


FREE = RAIL.format(damping=0).replace("0.01", "0.1")
"""A mass without friction, with steps of 0.1 s."""


def _commands(batch) -> np.ndarray:
    """Commands at the measured times."""
    rows = zip(batch.time, batch.ctrl_time, batch.ctrl, strict=True)
    return np.array([np.interp(t, at, u[:, 0]) for t, at, u in rows])


# Compiles two objectives and a simulation of held-out runs.
@pytest.mark.slow
def test_inverse_starts_a_fit():
    """From a guess that is far off, it finds the basin of the truth without simulating, and
    its bias is removed by simulation."""
    sys = eqsim.load_mjcf(ARM)
    runs = [
        record(mujoco.MjModel.from_xml_string(ARM), 40 + k, 3.0, 1e-3) for k in range(2)
    ]
    unknowns = {
        "damping": DAMPING,
        "mass": identify.Positive(lambda s: s.links.mass, entries=(1,), initial=2.5),
    }
    windows = identify.Windows(0.5, half=4)
    first = identify.fit(
        sys,
        runs,
        unknowns,
        windows=windows,
        objective=identify.Inverse(),
        validate=[_held()],
    )
    truth = np.array([0.05, 0.03, 0.4])
    assert np.abs(first.values[2] / 0.4 - 1) < 0.15
    # Held-out errors are those of simulations.
    assert first.validation.horizons[-1].ratio["q"][2] < 0.5
    unknowns = {"damping": DAMPING, "mass": MASS_OF_LOWER}
    second = identify.fit(first.sys, runs, unknowns, windows=windows)
    np.testing.assert_allclose(second.values, truth, rtol=0.02)


class Doubled(identify.AbstractObjective):
    """Twice the errors of a simulation, also of held-out runs if it is its own predictor."""

    own: bool = eqx.field(static=True)
    control: identify.AbstractInterpolation = identify.ZeroOrderHold()

    def compare(self, given):
        return identify.Simulation(self.control).compare(given)

    def predictor(self):
        return self if self.own else identify.Simulation(self.control)

    def residuals(self, physics, model, start, window):
        simulation = identify.Simulation(self.control)
        return jax.tree.map(
            lambda x: 2 * x, simulation.residuals(physics, model, start, window)
        )


def test_objectives_name_their_held_out_errors():
    """A fit with an objective of one's own is validated by its predictor."""
    text = RAIL.format(damping=0.5)
    sys, model = eqsim.load_mjcf(text), mujoco.MjModel.from_xml_string(text)
    runs = [record(model, seed, 1.0, 1e-3) for seed in range(2)]
    windows, rms = identify.Windows(0.5), []
    for own in (False, True):
        with pytest.warns(identify.IdentificationWarning, match="not converged"):
            result = identify.fit(
                sys,
                runs[0],
                {"mass": MASS},
                windows=windows,
                objective=Doubled(own),
                validate=runs[1:],
                solver=identify.Solver(max_steps=1),
            )
        rms.append(result.validation.horizons[-1].rms["q"])
    np.testing.assert_allclose(rms[1], 2 * rms[0], rtol=1e-9)


MASS_OF_LOWER = identify.Positive(lambda s: s.links.mass, entries=(1,))


def _held():
    return record(mujoco.MjModel.from_xml_string(ARM), 50, 2.0, 1e-3, "held")


def _filtered(run, move, noise, disturbance, start):
    """Residuals of a textbook filter in matrices.

    `move(state, k)` leads from one measured time to the next: the state there, the matrix of
    its derivative, and the time between."""
    n = len(noise)
    state, spread, seen = np.array(start), np.zeros((2 * n, 2 * n)), np.eye(n, 2 * n)
    out = []
    for k, measured in enumerate(run.channels["q"]):
        state, matrix, delta = move(state, k)
        blocks = [[delta**3 / 3, delta**2 / 2], [delta**2 / 2, delta]]
        spread = matrix @ spread @ matrix.T + np.kron(blocks, np.diag(disturbance**2))
        covariance = spread[:n, :n] + np.diag(noise**2)
        error = measured - state[:n]
        out.append(noise * np.linalg.solve(np.linalg.cholesky(covariance), error))
        gain = spread[:, :n] @ np.linalg.inv(covariance)
        state, spread = state + gain @ error, spread - gain @ seen @ spread
    return np.array(out)


def _residuals(sys, run, objective, start, unknowns=MASS):
    half = len(start) // 2
    windows = identify.Windows(10.0, start=lambda r, k: (start[:half], start[half:]))
    problem = _problem(sys, [run], {"x": unknowns}, windows, objective)
    return np.asarray(residuals(problem, *_zero(problem))["q"])[0]


ROWS = 0.1 * np.array([0, 1, 2, 5, 6, 9, 13, 14, 15, 19])
WITHIN = np.array([0.0, 0.013, 0.04, 0.09, 0.1, 0.17, 0.44, 0.441, 0.5])


@pytest.mark.parametrize(
    "disturbance, time", ((0.0, ROWS), (20.0, ROWS), (0.7, WITHIN))
)
def test_innovations_are_those_of_a_kalman_filter(disturbance, time):
    """At irregular times, also several within a step, for a mass without friction: there its
    model is exact. Without disturbance they are residuals of a simulation."""
    sys, start = eqsim.load_mjcf(FREE), np.array([0.3, -0.2])
    q = np.random.default_rng(0).normal(size=(len(time), 1))
    # Steps of 0.1 s are not straight under a force.
    ctrl = np.full((len(time), 1), 0.4 if time is ROWS else 0.0)
    run = identify.Recording(time, ctrl, {"q": q})

    def move(state, k):
        delta = time[k] - time[k - 1] if k else 0.0
        matrix = np.array([[1.0, delta], [0.0, 1.0]])
        count, push = round(delta / 0.1), 0.1 * ctrl[0, 0] / 2.0
        pushed = np.array([0.1 * push * count * (count + 1) / 2, push * count])
        return matrix @ state + pushed, matrix, delta

    found = _residuals(sys, run, identify.Innovations(disturbance, 0.05), start)
    noise = np.array([0.05])
    expected = _filtered(run, move, noise, np.array([disturbance]), start)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
    if disturbance == 0.0:
        simulated = _residuals(sys, run, identify.Simulation(), start)
        np.testing.assert_allclose(found, simulated, atol=1e-12)


BALANCED = """
<mujoco><option timestep="0.005"><flag contact="disable"/></option><worldbody>
  <body><joint name="pivot" axis="0 -1 0" damping="0.05"/>
    <inertial mass="0.5" pos="0 0 0.3" diaginertia="0.01 0.01 0.01"/></body></worldbody>
  <actuator><motor joint="pivot"/></actuator></mujoco>"""


def _balance(seed: int, noise: float, disturbance: float) -> identify.Recording:
    """A pendulum that feedback of the measurements holds upright, with torques that nobody
    records."""
    rng = np.random.default_rng(seed)
    model = mujoco.MjModel.from_xml_string(BALANCED)
    data, q, ctrl = mujoco.MjData(model), [], []
    data.qpos[0] = 0.05
    for k in range(800):
        q.append(data.qpos[0] + rng.normal(0, noise))
        speed = (q[-1] - q[max(k - 4, 0)]) / 0.02
        wave = 0.4 * np.sin(0.02 * k) + 0.3 * np.sin(0.055 * k + seed)
        data.ctrl[0] = -8.0 * q[-1] - 1.0 * speed + wave
        ctrl.append(data.ctrl.copy())
        inertia = 0.01 + 0.5 * 0.3**2
        data.qfrc_applied[0] = inertia * disturbance * rng.normal() / np.sqrt(0.005)
        mujoco.mj_step(model, data)
    return identify.Recording(0.005 * np.arange(800), ctrl, {"q": q}, f"run-{seed}")


@pytest.mark.slow  # Three long recordings.
def test_innovations_of_a_balanced_pendulum():
    """Long windows of an unstable plant: innovations find its parameters, where errors of a
    simulation grow without bound."""
    sys = eqsim.load_mjcf(BALANCED.replace('pos="0 0 0.3"', 'pos="0 0 0.36"'))
    runs = [_balance(k, 1e-3, 0.5) for k in range(3)]
    unknowns = {"height": identify.Unbounded(lambda s: s.links.com, entries=((0, 2),))}
    errors = []
    for objective in (identify.Innovations(0.5, 1e-3), identify.Simulation()):
        result = identify.fit(
            sys, runs, unknowns, windows=identify.Windows(2.0), objective=objective
        )
        errors.append(abs(result.values[0] - 0.3))
        if isinstance(objective, identify.Innovations):
            low, high = result.interval()
            assert low[0] < 0.3 < high[0] and high[0] - low[0] < 0.06
            # The filter is as uncertain as it should be.
            np.testing.assert_allclose(result.sigma["q"], 1e-3, rtol=0.1)
    assert errors[0] < 0.04 and errors[0] < 0.1 * errors[1]


# Compiles four filters of a free body.
@pytest.mark.slow
def test_innovations_on_rotations():
    """Orientations are corrected as rotations: a large disturbance follows a tumbling body
    that the model believes to float."""
    text = """<mujoco><option timestep="0.01" gravity="0 0 {}"/><worldbody><body>
      <freejoint/><inertial mass="1" pos="0 0 0" diaginertia="0.01 0.02 0.03"/>
      </body></worldbody></mujoco>"""
    model = mujoco.MjModel.from_xml_string(text.format(-2.0))
    data = mujoco.MjData(model)
    data.qvel[:] = 1.0, 0.0, 0.5, 2.0, -3.0, 1.0
    q = []
    for _ in range(60):
        q.append(data.qpos.copy())
        mujoco.mj_step(model, data)
    run = identify.Recording(0.01 * np.arange(60), np.zeros((60, 0)), {"q": q})
    sys = eqsim.load_mjcf(text.format(0.0))
    gravity = {"gravity": identify.Unbounded(lambda s: s.gravity, entries=(2,))}
    sizes = []
    for disturbance in (0.0, 0.01, 1e4):
        objective = identify.Innovations(disturbance, 1e-3)
        problem = _problem(sys, [run], gravity, identify.Windows(0.6), objective)
        error = np.asarray(residuals(problem, *_zero(problem))["q"])[0]
        assert error.shape == (60, 6)
        sizes.append(np.abs(error[10:]).max())
    assert sizes[0] > 0.1 and sizes[2] < 1e-3 * sizes[0]
    assert sizes[2] < sizes[1] < 0.5 * sizes[0]
    result = identify.fit(
        sys,
        run,
        gravity,
        windows=identify.Windows(0.6),
        objective=identify.Innovations(1.0, 1e-3),
        noise={"q": 1e-3},
    )
    assert result.values[0] == pytest.approx(-2.0, abs=0.05)


SHORT = identify.Windows(0.2)
INVERSE, FILTER = identify.Inverse(), identify.Innovations(1.0, 1e-3)
REFUSED = {
    "`Inverse` does not simulate": (
        INVERSE,
        dict(windows=SHORT._replace(continuity=1.0)),
    ),
    "fewer than 2 rows with 100 samples on each side": (
        INVERSE,
        dict(windows=SHORT._replace(half=100)),
    ),
    "has no channel 'angle'": (INVERSE, dict(windows=SHORT._replace(channel="angle"))),
    "must be `JointPositions": (FILTER, dict(measure=identify.JointVelocities())),
    r"got shape \(3,\)": (identify.Innovations(np.ones(3), 1e-3), {}),
    "does not support a delay of 'q'": (
        FILTER,
        dict(unknowns={"late": identify.ChannelDelay("q")}),
    ),
    r"names the unknown channel 'q'. Channels: \['qdd'\]": (
        INVERSE,
        dict(noise={"q": 1e-3}),
    ),
}


@pytest.mark.parametrize("message", REFUSED)
def test_refusals(message):
    objective, options = REFUSED[message]
    run = record(mujoco.MjModel.from_xml_string(ARM), 1, 0.5, 1e-3)
    channels = run.channels | {"qd": run.channels["q"]}
    run = identify.Recording(run.time, run.ctrl, channels)
    options = {"unknowns": {"damping": DAMPING}, "windows": SHORT} | options
    unknowns = options.pop("unknowns")
    with pytest.raises(ValueError, match=message):
        identify.fit(
            eqsim.load_mjcf(ARM), run, unknowns, objective=objective, **options
        )


@pytest.mark.parametrize("numbers", ((-1.0, 1e-3), (1.0, 0.0)))
def test_bad_filters(numbers):
    with pytest.raises(ValueError, match="`Innovations"):
        identify.Innovations(*numbers)
