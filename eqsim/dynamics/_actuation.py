"""Actuators: from control signals to joint forces, with activation dynamics."""

import functools as ft
from typing import Any, NamedTuple

import jax.numpy as jnp

from ..model import (
    accumulate,
    Activation,
    Actuators,
    concatenate,
    JointKind,
    per_row,
    put,
    System,
    take,
)
from ..spatial import logarithm, normalize4, quaternion_matrix, Vec3


class Drive(NamedTuple):
    """Joint forces of the actuators `(nv, *batch)`, and rates of the activations `(na,
    *batch)`."""

    tau: Any
    act_rate: Any


class _Transmission(NamedTuple):
    """Static facts: which actuator acts on which degrees of freedom.

    - `single`, `single_q`: actuators of hinges and slides, and their coordinates.
    - `multiple`: actuators of balls and free joints: actuator, kind, first coordinate.
    - `actuators`, `dofs`: the two ends of each entry of the moment matrix, first of
        `single`, then of `multiple`.
    """

    single: tuple[int, ...]
    single_q: tuple[int, ...]
    multiple: tuple[tuple[int, JointKind, int], ...]
    actuators: tuple[int, ...]
    dofs: tuple[int, ...]


@ft.lru_cache(maxsize=256)
def _transmission(
    kinds: tuple[JointKind, ...],
    q_starts: tuple[int, ...],
    v_starts: tuple[int, ...],
    joints: tuple[int, ...],
) -> _Transmission:
    single = tuple(k for k, j in enumerate(joints) if kinds[j].nv == 1)
    multiple = [k for k, j in enumerate(joints) if kinds[j].nv > 1]
    entries = [
        (k, v_starts[joints[k]] + i)
        for k in (*single, *multiple)
        for i in range(kinds[joints[k]].nv)
    ]
    return _Transmission(
        single,
        tuple(q_starts[joints[k]] for k in single),
        tuple((k, kinds[joints[k]], q_starts[joints[k]]) for k in multiple),
        tuple(actuator for actuator, _ in entries),
        tuple(dof for _, dof in entries),
    )


def actuation(sys: System, q, qd, act, ctrl) -> Drive:
    """Compute the forces of all actuators.

    **Arguments:** `q (nq, *batch)`, `qd (nv, *batch)`, `act (na, *batch)`,
    `ctrl (nu, *batch)`.
    """
    actuators, joints = sys.actuators, sys.joints
    if sys.nu == 0:
        return Drive(jnp.zeros_like(qd), jnp.zeros_like(act))
    ctrl = _clip(ctrl, actuators.ctrl_range, actuators.ctrl_limited)
    rate = activation_rate(sys, act, ctrl)
    signal = _signal(sys, act, rate, ctrl)
    ends = _transmission(
        joints.kinds, joints.q_starts, joints.v_starts, actuators.joints
    )
    moment, length = _moments(actuators, ends, q)
    velocity = accumulate(take(qd, ends.dofs) * moment, ends.actuators, sys.nu)
    g, b = actuators.gain, actuators.bias
    force = (g[:, 0] + g[:, 1] * length + g[:, 2] * velocity) * signal
    force = force + b[:, 0] + b[:, 1] * length + b[:, 2] * velocity
    force = _clip(force, actuators.force_range, actuators.force_limited)
    tau = accumulate(take(force, ends.actuators) * moment, ends.dofs, sys.nv)
    return Drive(tau, rate)


def _signal(sys: System, act, rate, ctrl):
    """Return the input of each actuator: its activation, if it has one, else its
    control."""
    actuators = sys.actuators
    driven = actuators.with_activation
    early = per_row([actuators.act_early[i] for i in driven], act)
    act = act + early * (next_activation(sys, act, rate, sys.dt) - act)
    direct = [i for i in range(sys.nu) if i not in driven]
    return put(concatenate([act, take(ctrl, direct)]), [*driven, *direct], sys.nu)


def activation_rate(sys: System, act, ctrl):
    r"""Compute $\dot a$: the control for an integrator, $(u - a)/t$ for filters."""
    actuators = sys.actuators
    driven = actuators.with_activation
    kinds = [actuators.activation[i] for i in driven]
    integrates = per_row([kind is Activation.INTEGRATOR for kind in kinds], act)
    time, ctrl = take((actuators.time_constant, ctrl), driven)
    filtered = (ctrl - act) / jnp.maximum(time, 1e-15)
    return integrates * ctrl + (1.0 - integrates) * filtered


def next_activation(sys: System, act, rate, dt):
    """Compute the activations one step later, within their ranges."""
    actuators = sys.actuators
    driven = actuators.with_activation
    kinds = [actuators.activation[i] for i in driven]
    exact = per_row([kind is Activation.FILTER_EXACT for kind in kinds], act)
    time = jnp.maximum(take(actuators.time_constant, driven), 1e-15)
    span = exact * time * -jnp.expm1(-dt[None] / time) + (1.0 - exact) * dt[None]
    limited = tuple(actuators.act_limited[i] for i in driven)
    return _clip(act + rate * span, take(actuators.act_range, driven), limited)


def _clip(values, bounds, limited: tuple[bool, ...]):
    if not any(limited):
        return values
    clipped = jnp.clip(values, bounds[:, 0], bounds[:, 1])
    return jnp.where(per_row(limited, values) > 0, clipped, values)


def _moments(actuators: Actuators, ends: _Transmission, q):
    """Compute the entries of the moment matrix, and the lengths of the actuators."""
    gear = take(actuators.gear, ends.single)[:, 0]
    moments, lengths = [gear], [gear * take(q, ends.single_q)]
    for k, kind, start in ends.multiple:
        moment, length = _rotary_moments(actuators, k, kind, q, start)
        moments += moment
        lengths.append(length)
    order = [*ends.single, *(k for k, _, _ in ends.multiple)]
    return concatenate(moments), put(concatenate(lengths), order, len(actuators.names))


def _rotary_moments(actuators: Actuators, k: int, kind: JointKind, q, start: int):
    """Compute the moments and the length of an actuator on a ball or free joint."""
    gear = [actuators.gear[k, i][None] for i in range(kind.nv)]
    num_linear = kind.nv - 3
    axis = Vec3(*gear[num_linear:])
    first = start + num_linear
    quat = normalize4([q[first + i][None] for i in range(4)])
    if actuators.in_parent[k]:
        axis = quaternion_matrix(quat).T @ axis
    # MuJoCo: a free joint has no length.
    free = kind is JointKind.FREE
    length = jnp.zeros_like(quat[0]) if free else logarithm(quat) | axis
    return [*gear[:num_linear], *axis], length
