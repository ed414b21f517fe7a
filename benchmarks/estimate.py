"""Estimate states of real robots from measured positions, and time the estimators.

    python benchmarks/estimate.py --recordings DIR
    python benchmarks/estimate.py --recordings DIR --parts double_pendulum

Velocities are never measured. An estimate is scored by the model's prediction from it, 50 ms
ahead, against the position that was measured then. Noise is tuned by the gradient of the
likelihood on other runs. Innovations are consistent if their normalized square, divided by its
degrees of freedom (`NIS`), is 1, and neighbors are not correlated (`lag 1`).
"""

import functools as ft
import os
import pathlib
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from _bench import caption, interleaved, parser, publish, say, setting, table
from identify import _scaled, CUBE, DOUBLE, RATE, SUBSTEPS, unknowns_of_double
from scipy.optimize import minimize
from scipy.signal import savgol_coeffs

import eqsim
from eqsim import estimate, identify
from eqsim.control import ILQR, retract, state_difference
from eqsim.kinematics import difference, integrate


PIPELINE = eqsim.Generalized()
HORIZON, ITERATIONS = 5, 5
"""Steps of the moving horizon, and iterations per step at most."""


class Runs(NamedTuple):
    """Recordings of one robot on a grid, padded to one length.

    - `q`: coordinates, `(runs, T + 1, nq)`; measured where `valid`.
    - `ctrl`: controls of the steps between, `(runs, T, nu)`.
    - `ahead`: steps of a prediction.
    """

    q: np.ndarray
    valid: np.ndarray
    ctrl: np.ndarray
    ahead: int


def tune(
    sys, model, sd, runs: Runs, count: int, *, ahead: bool = False
) -> estimate.StochasticModel:
    """Choose all noise for the first `count` steps by gradients: of the likelihood, or of the
    mean error of predictions."""
    where = lambda m: (m.noise["q"], m.disturbance)
    first, sizes = where(model), [len(x) for x in where(model)]

    def changed(free):
        parts = jnp.split(jnp.exp(free), [sizes[0]])
        return eqx.tree_at(where, model, [x * p for x, p in zip(first, parts)])

    def cost(free):
        found = followed(estimate.ExtendedKalmanFilter(changed(free)), sys, sd, short)
        if not ahead:
            return -jnp.sum(found.log_likelihood) / jnp.sum(short.valid[:, 1:])
        states = found.estimates.state.q, found.estimates.state.qd
        error, known = predicted(sys, model, short, states)
        square = jnp.where(known, jnp.sum(error**2, -1), 1.0)[:, 50:]
        # Only ratios matter.
        return 1e3 * jnp.mean(jnp.sqrt(square)) + 1e-3 * jnp.sum(free**2)

    cut = lambda x, n: jnp.asarray(x[:, :n])
    short = Runs(
        cut(runs.q, count + 1),
        cut(runs.valid, count + 1),
        cut(runs.ctrl, count),
        runs.ahead,
    )
    both = jax.jit(jax.value_and_grad(cost))
    call = lambda x: tuple(np.asarray(v, float) for v in both(jnp.asarray(x)))
    found = minimize(
        call, np.zeros(sum(sizes)), jac=True, method="L-BFGS-B", options={"maxiter": 25}
    )
    say(f"noise, disturbance: {[x.tolist() for x in where(changed(found.x))]}")
    return changed(jnp.asarray(found.x))


@eqx.filter_jit
def followed(estimator, sys, sd, runs: Runs) -> estimate.Track:
    """Follow all runs from the first measured coordinates, at rest."""

    def one(q, valid, ctrl):
        start = PIPELINE.init(sys, q[0])
        memory = estimator.init(sys, start, sd)
        return estimator.track(sys, memory, ctrl, {"q": q[1:]}, valid[1:])

    return jax.vmap(one)(*map(jnp.asarray, runs[:3]))


@eqx.filter_jit
def smoothed(filter, sys, sd, runs: Runs):
    """Smooth all runs."""

    def one(q, valid, ctrl):
        first = filter.init(sys, PIPELINE.init(sys, q[0]), sd)
        found = filter.smooth(sys, first, ctrl, {"q": q[1:]}, valid[1:])
        return found.state.q[1:], found.state.qd[1:]

    return jax.vmap(one)(*map(jnp.asarray, runs[:3]))


def slopes(sys, runs: Runs, dt: float) -> dict[str, tuple]:
    """Return measured coordinates, and velocities without a model: differences, and
    Savitzky-Golay filters of the last samples (21, or 5 if `dt` is at least 5 ms) and of 7
    samples around."""
    q = jnp.asarray(runs.q)
    minus = jax.jit(jax.vmap(jax.vmap(ft.partial(difference, sys))))

    def fitted(size: int, order: int, last: bool):
        half = size - 1 if last else size // 2
        weights = savgol_coeffs(
            size, order, deriv=1, delta=dt, pos=size - 1 if last else None, use="dot"
        )
        out = jnp.zeros((*q.shape[:2], sys.nv))
        for weight, k in zip(weights, range(-half, size - half)):
            index = np.clip(np.arange(q.shape[1]) + k, 0, q.shape[1] - 1)
            out += weight * minus(q, q[:, index])
        return out[:, 1:]

    one = minus(q[:, :-1], q[:, 1:]) / dt
    size = 21 if dt < 5e-3 else 5
    return {
        "difference of two samples": (q[:, 1:], one),
        f"Savitzky-Golay, last {size}": (q[:, 1:], fitted(size, 2, True)),
        "Savitzky-Golay, 7 around *": (q[:, 1:], fitted(7, 2, False)),
    }


def predicted(sys, model, runs: Runs, states) -> tuple[jax.Array, jax.Array]:
    """Return errors of predictions from all steps, `(runs, T - ahead, nv)`, and where they are
    known."""
    ahead, T = runs.ahead, runs.ctrl.shape[1]

    def one(q, qd, ctrl, first):
        advance = lambda state, k: (model.step(sys, state, ctrl[first + k]), None)
        state = PIPELINE.init(sys, q, qd)
        return eqsim.scan(advance, state, jnp.arange(ahead))[0].q

    many = jax.jit(jax.vmap(jax.vmap(one, (0, 0, None, 0)), (0, 0, 0, None)))
    q, qd = (x[:, : T - ahead] for x in states)
    end = many(q, qd, jnp.asarray(runs.ctrl), jnp.arange(1, T - ahead + 1))
    away = jax.vmap(jax.vmap(ft.partial(difference, sys)))
    error = away(end, jnp.asarray(runs.q[:, 1 + ahead :]))
    return error, runs.valid[:, 1 + ahead :] & runs.valid[:, 1 : T - ahead + 1]


def errors(sys, model, runs: Runs, states) -> np.ndarray:
    """Return errors of predictions, NaN where they are not known."""
    error, known = map(np.asarray, predicted(sys, model, runs, states))
    return np.where(known[..., None], error, np.nan)


def compare(sys, model, sd, runs: Runs, dt: float, score: Callable) -> list[dict]:
    """Return one row per way to estimate.

    **Arguments:**

    - `score`: `errors -> columns`; errors are those of `errors`, `(runs, T - ahead, nv)`.
    """
    rows = []
    for name, states in slopes(sys, runs, dt).items():
        rows.append({"estimate": name} | score(errors(sys, model, runs, states)))
        say(rows[-1])
    kinds = estimators(model)
    for name, estimator in kinds.items():
        track = followed(estimator, sys, sd, runs)
        states = track.estimates.state.q, track.estimates.state.qd
        row = {"estimate": name} | score(errors(sys, model, runs, states))
        rows.append(row | consistency(track))
        say(rows[-1])
    states = smoothed(kinds["EKF"], sys, sd, runs)
    rows.append({"estimate": "smoother *"} | score(errors(sys, model, runs, states)))
    return rows


def estimators(model) -> dict[str, estimate.AbstractEstimator]:
    """Return all estimators by name."""
    return {
        "EKF": estimate.ExtendedKalmanFilter(model),
        "UKF": estimate.UnscentedKalmanFilter(model),
        f"MHE, {HORIZON} steps": estimate.MovingHorizon(
            model, HORIZON, ILQR(max_steps=ITERATIONS)
        ),
    }


def consistency(track: estimate.Track) -> dict:
    """Return the mean normalized square of innovations per number, and the correlation of
    neighbors, after the first 20 steps."""
    white = np.array(track.innovations.whitened)[:, 20:]
    valid = np.asarray(track.innovations.valid)[:, 20:]
    pairs = valid[:, 1:] & valid[:, :-1]
    lag = (white[:, 1:] * white[:, :-1])[pairs].mean() / (white[valid] ** 2).mean()
    return {"NIS": float((white[valid] ** 2).mean()), "lag 1": float(lag)}


# The double pendulum.


def on_grid(path: pathlib.Path, dt: float, ahead: int, T: int) -> Runs:
    """Read recordings, and interpolate them to a grid where samples are at most 5 ms apart."""
    data, out = np.load(path), []
    for first, last in zip(data["offsets"], data["offsets"][1:]):
        at = slice(first, last)
        time, q, u = (data[name][at] for name in ("time", "q", "tau_command"))
        grid = time[0] + dt * np.arange(T + 1)
        k = np.clip(np.searchsorted(time, grid, side="right") - 1, 0, len(time) - 2)
        valid = (time[k + 1] - time[k] <= 5e-3) & (grid <= time[-1])
        columns = np.stack([np.interp(grid, time, c) for c in q.T], 1)
        out.append((columns, valid, u[k[:-1]].astype(float)))
    return Runs(*map(np.stack, zip(*out)), ahead)


def double_pendulum(folder: pathlib.Path) -> tuple[str, list[dict]]:
    """Swing-ups in closed loop, by a model that is fitted to other runs."""
    folder = folder / "double_pendulum"
    fitted = identify.load_recordings(
        folder / "identification_C1.npz", ctrl="tau_command", channels={"q": "q"}
    )
    sys = identify.fit(
        eqsim.load_mjcf(DOUBLE),
        fitted,
        unknowns_of_double(signals=False),
        windows=identify.Windows(1.0),
        loss=identify.CauchyLoss(1.0, per_window=True),
    ).sys
    say("fitted")
    dt = float(sys.dt)
    model = estimate.StochasticModel(
        PIPELINE,
        estimate.JointPositions(),
        {"q": np.full(2, 1e-3)},
        np.full(2, 3.0),
    )
    sd = np.array([1e-2, 1e-2, 1.0, 1.0])
    files = ("acrobot_ilqr_tvlqr_lqr", "pendubot_ilqr_tvlqr_lqr", "pendubot_sac_lqr")
    paths = [folder / f"swingup_C1_{name}.npz" for name in files]
    parts = [on_grid(path, dt, round(0.05 / dt), 2500) for path in paths]
    steps = parts[0].ahead
    chosen = lambda at: map(
        np.concatenate, zip(*([x[at] for x in part[:3]] for part in parts))
    )
    first, runs = (Runs(*chosen(at), steps) for at in (slice(1), slice(1, None)))
    likely = tune(sys, model, sd, first, 2000)
    ahead = tune(sys, likely, sd, first, 2000, ahead=True)

    def score(error):
        error = 1e3 * error[:, 50:]
        root = np.sqrt(np.nanmean(error**2, axis=(0, 1)))
        median = np.nanmedian(np.linalg.norm(error, axis=2))
        return {
            "shoulder": float(root[0]),
            "elbow": float(root[1]),
            "median": float(median),
        }

    text = f"Double pendulum, {len(runs.q)} swing-ups of 5 s: rms errors after 50 ms, mrad."
    rows = compare(sys, likely, sd, runs, dt, score)
    track = followed(estimate.ExtendedKalmanFilter(ahead), sys, sd, runs)
    states = track.estimates.state.q, track.estimates.state.qd
    row = {"estimate": "EKF, tuned by predictions"}
    row |= score(errors(sys, model, runs, states)) | consistency(track)
    say(row)
    return text, [*rows, row]


# Tossed cubes.


def tosses(folder: pathlib.Path, chosen, ahead: int) -> Runs:
    """Read tosses, padded to the length of the longest."""
    data, out = np.load(folder / "cube_tosses" / "tosses.npz"), []
    pairs = [*zip(data["offsets"], data["offsets"][1:])]
    pairs = [pairs[k] for k in chosen]
    T = max(last - first for first, last in pairs)
    for first, last in pairs:
        q = data["q"][first:last].astype(float)
        q = np.concatenate([q, np.tile(q[-1:], (T - len(q), 1))])
        out.append((q, np.arange(T) < last - first, np.zeros((T - 1, 0))))
    return Runs(*map(np.stack, zip(*out)), ahead)


def cube_tosses(folder: pathlib.Path) -> tuple[str, list[dict]]:
    """Flights and impacts of a cube, by a model with given friction and softness."""
    sys = _scaled(eqsim.load_mjcf(CUBE), jnp.asarray([0.98]))
    model = estimate.StochasticModel(
        PIPELINE,
        estimate.JointPositions(),
        {"q": [5e-4] * 3 + [5e-3] * 3},
        np.array([0.3] * 3 + [10.0] * 3),
        substeps=SUBSTEPS,
    )
    order = np.random.default_rng(0).permutation(269)
    sd = np.array([1e-3] * 3 + [1e-2] * 3 + [2.0] * 3 + [10.0] * 3)
    model = tune(sys, model, sd, tosses(folder, order[:16], 0), 60)
    runs = tosses(folder, order[16:40], 7)
    height = runs.q[..., 2]
    near = np.array(
        [np.min(height[:, k : k + 8], 1) for k in range(1, height.shape[1] - 7)]
    )

    def score(error):
        found, low = {}, near.T[:, 5:] < 0.1
        error = error[:, 5:]
        for name, chosen in (("flight", ~low), ("contact", low)):
            part = error[chosen]
            size = lambda x: float(np.nanmedian(np.linalg.norm(x, axis=1)))
            found[f"{name}, mm"] = 1e3 * size(part[:, :3])
            found[f"{name}, deg"] = float(np.rad2deg(size(part[:, 3:])))
        return found

    text = f"Cube, {len(runs.q)} tosses: median errors after 47 ms."
    return text, compare(sys, model, sd, runs, 1 / RATE, score)


# Simulated tosses, whose states are known.


def simulated(count: int) -> list[dict]:
    """Return normalized squares of errors of simulated tosses, per degree of freedom, before
    the first contact and from then on. Where estimates are as uncertain as they should be,
    means (`NEES`, `NIS`) are 1, and medians of `NEES` those of chi-square: 0.945."""
    sys = eqsim.load_mjcf(CUBE)
    noise = {"q": [5e-4] * 3 + [5e-3] * 3}
    disturbance = np.array([0.3] * 3 + [5.0] * 3)
    model = estimate.StochasticModel(
        PIPELINE, estimate.JointPositions(), noise, disturbance, substeps=SUBSTEPS
    )
    root, factor = jnp.asarray(noise["q"]), model.process_factor(sys)
    sd = jnp.asarray([1e-3] * 3 + [1e-2] * 3 + [0.1] * 3 + [0.5] * 3)

    def toss(draws, first, away):
        def advance(state, draw):
            new = model.step(sys, state, jnp.zeros(0))
            new = retract(sys, new, factor @ draw[:12])
            return new, (new, integrate(sys, new.q, root * draw[12:]))

        q = sys.joints.ref.at[2].set(0.3)
        qd = jnp.asarray([0.5, 0.0, 0.0, 3.0, -4.0, 5.0])
        start = retract(sys, PIPELINE.init(sys, q, qd), 10 * sd * first)
        guess = retract(sys, start, sd * away)
        return guess, *eqsim.scan(advance, start, draws)[1]

    rng = np.random.default_rng(0)
    sizes = (count, 60, 18), (count, 12), (count, 12)
    given = [jnp.asarray(rng.normal(size=size)) for size in sizes]
    guess, states, q = jax.jit(jax.vmap(toss))(*given)
    touched = np.maximum.accumulate(np.asarray(_lowest(sys, states.q)) < 0.0, axis=1)
    rows = []
    for name, estimator in estimators(model).items():

        def one(guess, q):
            memory = estimator.init(sys, guess, sd)
            ctrl = jnp.zeros((q.shape[0], 0))
            return estimator.track(sys, memory, ctrl, {"q": q})

        found = eqx.filter_jit(jax.vmap(one))(guess, q)
        away = ft.partial(state_difference, sys)
        error = jax.vmap(jax.vmap(away))(found.estimates.state, states)[..., None]
        both = found.estimates.covariance, error
        nees = np.asarray(jnp.sum(error * jnp.linalg.solve(*both), (2, 3))) / 12
        nis = np.asarray(found.innovations.nis) / 6
        row: dict[str, Any] = {"estimate": name}
        for phase, chosen in (("flight", ~touched), ("contact", touched)):
            # Correlated within a toss: over all steps of all tosses.
            row[f"NEES, {phase}"] = float(nees[chosen].mean())
            row[f"median, {phase}"] = float(np.median(nees[chosen]))
            row[f"NIS, {phase}"] = float(nis[chosen].mean())
        rows.append(row)
        say(row)
    return rows


def _lowest(sys, q):
    """Return the height of the lowest corner of a cube."""
    signs = jnp.asarray(np.stack(np.meshgrid(*[(-1.0, 1.0)] * 3), -1).reshape(8, 3))
    corners = signs * sys.geoms.size[1]

    def one(q):
        poses = eqsim.kinematics.forward(sys, q)
        return jnp.min((poses.pos[0] + corners @ poses.rot[0].T)[:, 2])

    return jax.jit(jax.vmap(jax.vmap(one)))(q)


# Times.


def times(repeats: int, batch: int) -> list[dict]:
    """Return microseconds of a step per robot: alone, and in a batch."""
    rows = []
    robots: dict[str, Any] = {
        "double pendulum": (eqsim.load_mjcf(DOUBLE), 1),
        "cube on a table": (eqsim.load_mjcf(CUBE), 1),
    }
    for name, (sys, substeps) in robots.items():
        noise = {"q": 1e-3}
        model = estimate.StochasticModel(
            PIPELINE, estimate.JointPositions(), noise, 1.0, substeps=substeps
        )
        q = sys.joints.ref if sys.nq == sys.nv else sys.joints.ref.at[2].set(0.06)
        kinds = {"step alone": None} | estimators(model)
        calls = {}
        for kind, estimator in kinds.items():
            for size in (1, batch):
                calls[kind, size] = _course(sys, estimator, q, size)
        found = interleaved(calls, repeats, 60.0)
        for kind in kinds:
            row: dict[str, Any] = {"robot": name, "estimate": kind}
            for size in (1, batch):
                row[f"µs, batch of {size}"] = 1e6 * found[kind, size].best / size / 50
            rows.append(row)
            say(row)
    return rows


def _course(sys, estimator, q, size: int):
    """Make a call of 50 steps of a batch."""
    dtype = q.dtype
    ctrl = jnp.zeros((50, sys.nu), dtype)

    def one(shift):
        state = PIPELINE.init(sys, integrate(sys, q, shift))
        if estimator is None:
            step = lambda state, u: (PIPELINE.step(sys, state, u), None)
            return eqsim.scan(step, state, ctrl)[0].q
        measured = {"q": jnp.tile(state.q[None], (50, 1))}
        memory = estimator.init(sys, state, 0.01)
        return estimator.track(sys, memory, ctrl, measured).estimates.state.q[-1]

    rng = np.random.default_rng(0)
    shifts = jnp.asarray(1e-3 * rng.normal(size=(size, sys.nv)), dtype)
    run = jax.jit(jax.vmap(one))
    return lambda: run(shifts)


PARTS = ("double_pendulum", "cube_tosses", "simulated", "times")


def main() -> None:
    """Measure the chosen parts, and write their tables."""
    made = parser(__doc__, repeats=5)
    folder = pathlib.Path(os.environ.get("EQSIM_RECORDINGS", "."))
    made.add_argument("--recordings", type=pathlib.Path, default=folder)
    made.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    made.add_argument("--batch", type=int, default=256, help="robots in a batch")
    made.set_defaults(precision="double")
    options = made.parse_args()
    where = setting(options)
    found, texts = {}, []
    for part in options.parts:
        if part == "times":
            title, rows = "Times of a step.", times(options.repeats, options.batch)
        elif part == "simulated":
            title, rows = "Simulated tosses of the cube.", simulated(options.batch)
        else:
            title, rows = {"double_pendulum": double_pendulum}.get(part, cube_tosses)(
                options.recordings
            )
        found[part] = rows
        texts.append(f"{title} * uses later samples.\n\n{table(rows)}")
        text = "\n\n".join([*texts, caption(where)]) + "\n"
        publish(options, "estimate", {"where": where, "rows": found}, text)
    print(text)


if __name__ == "__main__":
    main()
