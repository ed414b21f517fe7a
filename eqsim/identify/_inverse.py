r"""The equation error: measured accelerations against the equations of motion."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..model import State, System
from ._control import AbstractInterpolation, Linear
from ._objective import (
    AbstractObjective,
    commands,
    Comparison,
    Given,
    Physics,
    Residuals,
)
from ._recording import Recording, uninterrupted
from ._starts import local_fit
from ._unknowns import Model
from ._windows import Batch, Windows


_Q, _QD, QDD = "local q", "local qd", "qdd"


class Inverse(AbstractObjective):
    r"""Inverse dynamics without simulation, a fast first guess.

    The residual at each measured time is the error of inverse dynamics as an acceleration,

    $$M^{-1} (M \ddot q + c - \tau - J^\top f) = \ddot q - \ddot q(q, \dot q, \tau),$$

    with bias forces $c$, forces $\tau$ of actuators and passive elements, and constraint
    forces $f$. Local cubics through the measured coordinates (`Windows.channel`,
    `Windows.half` samples on each side) give $q$, $\dot q$ and $\ddot q$; rows without all
    neighbours are left out. Residuals do not depend on the starts of windows, so the cost has
    few local minima, far fewer than that of `Simulation`.

    Noise in $\ddot q$ has no effect on average, because $\ddot q$ enters linearly, unlike in
    a regression of forces on accelerations, which finds too small inertias. Noise in $\dot q$
    and $q$, and the smoothing of fast motions by the filter, do bias the parameters: fit with
    `Simulation` from the result. The channel of the residuals is `"qdd"`. `Gain`, `Bias` and
    `Delay` of sensors have no influence; those of `"ctrl"` do.

    **Arguments:**

    - `control`: commands between their recorded times, which matters with a `Delay`.

    ??? cite "Reference"
        Swevers, Verdonck, De Schutter, *Dynamic model identification for industrial robots*,
        IEEE Control Systems Magazine, 2007.
    """

    control: AbstractInterpolation = Linear()

    def compare(self, given: Given) -> Comparison:
        if given.windows.continuity is not None:
            raise ValueError(
                "`Inverse` does not simulate, so windows cannot be connected. Leave "
                "out `continuity`."
            )
        derived = [
            _filtered(given.sys, recording, given.windows)
            for recording in given.recordings
        ]
        return Comparison(derived, (_Q, _QD, QDD), {QDD: given.sys.nv})

    def residuals(
        self,
        physics: Physics,
        model: Model,
        start: tuple[Float[Array, " nq"], Float[Array, " nv"]],
        window: Batch,
    ) -> Residuals:
        sys = model.sys
        ctrl = commands(model, window, self.control, window.time)

        def error(q, qd, qdd, u):
            state = State(q, qd, jnp.zeros(sys.na, q.dtype))
            return qdd - physics.pipeline.acceleration(sys, state, u)

        rows = window.measured
        found = jax.vmap(error)(rows[_Q], rows[_QD], rows[QDD], ctrl)
        return Residuals({QDD: jnp.where(window.mask[:, None], found, 0.0)}, start)


def _filtered(sys: System, recording: Recording, windows: Windows) -> Recording:
    """Add filtered coordinates, velocities and accelerations, and leave out rows without
    all neighbours."""
    channel, half = windows.channel, windows.half
    if channel not in recording.channels:
        raise ValueError(
            f"Recording {recording.name!r} has no channel {channel!r} of coordinates, "
            f"which `Inverse` needs. Its channels are {sorted(recording.channels)}. "
            "Select one with `Windows(channel=...)`."
        )
    parts = uninterrupted(recording.time, windows.gap)
    kept = [np.arange(part.start + half, part.stop - half) for part in parts]
    rows = np.concatenate(kept)
    if len(rows) < 2:
        raise ValueError(
            f"Recording {recording.name!r} has no rows with {half} samples on each side, from "
            "which `Inverse` computes accelerations. Choose a smaller `Windows.half`, or a "
            "longer recording."
        )
    fit = local_fit(sys, recording, rows, channel, half, parts)
    channels = {name: value[rows] for name, value in recording.channels.items()}
    channels |= {_Q: fit.q, _QD: fit.qd, QDD: fit.qdd}
    return Recording(
        recording.time[rows],
        recording.ctrl[rows],
        channels,
        recording.name,
        recording.run,
    )
