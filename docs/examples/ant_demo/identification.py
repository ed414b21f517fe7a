r"""Finds the parameters of a robot from a recording, by derivatives of the simulator.

The recording is cut into short windows, so that chaos has no time to grow. Unknown are
the parameters and the state at the start of each window: a window that started from a
*measured* state would bias the parameters. What is minimized is the sum of squares of
measured minus simulated coordinates and velocities, in units of their noise.

When a foot touches down, MuJoCo's contact force sets in with a jump. Whether it does so
one step earlier or later is not differentiable, and a millimeter of noise can decide
it. The first fit therefore discounts windows that do not fit (a Cauchy loss); the second
leaves those out altogether that no noise can explain, and is plain least squares.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
import optimistix as optx
from jaxtyping import Array, Float

import eqsim
from eqsim import kinematics

from .recording import NOISE_Q, NOISE_QD, Recording
from .robot import changed


LENGTH = 5
"""Measurements per window."""
PERCENT = 0.01
PLAIN = 1e9
"""The softness at which a Cauchy loss is a square."""


class Unknowns(eqx.Module):
    """What is to be found.

    - `scales`: logarithms of the parameters over the file's, in percent.
    - `starts`: states at the start of the windows less the measured ones, in units of
        the noise.
    """

    scales: Float[Array, " n"]
    starts: Float[Array, "k states"]


class Problem(eqx.Module):
    """Windows of a recording, and how much each counts."""

    sys: eqsim.System
    q: Float[Array, "k length nq"]
    qd: Float[Array, "k length nv"]
    ctrl: Float[Array, "k length nu"]
    weight: Float[Array, " k"]
    softness: Float[Array, ""]


class Details(eqx.Module):
    """By-products of the residuals: sum of squares per window, and derivatives."""

    misfit: Float[Array, " k"]
    by_scales: Float[Array, "k residuals n"]
    by_start: Float[Array, "k residuals states"]


class Fit(NamedTuple):
    """`scales` and `deviation` (of their logarithms) per parameter.

    `chi2` is the mean square of the residuals in units of the noise, per degree of
    freedom: 1 if model and noise are right.
    """

    scales: np.ndarray
    deviation: np.ndarray
    chi2: float
    kept: int
    windows: int
    steps: int


def identify(sys: eqsim.System, recording: Recording, count: int) -> Fit:
    """Fits `count` scales, starting at the file's parameters."""
    problem = _problem(sys, recording)
    windows, freedom = problem.q.shape[0], 2 * sys.nv * (LENGTH - 1)
    unknowns = Unknowns(jnp.zeros(count), jnp.zeros((windows, 2 * sys.nv)))
    first = _solve(unknowns, problem)
    # Five standard deviations of the chi-squared distribution.
    usual = first.aux.misfit < freedom + 5 * np.sqrt(2 * freedom)
    where = lambda p: (p.weight, p.softness)
    plain = eqx.tree_at(where, problem, (usual.astype(float), jnp.array(PLAIN)))
    starts = first.value.starts * plain.weight[:, None]
    second = _solve(Unknowns(first.value.scales, starts), plain)
    kept = int(plain.weight.sum())
    chi2 = float(second.aux.misfit @ plain.weight) / (kept * freedom - count)
    covariance = chi2 * jnp.linalg.inv(_information(second.aux))
    return Fit(
        scales=np.exp(PERCENT * np.asarray(second.value.scales)),
        deviation=PERCENT * np.sqrt(np.diag(covariance)),
        chi2=chi2,
        kept=kept,
        windows=windows,
        steps=int(first.stats["num_steps"]) + int(second.stats["num_steps"]),
    )


def _problem(sys: eqsim.System, recording: Recording) -> Problem:
    windows = len(recording.q) // LENGTH
    cut = lambda x: jnp.asarray(
        x[: windows * LENGTH].reshape(windows, LENGTH, x.shape[1])
    )
    return Problem(
        sys,
        cut(recording.q),
        cut(recording.qd),
        cut(recording.ctrl),
        weight=jnp.ones(windows),
        softness=jnp.array(1.0),
    )


@eqx.filter_jit
def _solve(unknowns: Unknowns, problem: Problem) -> optx.Solution:
    solver = optx.LevenbergMarquardt(
        rtol=1e-4,
        atol=1e-4,
        norm=optx.rms_norm,
        linear_solver=lx.Normal(lx.Cholesky()),
    )
    return optx.least_squares(
        _residuals,
        solver,
        unknowns,
        args=problem,
        has_aux=True,
        max_steps=40,
        throw=False,
    )


@jax.custom_jvp
def _residuals(unknowns: Unknowns, problem: Problem):
    """All residuals, and the by-products.

    The residuals of a window depend on the parameters and on the start of that window
    only. Forward mode over all unknowns would push a thousand tangents through every
    window; the rule below pushes the thirty or so that matter.
    """

    def weighted(scales, start, q, qd, ctrl, weight):
        window = (q, qd, ctrl)
        soft, misfit = _window(scales, start, problem.sys, window, problem.softness)
        return weight * soft, (weight * soft, misfit)

    slopes = jax.jacfwd(weighted, (0, 1), has_aux=True)
    axes = (None, 0, 0, 0, 0, 0)
    (by_scales, by_start), (soft, misfit) = jax.vmap(slopes, axes)(
        unknowns.scales,
        unknowns.starts,
        problem.q,
        problem.qd,
        problem.ctrl,
        problem.weight,
    )
    return soft, Details(misfit, by_scales, by_start)


@_residuals.defjvp
def _residuals_jvp(primals, tangents):
    residuals, details = _residuals(*primals)
    change = jnp.einsum("krn,n->kr", details.by_scales, tangents[0].scales)
    change += jnp.einsum("krs,ks->kr", details.by_start, tangents[0].starts)
    # Nobody differentiates the by-products.
    return (residuals, details), (change, jax.tree.map(jnp.zeros_like, details))


def _window(scales, start, sys, window, softness):
    """Residuals of a window in units of the noise: softened; and their sum of squares."""
    q, qd, _ = window
    robot = changed(sys, jnp.exp(PERCENT * scales))
    pipeline, nv = eqsim.Generalized(), sys.nv
    first = pipeline.init(
        robot,
        kinematics.integrate(sys, q[0], NOISE_Q * start[:nv]),
        qd[0] + NOISE_QD * start[nv:],
    )

    def step(state, measured):
        q, qd, ctrl = measured
        off_q = kinematics.difference(sys, q, state.q) / NOISE_Q
        off_qd = (state.qd - qd) / NOISE_QD
        new = pipeline.step(robot, state, ctrl)
        return new, jnp.concatenate([off_q, off_qd])

    _, residual = eqsim.scan(step, first, window)
    residual = residual.reshape(-1)
    misfit = jnp.sum(residual**2)
    scale = softness * residual.size
    ratio = misfit / scale + 1e-12
    return jnp.sqrt(jnp.log1p(ratio) / ratio) * residual, misfit


def _information(details: Details) -> Float[Array, "n n"]:
    r"""What is known of the parameters if nothing is known of the starts: the Schur
    complement of the Gauss-Newton matrix $J^\top J$."""
    by_scales, by_start = details.by_scales, details.by_start
    own = jnp.einsum("krm,krn->mn", by_scales, by_scales)
    mixed = jnp.einsum("krs,krn->ksn", by_start, by_scales)
    # Windows of weight zero have derivative zero; the small number keeps them solvable.
    starts = jnp.einsum("krs,krt->kst", by_start, by_start)
    starts += 1e-9 * jnp.eye(starts.shape[-1])[None]
    return own - jnp.einsum("ksm,ksn->mn", mixed, jnp.linalg.solve(starts, mixed))
