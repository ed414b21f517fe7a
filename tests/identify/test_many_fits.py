"""Forces of actuators, first-order steps, early stops, comparison of models, ensembles."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optimistix as optx
import pytest
from helpers import check_gradients
from recorded_arm import ARM, SMOOTH

import eqsim
from eqsim import actuators, identify
from eqsim.estimate.stochastic_model import measurement
from eqsim.identify import ActuatorForces, Adam, Candidate, EarlyStop, Windows
from eqsim.identify._fit import prepare
from eqsim.identify._fit_problem import residuals
from eqsim.identify._many_fits import _compared, _Judge, root_mean_square


SYS = eqsim.load_mjcf(ARM)
NAMES = SYS.actuators.names
FRICTION = actuators.StribeckFriction(0.1, 0.1, 0.5, 0.05, 0.1)
ROUGH = SYS.with_actuator_model(
    NAMES, actuators.StribeckFriction(0.0, 0.0, 1e-3, 0.0, 0.1)
)
GAIN = {
    "gain": identify.Unbounded(lambda s: s.actuators.gain, entries=((0, 0), (1, 0)))
}
VISCOUS = {"b": identify.Unbounded(lambda s: s.actuator_models[0].model.viscous)}
COULOMB = {"c": identify.Unbounded(lambda s: s.actuator_models[0].model.coulomb)}
WINDOWS = Windows(0.5, half=3)
FORCES = {"objective": ActuatorForces(), "windows": WINDOWS}


def run(seed, noise=0.0, name=None, gain=0.9):
    """Recorded forces of a gain and friction along sines, whose rates are known."""
    rng, time = np.random.default_rng(seed), np.arange(0.0, 2.0, 0.005)
    phase, rate = rng.uniform(0, 6, (2, 1, 2)), rng.uniform(2, 5, (1, 2))
    q = np.sin(rate * time[:, None] + phase[0])
    qd = rate * np.cos(rate * time[:, None] + phase[0])
    ctrl = np.sin(7 * time[:, None] + phase[1])
    force = gain * ctrl - 0.1 * np.tanh(qd / 0.1) - 0.05 * qd
    force = force + rng.normal(0, noise, q.shape) if noise else force
    channels = {"q": q, "force": force}
    return identify.Recording(time, ctrl, channels, name or f"run-{seed}")


def problem(sys, runs, unknowns, windows=WINDOWS):
    measure = measurement(identify.JointPositions())
    args = sys, runs, unknowns, windows, None, measure, eqsim.Generalized()
    return prepare(*args, ActuatorForces()).problem


# Forces.


def test_forces_are_those_of_the_law():
    """The same numbers as a formula of NumPy, up to the error of local cubics."""
    sys = SYS.with_actuator_model(NAMES, FRICTION)
    found = problem(sys, [run(0, gain=1.0)], GAIN)
    error = residuals(found, found.origin, jnp.zeros(found.batch.sd.shape))["force"]
    mask = np.asarray(found.batch.mask)
    assert np.abs(np.asarray(error)[mask]).max() < 0.01
    assert np.sqrt(np.mean(np.asarray(error)[mask] ** 2)) < 1e-3


def test_fitted_models_of_forces_act_in_simulations():
    result = identify.fit(ROUGH, [run(0), run(1)], GAIN | VISCOUS | COULOMB, **FORCES)
    expected = [0.9, 0.9, 0.05, 0.05, 0.1, 0.1]
    np.testing.assert_allclose(result.values, expected, atol=2e-3)
    state = eqsim.State(jnp.zeros(2), jnp.array([1.0, -2.0]), jnp.zeros(0))
    found = eqsim.dynamics.actuator_states(result.sys, state, jnp.ones(2)).force
    np.testing.assert_allclose(found, [0.75, 1.1], atol=0.01)


def test_held_out_errors_are_errors_of_forces():
    unknowns = GAIN | VISCOUS | COULOMB
    result = identify.fit(
        ROUGH, [run(0), run(1)], unknowns, validate=[run(2)], **FORCES
    )
    found = result.validation.horizons[-1]
    assert found.rms.keys() == {"force"}
    assert found.median["force"] < 0.01 < 0.1 < found.baseline_median["force"]


def test_derivatives_of_forces():
    """With a model that has memory, and a delay."""
    sys = SYS.with_actuator_model(NAMES, actuators.Delay(0.012, 4))
    sys = sys.with_actuator_model(NAMES, actuators.OutputTorque(0.02, 0.01))
    unknowns = GAIN | {
        "delay": identify.Bounded(
            lambda s: s.actuator_models[0].model.delay, 0.0, 0.02
        ),
        "lag": identify.Positive(lambda s: s.actuator_models[1].model.time_constant),
        "rotor": identify.Unbounded(lambda s: s.actuator_models[1].model.inertia),
    }
    found = problem(sys, [run(0)], unknowns, Windows(0.2))
    zero = jnp.zeros(found.batch.sd.shape)
    f = jax.jit(lambda theta: residuals(found, theta, zero)["force"])
    assert check_gradients(f, found.origin, eps=1e-5)["[0]"] > 0.0


def test_output_torque_is_force_less_inertia():
    """Of a constant acceleration, and with a lag of the force."""
    model, dt = actuators.OutputTorque(0.05, 0.3), 0.001
    state, zero = jnp.zeros(1), jnp.asarray(0.0)
    for k in range(1000):
        speed = jnp.asarray(2.0 * k * dt)
        state, out = model(
            state,
            eqsim.actuators.ActuatorInputs(
                zero, jnp.asarray(5.0), zero, speed, jnp.asarray(dt)
            ),
        )
    assert float(out) == pytest.approx(5.0 - 0.3 * 2.0, rel=5e-3)


# First-order steps, and early stops.


def test_adam_finds_the_minimum_of_gauss_newton():
    runs, unknowns = [run(0, 0.02), run(1, 0.02)], GAIN | VISCOUS | COULOMB
    expected = identify.fit(ROUGH, runs, unknowns, **FORCES)
    result = identify.fit(
        ROUGH, runs, unknowns, solver=Adam(600, 3e-2, check_every=100), **FORCES
    )
    np.testing.assert_allclose(result.values, expected.values, atol=1e-3)
    np.testing.assert_allclose(
        result.sigma["force"], expected.sigma["force"], rtol=0.02
    )
    assert result.cost == pytest.approx(expected.cost, rel=0.02)
    assert np.isnan(result.sd).all() and "gain[0,0]" in str(result)
    assert result.dictionary()["parameters"]["c[0]"]["sd"] is None
    assert result.dictionary()["not_identifiable"] is None
    assert [row.clear for row in result.table()] == [None] * 6
    # No dense matrices are kept.
    assert result.jacobian.strides == result.covariance.used.strides == (0, 0)
    with pytest.raises(ValueError, match="fit_ensemble"):
        _ = result.posterior


def test_adam_simulates_with_batches_of_windows():
    """Starts of windows move, and the damping of a simulated arm is found."""
    pipeline, guess = eqsim.Generalized(), 0.02
    sys = eqsim.load_mjcf(SMOOTH)
    time = np.arange(0.0, 1.0, 0.005)
    ctrl = np.sin(np.outer(time, [6.0, 9.0]))
    step = lambda state, u: (pipeline.step(sys, state, u), state.q)
    q = np.asarray(eqsim.scan(step, pipeline.init(sys), jnp.asarray(ctrl))[1])
    unknown = {"damping": identify.Positive(lambda s: s.joints.damping, initial=guess)}
    result = identify.fit(
        sys,
        identify.Recording(time, ctrl, {"q": q}),
        unknown,
        windows=Windows(0.5),
        solver=Adam(300, 0.1, batch=1, check_every=100),
    )
    np.testing.assert_allclose(result.values, [0.05, 0.03], rtol=0.15)


class Fragile(actuators.AbstractForceModel):
    """A force that is not finite at large lengths if the gain is larger than 1.1."""

    gain: jax.Array

    @property
    def num_states(self):
        return 0

    def __call__(self, state, inputs):
        fails = (inputs.length > 3.0) & (self.gain > 1.1)
        return state, jnp.where(fails, jnp.nan, self.gain * inputs.force)


def fragile(gain):
    sys = SYS.with_actuator_model(NAMES, Fragile(jnp.asarray(gain)))
    return sys.with_actuator_model(NAMES, FRICTION)


FRAGILE = {"gain": identify.Unbounded(lambda s: s.actuator_models[0].model.gain)}


def shifted(recording, by=5.0, name="far"):
    channels = recording.channels | {"q": recording.channels["q"] + by}
    return identify.Recording(recording.time, recording.ctrl, channels, name)


def test_adam_leaves_out_windows_that_fail():
    """The others are fitted, and the outcome tells."""
    near = [run(k, 0.02, gain=1.3) for k in range(2)]
    far = shifted(run(2, 0.02, gain=1.3))
    settings = {"solver": Adam(400, 3e-2, check_every=50), **FORCES}
    result = identify.fit(fragile(1.0), [*near, far], FRAGILE, **settings)
    np.testing.assert_allclose(result.values, [1.3, 1.3], atol=0.01)
    np.testing.assert_allclose(result.sigma["force"], 0.02, rtol=0.1)
    assert result.outcome == optx.RESULTS.nonlinear_divergence
    assert not np.isfinite(result.cost) and result.dictionary()["cost"] is None
    failing = np.array([name == "far" for name, _ in result.window])
    assert (np.isfinite(result.misfit) == ~failing).all() and failing.any()


def test_adam_warns_of_parameters_without_influence():
    quiet = run(0)
    quiet = identify.Recording(quiet.time, 0 * quiet.ctrl, quiet.channels)
    with pytest.warns(
        identify.IdentificationWarning, match=r"on gain\[0,0\], gain"
    ) as seen:
        identify.fit(ROUGH, quiet, GAIN | COULOMB, solver=Adam(4), **FORCES)
    assert "c[0]" not in str(seen[0].message)


class Pieces(actuators.AbstractForceModel):
    """A force at each of many lengths: enough numbers to fit noise."""

    heights: jax.Array

    @property
    def num_states(self):
        return 0

    def __call__(self, state, inputs):
        place = jnp.linspace(-1.0, 1.0, self.heights.shape[0])
        near = jnp.exp(-((30.0 * (inputs.length - place)) ** 2))
        return state, inputs.force + jnp.sum(self.heights * near)


PIECES = SYS.with_actuator_model(NAMES, Pieces(jnp.zeros(40)))
PIECES = eqx.tree_at(lambda s: s.actuators.gain, PIECES, 0.3 * SYS.actuators.gain)
HEIGHTS = GAIN | {"h": identify.Unbounded(lambda s: s.actuator_models[0].model.heights)}


@pytest.mark.parametrize("solver", (identify.Solver(), Adam(400, 0.05, check_every=20)))
def test_early_stop_returns_the_least_held_out_error(solver):
    runs, watched = [run(0, 0.2)], [run(5, 0.2)]
    stop = EarlyStop(watched, 3)
    result = identify.fit(PIECES, runs, HEIGHTS, stop=stop, solver=solver, **FORCES)
    errors = result.held_out
    assert errors[0] == 1.0 and min(errors) < 0.5
    assert len(errors) - 1 - int(np.argmin(errors)) <= 4

    def error(sys):
        found, mask = result.prediction_errors(watched, WINDOWS, sys)
        return np.mean(found["force"][mask] ** 2, axis=0)

    assert np.mean(error(result.sys) / error(PIECES)) == pytest.approx(min(errors))
    # The minimum predicts best for the first solver, and has a covariance.
    assert np.isfinite(result.sd).all() == isinstance(solver, identify.Solver)


@pytest.mark.parametrize(
    "solver", (identify.Solver(damping=30.0), Adam(400, 0.05, check_every=20))
)
def test_noise_after_an_early_stop(solver):
    """It is that of the returned iterate, which has no covariance."""
    runs, stop = run(3, 0.2), EarlyStop(run(5, 0.2), 3)
    result = identify.fit(PIECES, runs, HEIGHTS, stop=stop, solver=solver, **FORCES)
    assert 0 < np.argmin(result.held_out) < len(result.held_out) - 1
    found, mask = result.prediction_errors([runs], WINDOWS)
    rms = np.sqrt(np.mean(found["force"][mask] ** 2, axis=0))
    used = 82 / mask.sum() / 2 if isinstance(solver, identify.Solver) else 0.0
    expected = rms / np.sqrt(1 - used)
    np.testing.assert_allclose(result.sigma["force"], expected, rtol=1e-3)
    assert np.isnan(result.sd).all() and np.isnan(result.interval()).all()
    with pytest.raises(ValueError, match="ended before the minimum"):
        _ = result.posterior


def test_held_out_errors_of_a_start_that_fails():
    """It is not the unit of later errors."""
    runs, watched = [run(0, gain=0.9)], shifted(run(1, gain=0.9))
    stop = EarlyStop(watched, 20)
    result = identify.fit(fragile(1.5), runs, FRAGILE, stop=stop, **FORCES)
    assert result.held_out[0] == np.inf and min(result.held_out) <= 1.0
    np.testing.assert_allclose(result.values, [0.9, 0.9], atol=0.3)


# Many fits.


CANDIDATES = {
    "gain": Candidate(SYS, GAIN),
    "friction": Candidate(ROUGH, GAIN | VISCOUS | COULOMB),
    "too many": Candidate(
        ROUGH.with_actuator_model(NAMES, Pieces(jnp.zeros(8))),
        GAIN
        | VISCOUS
        | COULOMB
        | {"h": identify.Unbounded(lambda s: s.actuator_models[1].model.heights)},
    ),
}


@pytest.fixture(scope="module")
def comparison():
    told = []
    runs = [run(k, 0.05) for k in range(6)]
    found = identify.compare(
        CANDIDATES, runs, folds=np.int64(2), progress=told.append, **FORCES
    )
    assert [score.name for score in told] == list(CANDIDATES)
    return found


def test_the_smallest_model_that_predicts_is_chosen(comparison):
    by_name = {score.name: score for score in comparison.scores}
    assert comparison.chosen == "friction"
    assert by_name["gain"].difference_low > 0.0
    assert by_name["friction"].error == pytest.approx(0.05, rel=0.1)
    assert [score.parameters for score in comparison.scores] == [2, 6, 22]
    assert all(len(score.windows) == 6 for score in comparison.scores)
    text = str(comparison).splitlines()
    assert len(text) == 4 and "chosen" in text[2] and text[2].startswith("friction")


def test_intervals_of_the_bootstrap(comparison):
    """They contain the mean, and the mean error is that of the windows."""
    for score in comparison.scores:
        runs = [root_mean_square(x) for x in score.windows.values()]
        assert score.error == pytest.approx(np.mean(runs))
        assert score.low <= score.error <= score.high
        assert score.difference_low <= score.difference <= score.difference_high


def test_one_standard_error():
    """A small model is preferred to a better one within the standard error of the
    difference, not beyond it."""
    base = comparison_score("large", 9, [1.0, 1.0, 1.0, 1.0])
    close = comparison_score("close", 5, [1.1, 0.95, 1.1, 0.95])
    far = comparison_score("far", 1, [1.1, 1.1, 1.1, 1.2])
    judge = _Judge(WINDOWS, None, root_mean_square, 0)
    assert _compared([far, close, base], judge).chosen == "close"
    assert _compared([far, base], judge).chosen == "large"


def test_a_candidate_that_fails_is_not_chosen():
    """Unless all fail, which is an error."""
    judge = _Judge(WINDOWS, None, root_mean_square, 0)
    good = comparison_score("good", 9, [1.0, 1.2])
    bad = comparison_score("bad", 1, [1.0, np.inf])
    found = _compared([bad, good], judge)
    assert found.best == found.chosen == "good"
    assert found.scores[0].difference == np.inf and "inf" in str(found)
    with pytest.raises(
        FloatingPointError, match="Candidate 'bad' fails on run 'run-1'"
    ):
        _compared([bad, bad._replace(name="worse")], judge)


def comparison_score(name, parameters, errors):
    windows = {f"run-{k}": np.array([x]) for k, x in enumerate(errors)}
    error = float(np.mean(errors))
    return identify.ModelScore(
        name, parameters, error, 0, 0, 0, 0, 0, 0, 0, windows, {}
    )


def network(key):
    model = actuators.MLPActuator(("velocity",), (3.0,), (4,), key=key)
    return SYS.with_actuator_model(NAMES, model, shared=True)


WEIGHTS = identify.Unbounded(
    lambda s: (*s.actuator_models[0].model.weights, *s.actuator_models[0].model.biases),
    prior=identify.NormalPrior(0.0, 1.0),
)


def test_seeds_adjustments_and_early_stops_of_folds():
    """Each fold is fitted from each seed, and held-out runs are adjusted."""
    seen = []

    def adjust(result, runs):
        seen.append((len(result.held_out) > 0, [r.run for r in runs]))
        return runs

    few = Candidate(network, {"w": WEIGHTS}, {"solver": Adam(60, 0.05)}, 2, 3)
    runs = [run(k) for k in range(4)]
    found = identify.compare(
        {"network": few}, runs, folds=[["run-3"]], adjust=adjust, **FORCES
    )
    assert seen == [(True, ["run-3"])] * 2
    assert found.scores[0].seed_sd > 0.0 and found.scores[0].parameters == 13


def test_an_ensemble_is_a_randomizer():
    found = identify.fit_ensemble(
        network, [run(k) for k in range(4)], {"w": WEIGHTS}, members=3,
        solver=Adam(60, 0.05, check_every=20), **FORCES,
    )  # fmt: skip
    posterior = found.posterior
    draw = eqx.filter_jit(lambda key: posterior(key, network(jr.key(0))))
    bias = lambda sys: sys.actuator_models[0].model.weights[0]
    members = np.stack([bias(result.sys) for result in found.results])
    drawn = np.stack([bias(draw(jr.key(k))) for k in range(20)])
    nearest = np.abs(drawn[:, None] - members[None]).max(axis=(2, 3))
    assert (nearest.min(axis=1) < 1e-6).all() and set(nearest.argmin(axis=1)) == {
        0,
        1,
        2,
    }
    assert all(len(result.held_out) > 1 for result in found.results)


# Refused.


RUNS = [run(0), run(1)]
WRONG = {
    "same run": (
        lambda: identify.fit(ROUGH, RUNS, GAIN, stop=EarlyStop([RUNS[1]]), **FORCES),
        "Run 'run-1' is both fitted and held out",
    ),
    "patience": (
        lambda: identify.fit(ROUGH, RUNS, GAIN, stop=EarlyStop([run(2)], 0), **FORCES),
        "`EarlyStop.patience` must be",
    ),
    "nothing watched": (
        lambda: identify.fit(ROUGH, RUNS, GAIN, stop=EarlyStop([]), **FORCES),
        "`EarlyStop.recordings` is empty",
    ),
    "learning rate": (
        lambda: identify.fit(ROUGH, RUNS, GAIN, solver=Adam(5, 0.0), **FORCES),
        "`Adam.learning_rate` must be positive",
    ),
    "continuity": (
        lambda: identify.fit(
            SYS, RUNS, GAIN, solver=Adam(5), windows=Windows(0.5, continuity=1.0)
        ),
        "`Windows.continuity` needs `Solver`",
    ),
    "connected forces": (
        lambda: problem(SYS, RUNS, GAIN, Windows(0.5, continuity=1.0)),
        "`ActuatorForces` does not simulate",
    ),
    "no forces": (
        lambda: identify.fit(SYS, RUNS, GAIN, objective=ActuatorForces("tau")),
        r"(?s)channel 'tau', 2 columns.*'run-0' has no such channel",
    ),
    "one run": (
        lambda: identify.compare(CANDIDATES, RUNS[:1], **FORCES),
        "at least two runs are required to leave one out",
    ),
    "unknown fold": (
        lambda: identify.compare(CANDIDATES, RUNS, folds=[["run-7"]], **FORCES),
        "unknown run 'run-7'. Runs: ",
    ),
    "all runs": (
        lambda: identify.compare(
            CANDIDATES, RUNS, folds=[["run-0", "run-1"]], **FORCES
        ),
        "must leave out some runs and keep others",
    ),
    "run in two folds": (
        lambda: identify.compare(
            CANDIDATES, [*RUNS, run(2)], folds=[["run-0"], ["run-1", "run-0"]], **FORCES
        ),
        "Run 'run-0' is in two parts of `folds`",
    ),
    "folds": (
        lambda: identify.compare(CANDIDATES, RUNS, folds=np.int64(1), **FORCES),
        "`folds` must be an integer of at least 2",
    ),
    "too few runs to stop early": (
        lambda: identify.compare(
            {"odd": Candidate(SYS, GAIN, patience=2)}, RUNS, **FORCES
        ),
        "Candidate 'odd': The recordings belong to the runs",
    ),
    "ensemble with biases of runs": (
        lambda: identify.fit_ensemble(
            SYS, RUNS, {"zero": identify.ChannelBias("q", per_run=True)}, **FORCES
        ),
        "Unknown 'zero' has a bias of each run",
    ),
    "no candidates": (
        lambda: identify.compare({}, RUNS, **FORCES),
        "`candidates` is empty",
    ),
    "failed candidate": (
        lambda: identify.compare({"odd": Candidate(SYS, {})}, RUNS, **FORCES),
        "Candidate 'odd': `unknowns` is empty",
    ),
    "ensemble of one run": (
        lambda: identify.fit_ensemble(SYS, RUNS[:1], GAIN, **FORCES),
        "at least two runs are required to draw",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_refused(case):
    call, message = WRONG[case]
    with pytest.raises(ValueError, match=message):
        call()
