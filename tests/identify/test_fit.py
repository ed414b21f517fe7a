"""Fits to runs of MuJoCo C: parameters, intervals, posteriors, and what cannot be told."""

import dataclasses
import json

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import mujoco
import numpy as np
import optimistix as optx
import pytest
from recorded_arm import ARM, record, SMOOTH
from recorded_rails import DAMPING as RAIL_DAMPING, slide, SYS as RAILS, TRUTH
from toys import push, Rail, Rails

import eqsim
from eqsim import actuators, identify
from eqsim.estimate.stochastic_model import measurement
from eqsim.identify import _fit as fit_module, _solver
from eqsim.identify._fit import prepare
from eqsim.identify._fit_problem import evaluate
from eqsim.identify._solver import check_start, iterate_at
from eqsim.wrappers import AutoReset, DomainRandomization, TimeLimit


SYS, ROUGH = map(eqsim.load_mjcf, (SMOOTH, ARM))
DAMPING = identify.Positive(lambda s: s.joints.damping)
MASS = identify.Positive(lambda s: s.links.mass, entries=(1,))
COM = identify.Unbounded(lambda s: s.links.com, entries=((1, 2),))
UNKNOWNS = {"damping": DAMPING, "mass": MASS, "com": COM}
NOISE = 2e-3
WINDOWS = identify.Windows(0.5)


def _model(scales=(1.0, 1.0, 1.0, 1.0), text=SMOOTH):
    """The arm with other damping, mass and center of mass of the lower link."""
    spec = mujoco.MjSpec.from_string(text)
    for joint, scale in zip(spec.joints, scales[:2], strict=True):
        joint.damping = np.asarray(joint.damping) * scale
    body = spec.body("lower")
    body.mass *= scales[2]
    body.ipos[2] *= scales[3]
    model = spec.compile()
    model.opt.iterations, model.opt.tolerance = 100, 1e-14
    return model


def _runs(scales=(1.0, 1.0, 1.0, 1.0), seed=0, count=3, duration=4.0, text=SMOOTH):
    """Runs of one size, so that fits of the same unknowns share a compiled program."""
    model = _model(scales, text)
    return [record(model, seed + k, duration, NOISE) for k in range(count)]


def _truth(scales):
    return np.array([0.05, 0.03, 0.4, -0.1]) * scales


def _fit(runs, unknowns=UNKNOWNS, sys=SYS, **options):
    return identify.fit(sys, runs, unknowns, **({"windows": WINDOWS} | options))


def _coverage(seeds) -> tuple[np.ndarray, np.ndarray]:
    """Whether each interval holds the truth, and errors in standard deviations."""
    held, errors = [], []
    for seed in seeds:
        scales = np.exp(np.random.default_rng(seed).normal(0, 0.2, 4))
        result = _fit(_runs(scales, 10 * seed, text=ARM), sys=ROUGH)
        # No window is left in a wrong minimum.
        np.testing.assert_allclose(result.sigma["q"], NOISE, rtol=0.1)
        low, high = result.interval(0.95)
        held.append((low <= _truth(scales)) & (_truth(scales) <= high))
        errors.append((result.values - _truth(scales)) / result.sd)
    return np.array(held), np.array(errors)


@pytest.mark.slow  # Many fits.
def test_intervals_hold_the_truth():
    """Six hidden robots with four parameters each."""
    held, errors = _coverage(range(1000, 1006))
    assert held.mean() >= 0.85
    # Errors have the size that is claimed: neither too long nor too short intervals.
    assert 0.6 < np.sqrt((errors**2).mean()) < 1.5


# Fits two hundred robots; `test_intervals_hold_the_truth` checks six.
@pytest.mark.slow
def test_coverage():
    """95 % intervals hold about 95 % of 800 parameters: the interval of Wilson for this
    many fits, each of which counts as one because errors of its parameters are correlated,
    is within 90 to 98 %."""
    held, errors = _coverage(range(9000, 9200))
    share, n, z = held.mean(), len(held), 1.96
    center = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    reach = z / (1 + z**2 / n) * np.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    assert 0.90 <= center - reach and center + reach <= 0.98
    # Errors of correlated parameters in units of estimated standard deviations: Student's t.
    assert 1.0 < np.sqrt((errors**2).mean()) < 1.2


# Four fits of windows of 1 s of fast motions; without another start, some end in wrong minima.
@pytest.mark.slow
def test_wrong_minima_are_left():
    """Starts over growing horizons rescue windows, and with them the parameters."""
    left = []
    for seed in (8044, 8072):
        scales = np.exp(np.random.default_rng(seed).normal(0, 0.2, 4))
        for restarts in (0, 2):
            solver = identify.Solver(restarts=restarts)
            windows = identify.Windows(1.0)
            runs = _runs(scales, 10 * seed, text=ARM)
            result = _fit(runs, sys=ROUGH, windows=windows, solver=solver)
            error = np.abs(result.values / _truth(scales) - 1).max()
            left.append((restarts, error, result.misfit.max()))
    worst = {k: max(e for r, e, _ in left if r == k) for k in (0, 2)}
    assert worst[0] > 0.02 and worst[2] < 0.01
    assert max(m for r, _, m in left if r == 2) < 2


def test_positive_numbers_are_found_from_any_start():
    """At a tiny value the cost hardly depends on the logarithm."""
    runs = _runs((2.0, 2.0, 1.0, 1.0), 0, 2, 2.0)
    start = lambda value: eqx.tree_at(
        lambda s: s.joints.damping, SYS, jnp.full(2, value)
    )
    near = _fit(runs, {"d": DAMPING})
    for value in (1e-30, 1e4):
        found = _fit(runs, {"d": DAMPING}, start(value))
        np.testing.assert_allclose(found.values, near.values, rtol=1e-3)
        np.testing.assert_allclose(found.sd, near.sd, rtol=0.05)
        assert not any(row.at_bound for row in found.table())


def test_what_is_zero_stops_at_its_bound():
    """There is no armature; its search ends."""
    spec = mujoco.MjSpec.from_string(SMOOTH)
    for joint in spec.joints:
        joint.armature = 0.0
    runs = [record(spec.compile(), k, 2.0, NOISE) for k in range(2)]
    where = lambda s: s.joints.armature
    unknown = identify.Positive(where, shared=True, initial=0.1)
    result = _fit(runs, {"armature": unknown})
    assert result.values[0] < 1e-3 and result.interval()[1][0] < 0.1
    assert result.steps < 300


@pytest.fixture(scope="module")
def held():
    return _runs((2.0, 2.0, 1.3, 1.2), 60, 2, text=ARM)


@pytest.fixture(scope="module")
def arm(held):
    """A fit of a robot with dry friction."""
    runs = _runs((2.0, 2.0, 1.3, 1.2), 50, text=ARM)
    return _fit(runs, sys=ROUGH, validate=held)


def test_noise_and_validation(arm, held):
    """The noise is found, and the fit predicts other runs better than its start."""
    np.testing.assert_allclose(arm.sigma["q"], NOISE, rtol=0.1)
    errors = arm.validation.horizons[-1]
    assert errors.ratio["q"][2] < 0.5
    assert max(errors.rms["q"]) < max(errors.baseline_rms["q"])
    text = str(arm)
    assert "damping[0]" in text and "held out: 2 runs" in text
    # Predictions by any robot, with its own windows: those of the validation.
    for sys, rms in ((None, errors.rms), (ROUGH, errors.baseline_rms)):
        found, mask = arm.prediction_errors(held, WINDOWS, sys)
        square = (found["q"] ** 2 * mask[..., None]).sum(axis=(0, 1)) / mask.sum()
        np.testing.assert_allclose(np.sqrt(square), rms["q"], rtol=1e-6)


def test_draws_change_what_was_identified(arm):
    """And keep everything else as it is."""
    draws = jax.vmap(lambda key: arm.sample(key).links.mass[1])(
        jr.split(jr.key(0), 4000)
    )
    assert float(jnp.std(draws)) == pytest.approx(arm.sd[2], rel=0.1)
    drawn = arm.posterior(jr.key(1), ROUGH)
    assert drawn.geoms is ROUGH.geoms or drawn.geoms.size is ROUGH.geoms.size
    assert drawn.joints.frictionloss is ROUGH.joints.frictionloss
    assert drawn.links.mass is not ROUGH.links.mass


def test_files(arm, tmp_path):
    """MJCF and JSON give back what was found; the page stands by itself."""
    arm.save(tmp_path / "arm.json")
    model = mujoco.MjModel.from_xml_path(str(tmp_path / "arm.xml"))
    np.testing.assert_allclose(model.body_mass[2], arm.values[2])
    np.testing.assert_allclose(model.dof_damping, arm.values[:2])
    stored = json.loads((tmp_path / "arm.json").read_text())
    assert stored["parameters"]["mass"]["value"] == arm.values[2]
    arm.report(tmp_path / "arm.html")
    page = (tmp_path / "arm.html").read_text()
    assert "damping[0]" in page and "data:image/png;base64," in page
    assert "http://" not in page and "https://" not in page


ARMATURE = identify.Positive(lambda s: s.joints.armature, entries=(0,))
INERTIA = identify.Positive(lambda s: s.links.inertia, entries=((0, 1),))
PLANTED = {
    # Both add to the inertia about the shoulder, and to nothing else.
    "armature and inertia": {"armature": ARMATURE, "inertia": INERTIA},
    # Only their product moves the arm.
    "gear and gain": {
        "gear": identify.Positive(lambda s: s.actuators.gear, entries=((0, 0),)),
        "gain": identify.ChannelGain("ctrl", columns=(0,)),
    },
}


@pytest.mark.parametrize("case", PLANTED)
@pytest.mark.quick_cases("gear and gain")
def test_unidentifiable_combinations_are_named(case):
    """What is planted is named; with a prior, the fit is finite anyway."""
    result = _fit(_runs(seed=70, count=1), PLANTED[case] | {"damping": DAMPING})
    assert np.isfinite(result.values).all() and np.isfinite(result.sd).all()
    assert len(result.identifiability.unknown) == 1
    found = result.identifiability.unknown[0].text
    assert all(name in found for name in PLANTED[case]) and "damping" not in found
    clear = {row.name: row.clear for row in result.table()}
    assert clear["damping[0]"] and not any(clear[name] for name in PLANTED[case])


def test_experiments_before_there_are_data():
    """What no motion can tell is named; the best experiment tells more than its rivals."""
    one = {"inertia": INERTIA, "mass": MASS}
    find = identify.structural_identifiability
    found = find(SYS, one | {"armature": ARMATURE}, length=0.5, motions=1)
    assert len(found.unknown) == 1
    text = found.unknown[0].text
    assert "armature" in text and "inertia" in text and "mass" not in text
    # One of the two is enough.
    assert not find(SYS, one, length=0.5, motions=1).unknown
    design = lambda limits, count: identify.design_experiment(
        SYS, one, 0.5, limits, candidates=count
    )
    single, best, strong = design(0.5, 1), design(0.5, 4), design(2.0, 1)
    # The first candidate is among the four, and is not the best; stronger ones tell more.
    assert single.information < best.information < strong.information
    assert np.abs(best.ctrl).max() == pytest.approx(0.5)
    assert best.ctrl.shape == (len(best.time), SYS.nu)


def test_signals():
    """Gain, bias and delay of commands, and the bias of an encoder, are found."""
    plain = record(_model(), 80, 6.0, 5e-4)
    delay, gain, offset = 0.012, 0.8, 0.05
    late = np.stack(
        [np.interp(plain.time + delay, plain.time, column) for column in plain.ctrl.T],
        1,
    )
    channels = {"q": plain.channels["q"], "angle": plain.channels["q"] + 0.02}
    recording = identify.Recording(plain.time, (late - offset) / gain, channels)
    unknowns = {
        "gain": identify.ChannelGain("ctrl", shared=True),
        "offset": identify.ChannelBias("ctrl"),
        "delay": identify.ChannelDelay(initial=5e-3, upper=0.05),
        "encoder": identify.ChannelBias("angle"),
    }
    measure = identify.JointPositions(), identify.JointPositions("angle")
    result = _fit(recording, unknowns, measure=measure)
    truth = np.array([gain, offset, offset, delay, 0.02, 0.02])
    np.testing.assert_allclose(result.values, truth, atol=4e-3)
    assert result.signals.delays["ctrl"] == pytest.approx(delay, abs=1e-3)


def test_zero_of_each_run():
    """Encoders that were set to zero anew before each run: offsets of runs are found, and
    parameters as well as without offsets."""
    offsets = np.array([[0.03, -0.02], [-0.04, 0.01], [0.0, 0.05]])
    runs = [
        identify.Recording(x.time, x.ctrl, {"q": x.channels["q"] + offset}, x.name)
        for x, offset in zip(_runs(seed=300), offsets, strict=True)
    ]
    zero = identify.ChannelBias("q", per_run=True)
    result = _fit(runs, UNKNOWNS | {"zero": zero})
    order = np.argsort([x.run for x in runs])
    found = result.values[len(UNKNOWNS) + 1 :].reshape(3, 2)
    np.testing.assert_allclose(found, offsets[order], atol=2e-3)
    np.testing.assert_allclose(result.values[:4] / _truth(np.ones(4)), 1.0, atol=0.05)
    np.testing.assert_allclose(result.sigma["q"], NOISE, rtol=0.1)
    assert result.names[-1] == "run 2: zero[1]"
    # Runs that are not fitted have no offset.
    other = record(_model(), 350, 2.0, NOISE)
    errors, _ = result.prediction_errors([other], WINDOWS)
    assert np.abs(errors["q"][:, 0]).max() < 5.0 * NOISE


def test_zeros_of_columns():
    """Offsets of the columns of a channel may be unknowns of their own."""
    runs, columns = _runs(seed=320, count=2), (0, 1)
    zeros = {
        f"zero {k}": identify.ChannelBias(
            "q", (k,), per_run=True, initial=0.1 * (k + 1)
        )
        for k in columns
    }
    problem = prepare(
        SYS, runs, zeros, WINDOWS, None, measurement(identify.JointPositions())
    ).problem
    biases = problem.model(problem.origin).signals.run_biases["q"]
    np.testing.assert_allclose(biases, [[0.1, 0.2], [0.1, 0.2], [0.0, 0.0]])


def test_objectives_without_simulation_refuse_memory():
    sys = SYS.with_actuator_model(SYS.actuators.names, actuators.Delay(0.01, 2))
    with pytest.raises(ValueError, match=r"actuator models \(Delay\)"):
        _fit(_runs(seed=330, count=1), sys=sys, objective=identify.Inverse())


def test_settling_windows():
    """The first samples of a window are simulated, and not compared."""
    runs = _runs(seed=310, count=1)
    result = _fit(runs, windows=identify.Windows(0.5, settle=0.1))
    mask, time = result.problem.batch.mask, result.problem.batch.time
    assert not np.any(mask & (time < 0.1)) and np.all(mask.sum(axis=1) > 0)
    with pytest.raises(ValueError, match="less than `length`"):
        _fit(runs, windows=identify.Windows(0.5, settle=0.5))
    with pytest.raises(ValueError, match="`horizons` must be longer"):
        windows = identify.Windows(0.5, settle=0.1)
        _fit(runs, windows=windows, validate=_runs(seed=311, count=1), horizons=[0.1])


def test_robust_loss():
    """A run with wrong rows spoils least squares, and not a robust loss."""
    clean, errors = record(_model(), 90, 6.0, NOISE), []
    q = clean.channels["q"].copy()
    q[::37] += 0.3
    spoiled = identify.Recording(clean.time, clean.ctrl, {"q": q})
    for loss in (identify.SquareLoss(), identify.CauchyLoss()):
        result = _fit(spoiled, loss=loss)
        errors.append(np.abs(result.values / _truth(np.ones(4)) - 1).max())
    assert errors[1] < 0.25 * errors[0] and errors[1] < 0.1


def test_bounds_hold():
    """No iterate leaves its bounds, and a parameter that stops there is reported."""
    bounded = identify.Bounded(
        lambda s: s.joints.damping, 0.01, 0.07, entries=(0,), initial=0.03
    )
    seen = []
    told = lambda values, cost, step: seen.append(values[0])
    runs, unknowns = _runs((2.0, 1.0, 1.0, 1.0), 95, 1), {"d": bounded, "mass": MASS}
    result = _fit(runs, unknowns, progress=told)
    assert 0.01 <= min(seen) and max(seen) <= 0.07
    assert result.values[0] == 0.07 and result.table()[0].at_bound
    # A start at the other bound leaves it.
    again, _ = _minimized(result, np.where([True, False], 0.01, result.theta))
    np.testing.assert_allclose(again.theta, result.theta, atol=1e-3)


def test_data_that_tell_nothing():
    """They are named, and a fit that can go on stays finite."""
    (run,) = _runs(seed=96, count=1, duration=2.0)
    channels = run.channels | {"s": np.ones(len(run.time))}
    still = identify.Recording(run.time, run.ctrl, channels)
    constant = identify.FunctionMeasurement(lambda sys, state: {"s": state.q[:1]})
    measure = measurement((identify.JointPositions(), constant))
    with pytest.warns(identify.IdentificationWarning, match="'s' is constant"):
        prepare(SYS, [still], {"mass": MASS}, WINDOWS, None, measure)
    quiet = identify.Recording(run.time, 0 * run.ctrl, run.channels)
    gear = identify.Positive(lambda s: s.actuators.gear, entries=((0, 0),))
    with pytest.warns(identify.IdentificationWarning, match="depends on gear"):
        result = _fit(quiet, {"gear": gear, "damping": DAMPING})
    assert np.isfinite(result.sd).all()


# Friction of one joint, a recording, and arguments of `fit`, all refused before compiling.
HALF = eqsim.load_mjcf(ARM.replace(' frictionloss="0.05"', ""))
RUN = record(_model(), 96, 2.0, NOISE)
SHORT = identify.Recording(RUN.time, RUN.ctrl[:, :1], RUN.channels)
FRICTION = identify.Positive(lambda s: s.joints.frictionloss, initial=0.1)
REFUSED = {
    "No window of 0.01 s": dict(windows=identify.Windows(0.01)),
    "no channel 'qd'": dict(measure=identify.JointVelocities()),
    "1 columns .* 2 controls": dict(runs=SHORT),
    r"friction\[1\] cannot influence": dict(sys=HALF, unknowns={"friction": FRICTION}),
    "'run-96' is both": dict(validate=[RUN]),
    "Unknown 'names': `where` must select arrays .*got": dict(
        unknowns={"names": identify.Positive(lambda s: s.actuators.names)}
    ),
    "`Solver.max_steps`": dict(solver=identify.Solver(max_steps=0)),
    "`Solver.rounds`": dict(solver=identify.Solver(rounds=0)),
    "`Solver.restarts`": dict(solver=identify.Solver(restarts=-1)),
    "`Solver.rtol`": dict(solver=identify.Solver(rtol=-1.0)),
    "`Solver.damping`": dict(solver=identify.Solver(damping=0.0)),
}


@pytest.mark.parametrize("message", REFUSED)
def test_refusals(message):
    with pytest.raises(ValueError, match=message):
        _fit(**({"runs": RUN, "unknowns": {"mass": MASS}} | REFUSED[message]))


def _rails(sys=RAILS, seeds=(0, 1), steps=(60, 40), noise=2e-2, **options):
    runs = [slide(seed, count, noise) for seed, count in zip(seeds, steps, strict=True)]
    options = {"windows": identify.Windows(2.0), "pipeline": Rails()} | options
    return identify.fit(sys, runs, RAIL_DAMPING, **options)


@pytest.fixture(scope="module")
def result():
    return _rails()


def test_fits_that_stop_early_say_so(result, tmp_path):
    """In the text, the report, the file, and by a warning."""
    assert "not converged" not in str(result) + str(result.dictionary())
    with pytest.warns(
        identify.IdentificationWarning, match="reached its largest number"
    ):
        early = _rails(solver=identify.Solver(max_steps=1))
    assert str(early).startswith("not converged: the solver reached")
    assert "95 % interval (not valid)" in str(early)
    assert early.dictionary()["outcome"].startswith("not converged")
    early.report(tmp_path / "report.html")
    assert "Not converged: the solver" in (tmp_path / "report.html").read_text()


STICKING = """<mujoco><option timestep="0.005" integrator="implicitfast"/><worldbody>
  <body><joint name="j" axis="0 1 0"/>
    <geom type="capsule" size="0.03" fromto="0 0 0 0 0 -0.4" mass="0.8"/></body></worldbody>
  <actuator><motor name="m" joint="j"/></actuator></mujoco>"""


def _sticking(lag, coulomb, static):
    sys = eqsim.load_mjcf(STICKING)
    for model in (
        actuators.TorqueLag(lag),
        actuators.StribeckFriction(coulomb, static, 0.3),
    ):
        sys = sys.with_actuator_model("m", model)
    return sys


def test_sticking_and_fast_turns():
    """Windows that begin near sticking are very nonlinear in their starts, and a step too far
    makes fast turns so sensitive that the matrix of a start is singular."""
    real, guess = _sticking(0.03, 0.15, 0.25), _sticking(0.01, 0.05, 0.08)
    pipeline, time = eqsim.Generalized(), np.arange(400) * 0.005
    step = lambda state, u: (pipeline.step(real, state, u), state.q)
    simulate = jax.jit(lambda ctrl: eqsim.scan(step, pipeline.init(real), ctrl)[1])
    part = lambda k: lambda s: s.actuator_models[k].model
    unknowns = {
        "lag": identify.Positive(lambda s: part(0)(s).time_constant),
        "coulomb": identify.Positive(lambda s: part(1)(s).coulomb),
        "static": identify.Positive(lambda s: part(1)(s).static),
    }

    def fitted(start, amplitude):
        runs = []
        for seed in (0, 1, 3):
            rng = np.random.default_rng(seed)
            rates = rng.uniform(1.0, 12.0, 3)
            u = amplitude * np.sin(np.outer(time, rates)).sum(axis=1, keepdims=True)
            q = np.asarray(simulate(jnp.asarray(u))) + rng.normal(0, 1e-3, (400, 1))
            runs.append(identify.Recording(time, u, {"q": q}, f"r{seed}"))
        with pytest.warns(
            identify.IdentificationWarning, match="has 1 activations"
        ) as told:
            found = identify.fit(start, runs, unknowns)
        assert len(told) == 1
        return found

    truth = [0.03, 0.15, 0.25]
    for start, amplitude in ((guess, 0.25), (real, 1.5)):
        result = fitted(start, amplitude)
        assert not result.not_converged
        np.testing.assert_allclose(result.values, truth, rtol=0.15)


def test_windows_too_sensitive_to_their_start(result):
    """The error names the recording of a window of growth 1e10 in one direction. Precise
    sensors, which determine all directions, are no problem."""
    now = iterate_at(result.problem, result.theta, result.starts, 0)
    places = ["a", "", "window 2 (recording 'b')"]
    for change, message in (
        (lambda matrix: matrix * 1e20, "The cost is not finite"),
        (lambda matrix: matrix + 1e20, r"recording 'b'.* too long, or the sim"),
    ):
        matrices = now.arrow.diagonal.copy()
        matrices[2] = change(matrices[2])
        changed = now._replace(cost=np.inf, arrow=now.arrow._replace(diagonal=matrices))
        with pytest.raises(FloatingPointError, match=message):
            check_start(changed, places)


@pytest.mark.parametrize("length, noise", ((2.8, None), (3.5, {"q": 1e-3})))
def test_sensitive_windows_among_others(length, noise):
    """A pendulum that swings, and one that stands upright, whose motion depends on one
    direction of its start alone. When the noise has been estimated, the prior of the other
    direction is lost to rounding, which does not end the fit. An error is raised only if the
    growth is above 1e9."""
    sys, pipeline = eqsim.load_mjcf(STICKING), eqsim.Generalized()
    time = np.arange(round(length / 0.005) + 1) * 0.005
    ctrl = np.sin(3.0 * time)[:, None]
    step = lambda state, u: (pipeline.step(sys, state, u), state.q)
    q = eqsim.scan(step, pipeline.init(sys), jnp.asarray(ctrl))[1]
    swing = np.asarray(q) + np.random.default_rng(0).normal(0, 1e-3, q.shape)
    swings = identify.Recording(time, ctrl, {"q": swing}, "swings")
    stands = identify.Recording(
        time, 0.0 * ctrl, {"q": np.full(q.shape, np.pi)}, "stands"
    )
    windows = identify.Windows(length, start_sd=(3e-3, 0.02))
    start = eqx.tree_at(lambda s: s.links.mass, sys, 1.2 * sys.links.mass)
    mass = {"mass": identify.Positive(lambda s: s.links.mass)}
    fitted = lambda *runs: identify.fit(start, runs, mass, windows=windows, noise=noise)
    if noise is not None:
        with pytest.raises(FloatingPointError, match="recording 'stands'.* sensitive"):
            fitted(swings, stands)
        return
    found = fitted(swings, stands)
    now = iterate_at(found.problem, found.theta, found.starts, 0)
    assert 1e14 < np.abs(now.arrow.diagonal).max() < 1e18
    assert not found.not_converged
    np.testing.assert_allclose(found.values, np.asarray(sys.links.mass), rtol=1e-3)


def test_noise_that_cannot_be_used_is_left_out(result, monkeypatch):
    """A finished fit keeps its noise if a window is too sensitive to its start with the next
    estimate. Here estimates grow, so that there is a next one."""
    estimate, noises = fit_module._with_noise, []

    def larger(rounds, problem, now):
        sigma = {"q": estimate(rounds, problem, now).sigma["q"] * 1.1 ** len(noises)}
        noises.append(sigma["q"])
        return eqx.tree_at(lambda p: p.sigma, problem, sigma)

    unusable = lambda *now: iterate_at(*now)._replace(cost=np.inf)
    monkeypatch.setattr(fit_module, "_with_noise", larger)
    monkeypatch.setattr(fit_module, "iterate_at", unusable)
    found = _rails(solver=identify.Solver(rounds=8, restarts=0))
    assert not found.not_converged and len(noises) < 8
    np.testing.assert_array_equal(found.sigma["q"], noises[-2])
    np.testing.assert_allclose(found.values, result.values, rtol=0.1)


@pytest.mark.parametrize("radius", (0.0, 1e-3))
def test_failing_simulations_are_no_minimum(result, monkeypatch, radius):
    """Simulations fail but for the start and its neighborhood: steps become small, as they do
    at a minimum, but the model of the cost still predicts a decrease."""
    begin = result.theta + 0.1

    def fails_elsewhere(problem, theta, starts, steps):
        found = iterate_at(problem, theta, starts, steps)
        if np.abs(theta - begin).max() <= radius:
            return found
        blocks = found.blocks._replace(cost=np.full(len(starts), np.inf))
        return found._replace(cost=np.inf, blocks=blocks)

    monkeypatch.setattr(_solver, "iterate_at", fails_elsewhere)
    _, outcome = _minimized(result, begin)
    assert outcome == optx.RESULTS.nonlinear_divergence


def test_limited_steps_are_no_minimum(result, monkeypatch):
    """The largest step of a logarithm makes all of a step small."""
    monkeypatch.setattr(_solver, "_largest_steps", lambda problem: np.full(2, 1e-6))
    now, outcome = _minimized(result, result.theta + 0.1, max_steps=8)
    assert outcome == optx.RESULTS.nonlinear_max_steps_reached and now.steps == 8


def _minimized(result, theta, starts=None, **settings):
    quiet, solver = lambda *now: False, identify.Solver(**settings)
    starts = result.starts if starts is None else starts
    return _solver.minimize(
        result.problem, theta, starts, result.bounds, solver, quiet, []
    )


def test_a_start_at_a_minimum_has_converged(result):
    """Also with a tolerance near that of rounding, and where residuals are zero."""
    now, _ = _minimized(result, result.theta, rtol=1e-12)
    again, outcome = _minimized(result, now.theta, now.starts, rtol=1e-12)
    assert outcome == optx.RESULTS.successful and again.steps < 10
    np.testing.assert_allclose(again.theta, now.theta, atol=1e-6)
    real = eqx.tree_at(lambda s: s.joints.damping, RAILS, jnp.asarray(TRUTH))
    exact = _rails(real, noise=0.0)
    assert not exact.not_converged
    np.testing.assert_allclose(exact.values, TRUTH, rtol=1e-6)


@pytest.mark.parametrize("distance", (0.1, 10.0))
def test_kinks_are_minima_near_predicted_ones(result, monkeypatch, distance):
    """All steps increase a cost with a kink where the fit starts. It has converged if the
    derivatives predict a minimum within half a standard deviation."""
    assembled, sd = _solver._assembled, np.sqrt(np.diag(result.covariance.used))
    begin = result.theta + distance * sd

    def with_kink(problem, theta, starts, blocks, steps):
        found = assembled(problem, theta, starts, blocks, steps)
        return found._replace(cost=found.cost + 1e6 * np.abs(theta - begin).sum())

    monkeypatch.setattr(_solver, "_assembled", with_kink)
    now, outcome = _minimized(result, begin, rtol=1e-9)
    np.testing.assert_allclose(now.theta, begin, atol=1e-5)
    near = optx.RESULTS.successful, optx.RESULTS.nonlinear_divergence
    assert outcome == near[int(distance > 1)] and now.steps < 100


def test_wrong_derivatives_are_no_minimum():
    """No step decreases the cost if the sign of all derivatives is wrong."""
    fixed = jax.lax.stop_gradient
    wrong = lambda sys, state: {"q": 2 * fixed(state.q) - state.q}
    with pytest.warns(
        identify.IdentificationWarning, match="as its derivatives predict"
    ):
        found = _rails(measure=wrong)
    assert found.outcome == optx.RESULTS.nonlinear_divergence
    assert found.dictionary()["outcome"].startswith("not converged: no step")


def test_posterior_randomizes_at_every_reset(result):
    """Robots of episodes are spread as the posterior; only the fitted numbers are carried."""
    env = AutoReset(TimeLimit(DomainRandomization(Rail(), result.posterior), 2))
    out = eqsim.rollout(env, push, jr.split(jr.key(0), 200), 8)
    changed = out.state.inner.inner.changed
    paths = jax.tree_util.tree_leaves_with_path(changed)
    assert [jax.tree_util.keystr(path) for path, _ in paths] == [".joints.damping"]
    damping = np.asarray(changed.joints.damping)[:, ::2].reshape(-1, 2)
    assert len(np.unique(damping[:, 0])) == len(damping) == 800
    free, used = np.log(damping), result.covariance.used
    np.testing.assert_allclose(np.cov(free.T), used, atol=0.15 * used.max())
    np.testing.assert_allclose(np.exp(free.mean(axis=0)), result.values, rtol=0.02)
    low, high = result.interval(0.999)
    assert (low < TRUTH).all() and (TRUTH < high).all()


def test_draws_stay_within_bounds(result):
    """However uncertain a positive number is, no draw is negative or infinite."""
    posterior = result.posterior
    wide = dataclasses.replace(posterior, factor=100 * jnp.eye(2))
    draw = lambda key: wide(key, RAILS).joints.damping
    damping = np.asarray(jax.vmap(draw)(jr.split(jr.key(1), 500)))
    low, high = (np.exp(np.asarray(x)) for x in (posterior.lower, posterior.upper))
    inside = (low * (1 - 1e-12) <= damping) & (damping <= high * (1 + 1e-12))
    assert inside.all() and (damping == damping.min(axis=0)).sum() > 100


def test_other_numbers_compile_nothing(result):
    """Other robots, recordings, noise, widths of losses and settings of the solver are
    numbers; only other sizes are compiled."""
    _rails(loss=identify.HuberLoss(1.0))
    before = evaluate._cached._cache_size()
    _rails(eqx.tree_at(lambda s: s.links.mass, RAILS, 1.1 * RAILS.links.mass))
    _rails(seeds=(5, 6), noise=1e-3)
    _rails(steps=(59, 38))  # Windows of as many samples or fewer.
    with pytest.warns(identify.IdentificationWarning, match="not converged"):
        _rails(solver=identify.Solver(max_steps=1, damping=1.0))
    _rails(noise=1e-2, validate=[slide(9, 40)])
    _rails(loss=identify.HuberLoss(2.0))
    assert evaluate._cached._cache_size() == before
    # Eight windows are another size.
    _rails(steps=(120, 40))
    assert evaluate._cached._cache_size() == before + 1


def _driven(sys, seeds):
    """Recordings of a robot that is simulated with random commands."""
    pipeline = eqsim.Generalized()
    step = lambda state, u: (pipeline.step(sys, state, u), state.q)
    simulate = jax.jit(lambda ctrl: eqsim.scan(step, pipeline.init(sys), ctrl)[1])
    time = np.arange(600) * float(sys.dt)
    for seed in seeds:
        rng = np.random.default_rng(seed)
        phases = rng.uniform(0.0, 6.0, (2, 4, sys.nu))
        rates = rng.uniform(2.0, 25.0, (4, 1))
        ctrl = 0.4 * np.sin(rates * time[:, None, None] + phases[0]).sum(axis=1)
        q = np.asarray(simulate(jnp.asarray(ctrl)))
        q = q + 1e-4 * rng.normal(size=q.shape)
        yield identify.Recording(time, ctrl, {"q": q}, str(seed))


def test_actuator_models_are_identified():
    """A delay of commands, and friction of a gearbox."""
    model = lambda k: lambda s: s.actuator_models[k].model
    names = SYS.actuators.names
    attach = lambda delay, coulomb: SYS.with_actuator_model(
        names, actuators.Delay(delay, 8)
    ).with_actuator_model(names, actuators.StribeckFriction(coulomb, 0.0, 0.3))
    runs = [*_driven(attach(0.009, 0.12), (0, 1))]
    unknowns = {
        "delay": identify.Positive(lambda s: model(0)(s).delay, shared=True),
        "coulomb": identify.Unbounded(lambda s: model(1)(s).coulomb),
    }
    windows = identify.Windows(0.4, settle=0.02)
    result = identify.fit(attach(0.004, 0.02), runs, unknowns, windows=windows)
    np.testing.assert_allclose(result.values, [0.009, 0.12, 0.12], rtol=0.05)
