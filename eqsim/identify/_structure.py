"""Identifiability before there are data, and the design of experiments."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._errors import check_count
from .._loops import scan
from ..kinematics import integrate
from ..model import System
from ..pipelines import AbstractPipeline, Generalized
from ._arrow import eliminate
from ._fit import prepare
from ._identifiability import Identifiability, identifiability
from ._measure import JointPositions, measurement
from ._recording import Recording
from ._solver import iterate_at
from ._unknowns import AbstractUnknown
from ._windows import Windows


class Excitation(NamedTuple):
    """An experiment.

    - `time`, `ctrl`: commands to record with.
    - `information`: log-determinant of the information about the parameters, with the
        scales of `Identifiability` as a prior.
    - `identifiability`: combinations that the experiment would tell.
    """

    time: np.ndarray
    ctrl: np.ndarray
    information: float
    identifiability: Identifiability


def structure(
    sys: System,
    unknowns: Mapping[str, AbstractUnknown],
    *,
    measure: Any = JointPositions(),
    noise: float = 1e-3,
    length: float = 1.0,
    motions: int = 8,
    amplitude: float = 1.0,
    pipeline: AbstractPipeline = Generalized(),
    seed: int = 0,
) -> Identifiability:
    """Find which parameters random motions would tell.

    Combinations in `unknown` cannot be told by any recording of these channels, or not
    with this noise.

    **Arguments:**

    - `sys`, `unknowns`, `measure`: see `fit`.
    - `noise`: standard deviation of all channels, in their units.
    - `length`: length of each motion, s. `motions`: their number.
    - `amplitude`: amplitude of the commands and of the initial velocities.
    """
    check_count("motions", motions)
    rng = np.random.default_rng(seed)
    time = np.arange(0.0, length, float(sys.dt))
    ctrl = [amplitude * _sines(rng, time, sys.nu) for _ in range(motions)]
    args = sys, unknowns, measurement(measure), pipeline, noise
    return _evaluated(*args, time, ctrl, amplitude, rng)[0]


def design(
    sys: System,
    unknowns: Mapping[str, AbstractUnknown],
    length: float,
    limits: float,
    *,
    measure: Any = JointPositions(),
    noise: float = 1e-3,
    candidates: int = 16,
    pipeline: AbstractPipeline = Generalized(),
    seed: int = 0,
) -> Excitation:
    """Choose the commands that tell most about parameters (D-optimal).

    Candidates are sums of sines with random frequencies and phases, within limits. The
    one with the largest log-determinant of the information is returned.

    **Arguments:**

    - `sys`, `unknowns`, `measure`, `noise`: see `structure`.
    - `length`: length of the experiment, s; it starts at rest in the reference pose.
    - `limits`: largest absolute command.
    - `candidates`: number of random commands.
    """
    check_count("candidates", candidates)
    rng = np.random.default_rng(seed)
    time = np.arange(0.0, length, float(sys.dt))
    best = None
    args = sys, unknowns, measurement(measure), pipeline, noise
    for _ in range(candidates):
        ctrl = _sines(rng, time, sys.nu)
        ctrl *= limits / np.maximum(np.abs(ctrl).max(axis=0), 1e-12)
        found, value = _evaluated(*args, time, [ctrl], 0.0, rng)
        if best is None or value > best.information:
            best = Excitation(time, ctrl, value, found)
    assert best is not None
    return best


def _evaluated(
    sys, unknowns, measure, pipeline, noise, time, ctrl, speed, rng
) -> tuple[Identifiability, float]:
    """Evaluate some motions by the Jacobians of a fit to their own simulation."""
    runs = []
    for k, u in enumerate(ctrl):
        start = speed * rng.normal(size=sys.nv), speed * rng.normal(size=sys.nv)
        runs.append(_simulated(sys, measure, pipeline, time, u, start, f"motion-{k}"))
    states = {run.recording.name: run.start for run in runs}
    window = Windows(
        2 * time[-1],
        start=lambda recording, row: states[recording.name],
        start_sd=(1e-6, 1e-6),
    )
    recordings = [run.recording for run in runs]
    channels = {name: noise for name in recordings[0].channels}
    setup = prepare(sys, recordings, unknowns, window, channels, measure, pipeline)
    problem, theta = setup.problem, setup.theta
    now = iterate_at(problem, theta, np.zeros(problem.batch.sd.shape), 0)
    jacobian = np.asarray(jax.jacfwd(problem.values)(jnp.asarray(theta)))
    to_values = np.linalg.inv(jacobian)
    prior_free = now.arrow._replace(
        theta=np.asarray(now.blocks.hessian)[:, : len(theta), : len(theta)].sum(axis=0)
    )
    information = to_values.T @ eliminate(prior_free).matrix @ to_values
    scale = problem.scales(jnp.asarray(theta))
    found = identifiability(information, scale, setup.labels)
    return found, float(np.log1p(found.singular_values**2).sum())


class _Motion(NamedTuple):
    recording: Recording
    start: tuple[np.ndarray, np.ndarray]


def _simulated(sys, measure, pipeline, time, ctrl, start, name: str) -> _Motion:
    """Simulate commands from a random state, and measure without noise."""
    q = integrate(sys, jnp.asarray(sys.joints.ref), jnp.asarray(start[0]))
    qd = jnp.asarray(start[1])
    values = _trajectory(sys, measure, pipeline, jnp.asarray(ctrl), q, qd)
    channels = {k: np.asarray(v) for k, v in values.items()}
    recording = Recording(time, ctrl, channels, name)
    return _Motion(recording, (np.asarray(q), np.asarray(qd)))


@eqx.filter_jit
def _trajectory(sys, measure, pipeline, ctrl, q, qd):
    def step(state, u):
        return pipeline.step(sys, state, u), measure.predict(sys, state, u)

    return scan(step, pipeline.init(sys, q, qd), ctrl)[1]


def _sines(rng: np.random.Generator, time: np.ndarray, size: int) -> np.ndarray:
    """Return sums of four sines of 0.2 to 4 Hz."""
    frequency = rng.uniform(0.2, 4.0, (4, size))
    phase = rng.uniform(0, 2 * np.pi, (4, size))
    return 0.5 * np.sin(2 * np.pi * frequency * time[:, None, None] + phase).sum(axis=1)
