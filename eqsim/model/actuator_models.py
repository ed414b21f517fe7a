"""Models that users attach to actuators: changes of their controls and forces."""

import abc
from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
from jaxtyping import Array, Float

from .kinds import Transmission


class ActuatorInputs(NamedTuple):
    """Inputs of the model of one actuator: scalars.

    - `control`: control of the actuator. A control model gets it as it is given to
        `step`, after the control models attached before; a force model gets the control
        that the force law reads, within its range.
    - `force`: force of the actuator, N or N m: that of its law within its range, after
        the force models attached before. Zero for control models.
    - `length`, `velocity`: length of the transmission and its rate; on a hinge or slide
        `gear * q` and `gear * qd`.
    - `dt`: time step, s.
    """

    control: Float[Array, ""]
    force: Float[Array, ""]
    length: Float[Array, ""]
    velocity: Float[Array, ""]
    dt: Float[Array, ""]


class AbstractActuatorModel(eqx.Module):
    """A model of one actuator, in addition to its force law.

    Derive from `AbstractControlModel` or `AbstractForceModel`, and attach the model to
    actuators with `System.with_actuator_model`. Its arrays are parameters of the robot:
    they can be differentiated, batched, randomized and identified. The state of the model
    is part of `State.act`, and zero at the start of an episode.
    """

    @property
    @abc.abstractmethod
    def num_states(self) -> int:
        """Number of state variables of one actuator; 0 for a function without memory."""

    @abc.abstractmethod
    def __call__(
        self, state: Float[Array, " num_states"], inputs: ActuatorInputs
    ) -> tuple[Float[Array, " num_states"], Float[Array, ""]]:
        """Compute the state at the end of the time step, and the control or force during
        it.

        **Arguments:**

        - `state`: state at the start of the time step.
        - `inputs`: control, force, length, velocity and time step.

        **Returns:** the next state, and the new control (`AbstractControlModel`) or
        force (`AbstractForceModel`).
        """


class AbstractControlModel(AbstractActuatorModel):
    """A model between `ctrl` and the actuator: communication delay, low-pass filter,
    backlash of a servo.

    It computes the control that the force law and the activation dynamics read.
    """


class AbstractForceModel(AbstractActuatorModel):
    """A model between the force law and the joint: friction, torque limits, a learned
    residual, or a force law of its own that ignores `inputs.force`.

    Force ranges of actuators apply before, and those of joints and tendons after it.
    Implicit integrators include the derivative of the force with respect to velocity where
    it is dissipative.
    """


class AttachedModel(eqx.Module):
    """A model and its actuators, an entry of `System.actuator_models`.

    **Arguments:**

    - `actuators`: indices of the actuators.
    - `num_states`: number of state variables of one actuator.
    - `shared`: true if all actuators have the same parameters; otherwise the arrays of
        the model have a leading axis of actuators.
    - `ranks`: number of axes of each array, without batch axes.
    - `model`: the model.
    """

    actuators: tuple[int, ...] = eqx.field(static=True)
    num_states: int = eqx.field(static=True)
    shared: bool = eqx.field(static=True)
    ranks: tuple[int, ...] = eqx.field(static=True)
    model: AbstractActuatorModel

    @property
    def size(self) -> int:
        """Number of state variables of all its actuators."""
        return len(self.actuators) * self.num_states

    @property
    def changes_control(self) -> bool:
        """True for a control model, false for a force model."""
        return isinstance(self.model, AbstractControlModel)


def attached(
    sys: Any,
    index: tuple[int, ...],
    model: AbstractActuatorModel | Sequence[AbstractActuatorModel],
    shared: bool,
) -> AttachedModel:
    """Check a model, or one model per actuator, and attach it to actuators.

    **Raises:** see `System.with_actuator_model`.
    """
    models = [*model] if isinstance(model, Sequence) else [model] * len(index)
    names = [sys.actuators.names[k] for k in index]
    if not names or len(set(names)) < len(names):
        raise ValueError(f"`names` must be different actuators, got {names}.")
    if len(models) != len(index):
        raise ValueError(
            f"`model` has {len(models)} entries for {len(index)} actuators: "
            f"{', '.join(names)}. Pass one model per actuator, or one for all."
        )
    for one in models:
        if not isinstance(one, (AbstractControlModel, AbstractForceModel)):
            raise TypeError(
                "`model` must be an `AbstractControlModel` or an `AbstractForceModel` "
                f"(see `eqsim.actuators`), got {type(one).__name__}."
            )
        if jtu.tree_structure(one) != jtu.tree_structure(models[0]):
            raise ValueError(
                "The models of different actuators must have the same structure; got "
                f"{one} and {models[0]}. Attach them one after another instead."
            )
    first = models[0]
    if shared and isinstance(model, Sequence):
        raise ValueError(
            "`shared=True` needs one model for all actuators, not several."
        )
    _check_actuators(sys, index, isinstance(first, AbstractControlModel))
    for one in models:
        _check_result(one, sys.dt.dtype)
    arrays, static = zip(*(eqx.partition(one, eqx.is_array) for one in models))
    cast = lambda leaf: leaf.astype(sys.dt.dtype)
    join = lambda *leaves: jnp.stack([*map(cast, leaves)])
    kept = jtu.tree_map(cast, arrays[0]) if shared else jtu.tree_map(join, *arrays)
    ranks = tuple(leaf.ndim for leaf in jtu.tree_leaves(kept))
    whole = eqx.combine(kept, static[0])
    return AttachedModel(index, first.num_states, shared, ranks, whole)


def _check_actuators(sys: Any, index: tuple[int, ...], changes_control: bool) -> None:
    for k in index:
        name, inputs = sys.actuators.names[k], sys.actuators.inputs[k]
        if sys.actuators.transmissions[k] is Transmission.ORIENTATION:
            raise ValueError(
                f"Actuator {name!r} is an orientation servo with three torques. Models are "
                "functions of one length: use three actuators with axes of their own."
            )
        if changes_control and len(inputs) != 1:
            raise ValueError(
                f"Actuator {name!r} has {len(inputs)} controls; a control model needs "
                "exactly one."
            )


def _check_result(model: AbstractActuatorModel, dtype) -> None:
    """Check the arrays of a model, and the shapes that it returns, without computing
    anything."""
    for path, leaf in jtu.tree_leaves_with_path(eqx.filter(model, eqx.is_array)):
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            raise ValueError(
                f"`{type(model).__name__}{jtu.keystr(path)}` must be floating point, but is "
                f"{leaf.dtype}. Make it static, or use jnp.asarray(value, float)."
            )
    one: Any = jax.ShapeDtypeStruct((), dtype)
    state = jax.ShapeDtypeStruct((model.num_states,), dtype)
    name, size = type(model).__name__, model.num_states
    found = eqx.filter_eval_shape(model, state, ActuatorInputs(one, one, one, one, one))
    if not isinstance(found, tuple) or len(found) != 2:
        raise ValueError(
            f"`{name}.__call__` must return two values: the next state and a control or "
            f"force; got {found}."
        )
    arrays = [isinstance(x, jax.ShapeDtypeStruct) for x in found]
    shapes = tuple(x.shape if ok else None for x, ok in zip(found, arrays))
    if shapes != ((size,), ()):
        raise ValueError(
            f"`{name}.__call__` must return a state of shape {(size,)} and a scalar, got "
            f"the shapes {shapes[0]} and {shapes[1]}."
        )
