r"""The linear algebra of a Gauss-Newton step.

Unknown are the parameters $\theta$ and one start $s_k$ per window. The matrix is an arrow:
blocks of $s_k$ on a block-tridiagonal diagonal (coupled only by continuity), and a border
of $\theta$. The starts are eliminated first, at a cost linear in the number of windows.
"""

from typing import NamedTuple

import numpy as np


class Arrow(NamedTuple):
    """Gauss-Newton matrix and gradient.

    - `theta`, `theta_gradient`: `(p, p)` and `(p,)`, with priors.
    - `border`: `(k, nx, p)`. `diagonal`: `(k, nx, nx)`. `below`: `(k, nx, nx)`, the block
        of start `k + 1` and start `k`; None if all are zero.
    - `gradient`: `(k, nx)`. `scores`: `(k, p)`, gradient of each window by parameters.
    - `own`: `(k, p, p)`, matrix of each window, without priors.
    """

    theta: np.ndarray
    theta_gradient: np.ndarray
    border: np.ndarray
    diagonal: np.ndarray
    below: np.ndarray | None
    gradient: np.ndarray
    scores: np.ndarray
    own: np.ndarray


def assemble(blocks, starts, prior_gradient, prior_hessian, continuity: bool) -> Arrow:
    """Add up data, priors and jumps.

    **Arguments:**

    - `blocks`: result of `evaluate`.
    - `starts`: in units of their prior.
    - `prior_gradient`, `prior_hessian`: derivatives of the priors by the parameters.
    """
    hessian = np.array(blocks.hessian)
    gradient = np.array(blocks.gradient)
    nx = starts.shape[1]
    p = hessian.shape[1] - nx
    below = None
    if continuity:
        jump, slope = np.asarray(blocks.gap), np.asarray(blocks.gap_slope)
        onward = np.asarray(blocks.next_slope)
        hessian += np.einsum("kia,kib->kab", slope, slope)
        gradient += np.einsum("kia,ki->ka", slope, jump)
        below = np.einsum("kia,kib->kab", onward, slope[:, :, p:])
    own = hessian[:, p:, p:] + np.eye(nx)
    own_gradient = gradient[:, p:] + starts
    border = hessian[:, p:, :p].copy()
    if continuity:
        own[1:] += np.einsum("kia,kib->kab", onward, onward)[:-1]
        own_gradient[1:] += np.einsum("kia,ki->ka", onward, jump)[:-1]
        border[1:] += np.einsum("kia,kib->kab", onward, slope[:, :, :p])[:-1]
    return Arrow(
        hessian[:, :p, :p].sum(axis=0) + prior_hessian,
        gradient[:, :p].sum(axis=0) + prior_gradient,
        border,
        own,
        below,
        own_gradient,
        gradient[:, :p],
        hessian[:, :p, :p],
    )


class Eliminated(NamedTuple):
    """The problem of the parameters alone.

    - `matrix`, `gradient`: Schur complement and its gradient.
    - `border`: starts per parameter, `(k, nx, p)`; `offset`: `(k, nx)`. The step of the
        starts is `-(offset + border @ step)`.
    """

    matrix: np.ndarray
    gradient: np.ndarray
    border: np.ndarray
    offset: np.ndarray


def eliminate(arrow: Arrow, damping: float = 0.0) -> Eliminated:
    """Eliminate the starts.

    **Arguments:**

    - `damping`: share of its diagonal that is added to the matrix of starts.
    """
    diagonal = arrow.diagonal.copy()
    index = np.arange(diagonal.shape[1])
    diagonal[:, index, index] *= 1.0 + damping
    right = np.concatenate([arrow.border, arrow.gradient[:, :, None]], axis=2)
    if arrow.below is None:
        solved = np.linalg.solve(diagonal, right)
    else:
        solved = _tridiagonal(diagonal, arrow.below, right)
    border, offset = solved[:, :, :-1], solved[:, :, -1]
    matrix = arrow.theta - np.einsum("kxa,kxb->ab", arrow.border, border)
    gradient = arrow.theta_gradient - np.einsum("kxa,kx->a", arrow.border, offset)
    return Eliminated(0.5 * (matrix + matrix.T), gradient, border, offset)


def scores(arrow: Arrow, eliminated: Eliminated) -> np.ndarray:
    """Compute the gradient of each window by the parameters, after elimination."""
    inner = np.einsum("kxa,kx->ka", eliminated.border, arrow.gradient)
    return arrow.scores - inner


def informations(arrow: Arrow, eliminated: Eliminated) -> np.ndarray:
    """Compute the part of each window in the matrix of the parameters alone. With
    continuity, only sums over all windows of a recording are positive semidefinite."""
    inner = np.einsum("kxa,kxb->kab", arrow.border, eliminated.border)
    return arrow.own - inner


def _tridiagonal(diagonal, below, right) -> np.ndarray:
    """Solve a symmetric block-tridiagonal system."""
    count = len(diagonal)
    pivots, rows = [diagonal[0]], [right[0]]
    for k in range(1, count):
        if not below[k - 1].any():
            pivots.append(diagonal[k])
            rows.append(right[k])
            continue
        share = np.linalg.solve(pivots[-1], below[k - 1].T).T
        pivots.append(diagonal[k] - share @ below[k - 1].T)
        rows.append(right[k] - share @ rows[-1])
    out = [np.linalg.solve(pivots[-1], rows[-1])]
    for k in range(count - 2, -1, -1):
        rest = rows[k]
        if below[k].any():
            rest = rest - below[k].T @ out[-1]
        out.append(np.linalg.solve(pivots[k], rest))
    return np.stack(out[::-1])
