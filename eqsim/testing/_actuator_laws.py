"""Laws of actuator models, in double precision, on a robot of the caller.

`ACTUATOR_MODEL_LAWS` lists the laws. The docstring of a law is its requirement, and advice
for the case that it fails.
"""

import functools as ft
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu

from ..model import AbstractActuatorModel, State, System
from ..pipelines import Generalized
from .comparisons import (
    check_gradients,
    in_precision,
    require,
    require_equal,
    require_finite,
)
from .component_laws import check_kernels


_BATCH = 3


class ActuatorModelKit:
    """A model of some actuators of a robot."""

    def __init__(self, model: AbstractActuatorModel, sys: System, names: Sequence[str]):
        self.given = model, sys
        self.names = names

    @ft.cached_property
    def robot(self) -> System:
        """The robot with the model, in double precision."""
        model, sys = in_precision(self.given, jnp.float64)
        return sys.with_actuator_model(self.names, model)

    def inputs(self, seed: int, size: float = 1.0) -> tuple[State, jax.Array]:
        """Draw a state and a control."""
        sys, keys = self.robot, jr.split(jr.key(seed), 4)
        start = Generalized().init(sys)
        qd, act, ctrl = (
            size * jr.normal(key, (count,))
            for key, count in zip(keys, (sys.nv, sys.na, sys.nu))
        )
        return State(start.q, qd, act), ctrl


def _step(sys: System, state: State, ctrl) -> State:
    return Generalized().step(sys, state, ctrl)


def actuator_attaches(kit: ActuatorModelKit) -> None:
    """`System.with_actuator_model` accepts the model.

    It must return a state of the shape that `num_states` declares, and a scalar.
    """
    require(kit.robot.actuator_models, "the robot has no model")


def actuator_finite(kit: ActuatorModelKit) -> None:
    """Values and derivatives are finite at rest, and for large inputs.

    Beware of square roots at zero, of divisions, and of exponentials that overflow.
    """
    moves = eqx.filter_jit(_step)
    slopes = eqx.filter_jit(eqx.filter_grad(_total))
    for size in (0.0, 1e3):
        state, ctrl = kit.inputs(0, size)
        require_finite("the next state", moves(kit.robot, state, ctrl))
        require_finite("its derivative", slopes((kit.robot, state, ctrl)))


def _total(args):
    return sum(jnp.sum(x) for x in jtu.tree_leaves(_step(*args)))


def actuator_gradients(kit: ActuatorModelKit) -> None:
    """The derivatives of a step by the parameters and the state of the model, by the
    state of the robot and by controls are right: forward mode = reverse mode = finite
    differences.
    """
    state, ctrl = kit.inputs(1)

    def step(models, qd, act, ctrl):
        sys = eqx.tree_at(lambda s: s.actuator_models, kit.robot, models)
        new = _step(sys, State(state.q, qd, act), ctrl)
        return new.qd, new.act

    models = kit.robot.actuator_models
    check_gradients(step, models, state.qd, state.act, ctrl, rtol=1e-4)


def actuator_batches(kit: ActuatorModelKit) -> None:
    """A batch gives the results of its members."""
    draws = [kit.inputs(seed) for seed in range(_BATCH)]
    stacked = jtu.tree_map(lambda *x: jnp.stack(x), *draws)
    many = eqx.filter_jit(eqx.filter_vmap(_step, in_axes=(None, 0, 0)))
    found = many(kit.robot, *stacked)
    one = eqx.filter_jit(_step)
    for k, (state, ctrl) in enumerate(draws):
        member = jtu.tree_map(lambda x: x[k], found)
        require_equal("a member", member, one(kit.robot, state, ctrl), 1e-9)


def actuator_kernels(kit: ActuatorModelKit) -> None:
    """The CPU kernels include the model.

    Otherwise a step is compiled by XLA, many times slower. Write the model with element-wise
    operations, sums and products of small matrices.
    """
    state, ctrl = kit.inputs(0)
    many = jtu.tree_map(lambda x: jnp.stack([x] * _BATCH), (state, ctrl))
    step = eqx.filter_vmap(_step, in_axes=(None, 0, 0))
    check_kernels(step, kit.robot, *many)


# A law with the names of those that must hold for it to be meaningful, causes first.
ACTUATOR_MODEL_LAWS = {
    actuator_attaches: (),
    actuator_finite: ("actuator_attaches",),
    actuator_gradients: ("actuator_finite",),
    actuator_batches: ("actuator_finite",),
    actuator_kernels: ("actuator_attaches",),
}
