"""Checks of recordings and unknowns before and after a fit, with what to do."""

import warnings
from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from ..model import inactive_parameters, State, System
from ._measure import AbstractMeasurement, space_of
from ._recording import Recording
from ._solver import Iterate
from ._unknowns import AbstractUnknown, Context


class IdentificationWarning(UserWarning):
    """Something in the data or the parameters that cannot contribute to a fit."""


def check_split(runs: Sequence[Recording], held: Sequence[Recording]) -> None:
    """Raise `ValueError` if a run is on both sides."""
    both = {r.run for r in runs} & {r.run for r in held}
    if both:
        raise ValueError(
            f"Run {sorted(both)[0]!r} is both fitted and held out, so the held-out "
            "error is meaningless. Split by run, for instance with `identify.split`."
        )


def predicted_channels(
    sys: System, measure: AbstractMeasurement
) -> dict[str, jax.ShapeDtypeStruct]:
    """Return the shape of each predicted channel."""
    measure.spaces(sys)
    q, qd = jnp.asarray(sys.joints.ref), jnp.zeros(sys.nv, sys.joints.ref.dtype)
    state, ctrl = State(q, qd, jnp.zeros(sys.na, q.dtype)), jnp.zeros(sys.nu, q.dtype)
    return jax.eval_shape(lambda: measure.predict(sys, state, ctrl))


def check_channels(
    runs: Sequence[Recording], predicted: Mapping[str, jax.ShapeDtypeStruct]
) -> None:
    """Raise `ValueError` if a recording lacks a channel; warn of those that never change."""
    for recording in runs:
        for name, value in predicted.items():
            if name not in recording.channels:
                raise ValueError(
                    f"Recording {recording.name!r} has no channel {name!r}, which "
                    "`measure` predicts. Its channels are "
                    f"{sorted(recording.channels)}."
                )
            width = recording.channels[name].shape[1]
            if value.shape != (width,):
                raise ValueError(
                    f"Recording {recording.name!r}: channel {name!r} has {width} columns, "
                    f"but `measure` predicts the shape {value.shape}."
                )
    for name in predicted:
        columns = np.concatenate([recording.channels[name] for recording in runs])
        constant = np.flatnonzero(np.ptp(columns, axis=0) == 0)
        if len(constant):
            warnings.warn(
                f"Channel {name!r} is constant in column {constant.tolist()} of all "
                "recordings. A sensor that is not connected looks like this; if so, leave "
                "the channel out.",
                IdentificationWarning,
                stacklevel=4,
            )


def tangent_widths(
    sys: System,
    measure: AbstractMeasurement,
    predicted: Mapping[str, jax.ShapeDtypeStruct],
) -> dict[str, int]:
    """Return the number of residuals of each channel: three for an orientation."""
    widths = {}
    for name, value in predicted.items():
        space = space_of(measure, sys, name)
        widths[name] = jax.eval_shape(space.difference, value, value).shape[0]
    return widths


def check_influence(
    sys: System, unknowns: Mapping[str, AbstractUnknown], context: Context
) -> None:
    """Raise `ValueError` for parameters that cannot influence the motion."""
    mask = None
    for name, unknown in unknowns.items():
        mask = inactive_parameters(sys) if mask is None else mask
        off = unknown.inactive(mask.mask)
        if off is None or not off.any():
            continue
        labels = unknown.labels(name, context)
        found = [label for label, x in zip(labels, off, strict=True) if x]
        raise ValueError(
            f"Unknown {name!r}: {', '.join(found)} cannot influence the motion of this "
            "robot, because the model switches it off (see "
            "`eqsim.model.inactive_parameters(sys).reasons`). Leave it out with `entries`, or "
            "switch it on in the model, for instance with a `frictionloss` above zero."
        )


def warn_without_influence(now: Iterate, labels: Sequence[str]) -> None:
    """Warn of parameters on which no residual depends."""
    hessian = np.asarray(now.blocks.hessian)
    size = len(now.theta)
    information = hessian[:, np.arange(size), np.arange(size)].sum(axis=0)
    unused = [label for label, x in zip(labels, information, strict=True) if x == 0.0]
    if unused:
        warnings.warn(
            f"No measured value depends on {', '.join(unused)} in these recordings, so "
            "initial values are kept. Record motions that depend on these unknowns, or "
            "leave them out.",
            IdentificationWarning,
            stacklevel=3,
        )
