"""Models that users attach to actuators: changes of their controls and forces."""

import abc
from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
from jaxtyping import Array, Float

from .._errors import check_type
from .arrays import cast_array, stacked
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
    - `elapsed`: time since the start of the time step, s, if a stage of `Integrator.RK4`
        evaluates a control model; else None. All stages get the state at the start.
    """

    control: Float[Array, ""]
    force: Float[Array, ""]
    length: Float[Array, ""]
    velocity: Float[Array, ""]
    dt: Float[Array, ""]
    elapsed: Float[Array, ""] | None = None


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

    It computes the control that the force law and the activation dynamics read. Implicit
    integrators do not include the derivative of this control with respect to velocity:
    write stiff feedback as an `AbstractForceModel`.
    """


class AbstractForceModel(AbstractActuatorModel):
    """A model between the force law and the joint: friction, torque limits, a learned
    residual, or a force law of its own that ignores `inputs.force`.

    Force ranges of actuators and tendons apply before, and those of joints after it.
    Implicit integrators include the derivative of the force with respect to velocity where
    it is dissipative.
    """


class AttachedModel(eqx.Module):
    """A model and its actuators, an entry of `System.actuator_models`.

    **Arguments:**

    - `actuators`: indices of the actuators.
    - `num_states`: number of state variables of one actuator, static because arrays of a
        batch have more axes.
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
        expected = "an `AbstractControlModel` or an `AbstractForceModel` (see `eqsim.actuators`)"
        check_type("model", one, AbstractControlModel | AbstractForceModel, expected)
    for one in models:
        _check_leaves(one)
    cast = lambda leaf: cast_array(leaf, sys.dt.dtype)
    models = [jtu.tree_map(cast, one) for one in models]
    layout = lambda one: (
        jtu.tree_structure(one),
        [*map(jnp.shape, jtu.tree_leaves(one))],
    )
    for k, one in enumerate(models):
        _check_result(one, sys.dt.dtype)
        if layout(one) != layout(models[0]):
            raise ValueError(
                "The models of different actuators must have the same structure and shapes "
                f"of arrays; `model[{k}]` differs from `model[0]`. Attach them in separate "
                "calls."
            )
    first = models[0]
    if shared and isinstance(model, Sequence):
        raise ValueError(
            "`shared=True` needs one model for all actuators, not several."
        )
    _check_actuators(sys, index, isinstance(first, AbstractControlModel))
    kept = first if shared else jtu.tree_map(stacked, *models)
    ranks = tuple(leaf.ndim for leaf in jtu.tree_leaves(kept))
    return AttachedModel(index, first.num_states, shared, ranks, kept)


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


def _check_leaves(model: AbstractActuatorModel) -> None:
    """Check that all leaves of a model are floating-point arrays."""
    for path, leaf in jtu.tree_leaves_with_path(model):
        if not eqx.is_array(leaf):
            raise ValueError(
                f"`{type(model).__name__}{jtu.keystr(path)}` must be an array or static, got "
                f"a {type(leaf).__name__}. Use jnp.asarray(value, float) or "
                "eqx.field(static=True)."
            )
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            raise ValueError(
                f"`{type(model).__name__}{jtu.keystr(path)}` must be floating point, but is "
                f"{leaf.dtype}. Make it static, or use jnp.asarray(value, float)."
            )


def _check_result(model: AbstractActuatorModel, dtype) -> None:
    """Check the shapes and types that a model returns, without computing anything."""
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
    if shapes == ((size,), ()) and {x.dtype for x in found} != {dtype}:
        raise ValueError(
            f"`{name}.__call__` must keep the type {dtype} of its inputs, got "
            f"{found[0].dtype} and {found[1].dtype}."
        )
    if shapes != ((size,), ()):
        raise ValueError(
            f"`{name}.__call__` must return a state of shape {(size,)} and a scalar, got "
            f"the shapes {shapes[0]} and {shapes[1]}."
        )
