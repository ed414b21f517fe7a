"""Models that are attached to actuators: evaluation in a step; batch axes are last.

Control models come before the force laws, and force models after them. Their state variables
stand in `State.act` after the activations of all actuators, model by model.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu

from .._batching import over_batch
from ..model import ActuatorInputs, AttachedModel, System
from ..model.arrays import concatenate, per_row, replace, take, take_or_zero
from .actuator_slots import addresses


ModelStates = dict[int, Any]
"""State variables of models by their index, `(size, *batch)`."""


def split_activations(sys: System, act) -> tuple[Any, ModelStates]:
    """Return the activations of actuators, and the state variables of each model."""
    if not sys.actuator_models:
        return act, {}
    start, states = sys.actuators.na, {}
    for number, own in enumerate(sys.actuator_models):
        states[number] = act[start : start + own.size]
        start += own.size
    return act[: sys.actuators.na], states


def join_activations(act, states: ModelStates):
    """Return `State.act`: activations, and the state variables of all models."""
    return concatenate([act, *(states[number] for number in sorted(states))])


def model_controls(
    sys: System, states: ModelStates, ctrl, length, velocity, elapsed=None
) -> tuple[Any, ModelStates]:
    """Apply all control models. Returns the controls, and the next states.

    **Arguments:**

    - `elapsed`: time since the start of the time step at a stage of `RK4`, s; None with
        other integrators.
    """
    at, new = addresses(sys.actuators.structure), {}
    for number, own in enumerate(sys.actuator_models):
        if not own.changes_control:
            continue
        slots = [at.ctrl[k] for k in own.actuators]
        control = take(ctrl, slots)
        inputs = _inputs(sys, own, control, jnp.zeros_like(control), length, velocity)
        inputs = inputs._replace(elapsed=elapsed)
        new[number], control = _evaluate(own, states[number], inputs)
        ctrl = replace(ctrl, slots, control)
    return ctrl, new


def model_forces(
    sys: System, states: ModelStates, ctrl, force, length, velocity
) -> tuple[Any, ModelStates]:
    """Apply all force models. Returns the forces, and the next states.

    **Arguments:**

    - `ctrl`: controls that the force laws read.
    - `force`: forces of the force laws, `(nout, *batch)`.
    """
    new = {}
    for number, own in enumerate(sys.actuator_models):
        if own.changes_control:
            continue
        inputs = _force_inputs(sys, own, ctrl, force, length, velocity)
        new[number], changed = _evaluate(own, states[number], inputs)
        force = replace(force, _outs(sys, own), _enabled(sys, own, changed))
    return force, new


def model_velocity_gain(
    sys: System, states: ModelStates, ctrl, force, gain, length, velocity
):
    r"""Compute the derivatives of forces by their velocities after all force models:
    $\frac{\partial f}{\partial f_0} g + \min(\frac{\partial f}{\partial\dot\ell}, 0)$ with the
    force $f_0$ and the derivative $g$ before a model. What a model adds to make the
    derivative positive is left out, as it would not be dissipative.

    **Arguments:**

    - `force`: forces of the force laws.
    - `gain`: their derivatives, `(nout, *batch)`.
    """
    for number, own in enumerate(sys.actuator_models):
        if own.changes_control:
            continue
        outs = _outs(sys, own)
        inputs = _force_inputs(sys, own, ctrl, force, length, velocity)

        def value(force, velocity):
            moved = inputs._replace(force=force, velocity=velocity)
            return _evaluate(own, states[number], moved)[1]

        at, zero = (inputs.force, inputs.velocity), jnp.zeros_like(inputs.force)
        law = take(gain, outs)
        changed, before = jax.jvp(value, at, (law, zero))
        before = jnp.where((before > 0.0) & (law <= 0.0), 0.0, before)
        _, slope = jax.jvp(value, at, (zero, jnp.ones_like(zero)))
        before = before + jnp.where(slope < 0.0, slope, 0.0)
        force = replace(force, outs, _enabled(sys, own, changed))
        gain = replace(gain, outs, _enabled(sys, own, before))
    return gain


def _outs(sys: System, own: AttachedModel) -> list[int]:
    outs = addresses(sys.actuators.structure).out
    return [outs[k] for k in own.actuators]


def _enabled(sys: System, own: AttachedModel, values):
    """Return zero for actuators that are switched off."""
    marks = [sys.actuators.enabled[k] for k in own.actuators]
    return values if all(marks) else jnp.where(per_row(marks, values) > 0, values, 0.0)


def _force_inputs(sys: System, own: AttachedModel, ctrl, force, length, velocity):
    structure = sys.actuators.structure
    at = addresses(structure).ctrl
    slots = [at[k] if structure.inputs[k] else -1 for k in own.actuators]
    force = take(force, _outs(sys, own))
    return _inputs(sys, own, take_or_zero(ctrl, slots), force, length, velocity)


def _inputs(sys: System, own: AttachedModel, control, force, length, velocity):
    length, velocity = take((length, velocity), _outs(sys, own))
    return ActuatorInputs(control, force, length, velocity, sys.dt)


def _evaluate(own: AttachedModel, state, inputs: ActuatorInputs) -> tuple[Any, Any]:
    """Call a model for each of its actuators.

    **Returns:** the next states, `(size, *batch)`, and the values, `(n, *batch)`.
    """
    count = len(own.actuators)
    batch = inputs.velocity.shape[1:]
    shape = (count, own.num_states, *batch)
    state = jnp.broadcast_to(
        state.reshape(count, own.num_states, *state.shape[1:]), shape
    )
    # All have a row for each actuator but the times.
    rows: Any = (0, 0, 0, 0, None, None)
    axes = ActuatorInputs(*rows)

    def one(model, state, inputs):
        dynamic, static = eqx.partition(model, eqx.is_array)
        kept = jtu.tree_map(lambda _: None if own.shared else 0, dynamic)
        call = lambda dynamic, *args: eqx.combine(dynamic, static)(*args)
        return jax.vmap(call, (kept, 0, axes))(dynamic, state, inputs)

    new, value = over_batch(one, len(batch), own.model, state, inputs)
    new = jnp.broadcast_to(new, shape).reshape(own.size, *batch)
    return new, jnp.broadcast_to(value, (count, *batch))
