"""The noise of each channel, estimated from the residuals of a fit."""

from collections.abc import Sequence

import numpy as np

from ._recording import Recording
from ._robust import AbstractLoss, consistency
from ._solver import Iterate
from ._starts import quantum


def floors(
    recordings: Sequence[Recording], channels: Sequence[str], widths: dict[str, int]
) -> dict[str, np.ndarray]:
    r"""Return the least noise of each channel and column.

    It is $\Delta/\sqrt{12}$ with the resolution $\Delta$ of the sensor, where it shows.
    """
    out = {}
    for name in channels:
        if any(name not in recording.channels for recording in recordings):
            # An error that is not in the units of a sensor.
            out[name] = np.full(widths[name], 1e-9)
            continue
        values = np.concatenate([recording.channels[name] for recording in recordings])
        if values.shape[1] == widths[name]:
            found = np.array([quantum(column) for column in values.T]) / np.sqrt(12)
        else:
            found = np.zeros(widths[name])
        out[name] = np.maximum(found, 1e-9)
    return out


def estimated(
    now: Iterate, loss: AbstractLoss, floor: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    r"""Estimate $\sigma_c^2 = \sum w r_c^2 / (\kappa \nu_c)$ for each channel and column,
    with the weights $w$ of the robust loss and their mean $\kappa$ for normal residuals.

    A channel of which all columns have one common noise is pooled.

    The degrees of freedom $\nu_c$ are the samples less the share of the parameters and
    starts that the data determine.
    """
    total = sum(float(x.sum()) for x in now.blocks.counts.values())
    inverse = np.linalg.inv(now.arrow.diagonal)
    used = len(now.theta) + now.starts.size - np.trace(inverse, axis1=1, axis2=2).sum()
    share = max(1.0 - used / max(total, 1.0), 0.05)
    out, kappa = {}, consistency(loss)
    for name, squares in now.blocks.squares.items():
        square, count = squares.sum(axis=0), now.blocks.counts[name].sum(axis=0)
        if len(floor[name]) == 1:
            square, count = square.sum(keepdims=True), count.sum(keepdims=True)
        freedom = np.maximum(count * share, 1.0)
        out[name] = np.maximum(np.sqrt(square / (kappa * freedom)), floor[name])
    return out
