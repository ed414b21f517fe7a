"""Recordings cut into windows: ragged runs, irregular times and interruptions."""

import jax.numpy as jnp
import numpy as np
import pytest
from recorded_rails import DAMPING, slide, SYS, TRUTH
from toys import Rails

from eqsim import identify
from eqsim.identify._channels import measurement
from eqsim.identify._fit import prepare
from eqsim.identify._problem import residuals
from eqsim.identify._solver import iterate_at
from eqsim.identify._windows import cut


def _kept(recording: identify.Recording, rows) -> identify.Recording:
    channels = {"q": recording.channels["q"][rows]}
    args = recording.time[rows], recording.ctrl[rows], channels
    return identify.Recording(*args, recording.name)


def _problem(runs, windows):
    measure = measurement(identify.JointPositions())
    args = SYS, runs, DAMPING, windows, {"q": 0.1}, measure, Rails()
    return prepare(*args).problem


def _iterate(runs, windows):
    """Cost and derivatives away from the minimum."""
    problem = _problem(runs, windows)
    starts = np.ones(problem.batch.sd.shape)
    return iterate_at(problem, np.asarray(problem.origin), starts, 0)


def test_ragged_runs_are_padded_without_effect():
    """Runs of different lengths together cost the sum of what each costs alone."""
    runs = [slide(k, steps, 0.01) for k, steps in enumerate((60, 33, 7))]
    windows = identify.Windows(2.0)
    both = _iterate(runs, windows)
    alone = [_iterate([run], windows) for run in runs]
    assert len(both.starts) == sum(len(x.starts) for x in alone) == 6
    assert both.cost == pytest.approx(sum(x.cost for x in alone))
    for get in (lambda x: x.arrow.theta, lambda x: x.arrow.theta_gradient):
        np.testing.assert_allclose(get(both), sum(map(get, alone)), rtol=1e-9)
    counts = both.blocks.counts["q"]
    np.testing.assert_array_equal(counts[:, 0], [20, 20, 20, 20, 13, 7])


def test_irregular_times():
    """Chosen rows of a recording cost what they cost among all rows, as long as commands
    hold in between, and they are enough to find the truth."""
    whole = slide(3, 40, steady=True)
    rows = np.array([0, 1, 2, 5, 6, 9, 13, 14, 15, 19, 22, 23, 24, 27, 31, 33, 34, 38])
    start = lambda recording, row: (np.ones(2), np.zeros(2))
    windows = identify.Windows(5.0, start=start)
    few, many = (_iterate([x], windows) for x in (_kept(whole, rows), whole))
    assert few.blocks.counts["q"].sum(axis=1).tolist() == [2 * len(rows)]
    problem = _problem([whole], windows)
    error = np.asarray(residuals(problem, problem.origin, jnp.ones((1, 4)))["q"])[0]
    np.testing.assert_allclose(
        few.blocks.squares["q"][0], (error[rows] ** 2).sum(axis=0)
    )
    np.testing.assert_allclose(many.blocks.squares["q"][0], (error**2).sum(axis=0))
    args = SYS, _kept(whole, rows), DAMPING
    found = identify.fit(*args, windows=identify.Windows(5.0), pipeline=Rails())
    np.testing.assert_allclose(found.values, TRUTH, rtol=1e-3)


def test_interrupted_recordings():
    """Commands in an interruption are not known, so no window extends over it."""
    run = slide(4, 120, 1e-3)
    rows = np.r_[0:38, 51:120]
    skipped = _kept(run, rows)
    windows = identify.Windows(8.0)
    found = cut(SYS, [skipped], ["q"], windows, 0.0)
    time = found.begin[:, None] + np.asarray(found.batch.time)
    assert not ((time[:, 0] < 3.75) & (time.max(axis=1) > 3.75)).any()
    assert 5.1 in np.round(found.begin, 9)
    fit = lambda recording, windows: identify.fit(
        SYS, recording, DAMPING, windows=windows, pipeline=Rails()
    )
    error = lambda result: np.abs(result.values / TRUTH - 1).max()
    good = fit(skipped, windows)
    bad = fit(skipped, windows._replace(gap=100.0))
    assert error(good) < 0.01 and error(bad) > 10 * error(good)
    assert float(good.sigma["q"].max()) < 2e-3 < 0.1 < float(bad.sigma["q"].max())


def test_starts_do_not_look_over_interruptions():
    """The local fit after an interruption is that of a recording that begins there."""
    run = slide(5, 100, 1e-3)
    rows = np.r_[0:30, 60:100]
    windows = identify.Windows(2.0)
    found = cut(SYS, [_kept(run, rows)], ["q"], windows, 0.0)
    alone = cut(SYS, [_kept(run, np.arange(60, 100))], ["q"], windows, 0.0)
    at = int(np.flatnonzero(np.isclose(found.begin, 6.0))[0])
    for name in ("q", "qd", "sd"):
        one, other = (np.asarray(getattr(x.batch, name)) for x in (found, alone))
        if name == "sd":
            # The least noise depends on the range of motion of the whole recording.
            np.testing.assert_allclose(one[at], other[0], rtol=1e-2)
        else:
            np.testing.assert_allclose(one[at], other[0], rtol=1e-9)


def test_continuity_ends_at_interruptions():
    run = slide(6, 100)
    windows = identify.Windows(1.0, continuity=1.0)
    found = cut(SYS, [_kept(run, np.r_[0:30, 60:100])], ["q"], windows, 0.0)
    linked, begin = np.asarray(found.batch.linked), found.begin
    np.testing.assert_allclose(begin, [0, 1, 2, 6, 7, 8, 9])
    assert linked.tolist() == [True, True, False, True, True, True, False]


def test_bad_gap():
    with pytest.raises(ValueError, match="`gap` must be positive, got -1"):
        cut(SYS, [slide(7, 20)], ["q"], identify.Windows(1.0, gap=-1.0), 0.0)
