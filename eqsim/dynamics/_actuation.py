"""From control signals to joint forces, and the activations in between."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from ..model import accumulate, Activation, concatenate, JointKind, put, System, take
from ..spatial import logarithm, normalize4, quaternion_matrix, Vec3


class Drive(NamedTuple):
    """Joint forces of the actuators, and the rates of the activations."""

    tau: Any
    act_rate: Any


class _Moments(NamedTuple):
    """Entry by entry: actuator, degree of freedom, gear."""

    actuators: list[int]
    dofs: list[int]
    gears: list


def actuation(sys: System, q, qd, act, ctrl) -> Drive:
    r"""Forces of all actuators.

    **Arguments:** `q (nq, *batch)`, `qd (nv, *batch)`, `act (na, *batch)`,
    `ctrl (nu, *batch)`.

    **Returns:** `tau (nv, *batch)`, `act_rate (na, *batch)`.
    """
    actuators = sys.actuators
    if sys.nu == 0:
        return Drive(jnp.zeros_like(qd), jnp.zeros_like(act))
    ctrl = _clip(ctrl, actuators.ctrl_range, actuators.ctrl_limited)
    rate = activation_rate(sys, act, ctrl)
    moments, lengths = _transmission(sys, q)
    gear = concatenate(moments.gears)
    speed = accumulate(take(qd, moments.dofs) * gear, moments.actuators, sys.nu)
    driven = actuators.with_activation
    late = next_activation(sys, act, rate, sys.dt)
    early = _mask([actuators.act_early[i] for i in driven], act)
    signal = act + early * (late - act)
    undriven = [i for i in range(sys.nu) if i not in driven]
    signal = put(
        concatenate([signal, take(ctrl, undriven)]), [*driven, *undriven], sys.nu
    )
    g, b = actuators.gain, actuators.bias
    force = (g[:, 0] + g[:, 1] * lengths + g[:, 2] * speed) * signal
    force = force + b[:, 0] + b[:, 1] * lengths + b[:, 2] * speed
    force = _clip(force, actuators.force_range, actuators.force_limited)
    tau = accumulate(take(force, moments.actuators) * gear, moments.dofs, sys.nv)
    return Drive(tau, rate)


def activation_rate(sys: System, act, ctrl):
    r"""$\dot a$: the control for an integrator, $(u - a)/t$ for filters."""
    actuators = sys.actuators
    driven = actuators.with_activation
    kinds = [actuators.activation[i] for i in driven]
    integrates = _mask([kind is Activation.INTEGRATOR for kind in kinds], act)
    time, ctrl = take((actuators.time_constant, ctrl), driven)
    filtered = (ctrl - act) / jnp.maximum(time, 1e-15)
    return integrates * ctrl + (1.0 - integrates) * filtered


def next_activation(sys: System, act, rate, dt):
    """Activations one step later, within their ranges."""
    actuators = sys.actuators
    driven = actuators.with_activation
    exact = [actuators.activation[i] is Activation.FILTER_EXACT for i in driven]
    exact = _mask(exact, act)
    time = jnp.maximum(take(actuators.time_constant, driven), 1e-15)
    span = exact * time * -jnp.expm1(-dt[None] / time) + (1.0 - exact) * dt[None]
    limited = tuple(actuators.act_limited[i] for i in driven)
    return _clip(act + rate * span, take(actuators.act_range, driven), limited)


def _mask(flags, like):
    """A column of zeros and ones."""
    flags = np.array(flags, like.dtype)
    return flags.reshape(-1, *(1 for _ in like.shape[1:]))


def _clip(values, bounds, limited: tuple[bool, ...]):
    if not any(limited):
        return values
    clipped = jnp.clip(values, bounds[:, 0], bounds[:, 1])
    return jnp.where(_mask(limited, values) > 0, clipped, values)


def _transmission(sys: System, q) -> tuple[_Moments, Any]:
    """Moment of each actuator on each degree of freedom, and lengths."""
    actuators, joints = sys.actuators, sys.joints
    kinds = [joints.kinds[j] for j in actuators.joints]
    moments, lengths = _Moments([], [], []), []
    order = []
    straight = [k for k, kind in enumerate(kinds) if kind.nv == 1]
    if straight:
        chosen = [actuators.joints[k] for k in straight]
        gear = take(actuators.gear, straight)[:, 0]
        moments.actuators.extend(straight)
        moments.dofs.extend(joints.v_starts[j] for j in chosen)
        moments.gears.append(gear)
        lengths.append(gear * take(q, [joints.q_starts[j] for j in chosen]))
        order += straight
    for k, kind in enumerate(kinds):
        if kind.nv > 1:
            lengths.append(_turning(sys, k, kind, q, moments))
            order.append(k)
    return moments, put(concatenate(lengths), order, sys.nu)


def _turning(sys: System, k: int, kind: JointKind, q, moments: _Moments):
    """An actuator on a ball or free joint; returns its length."""
    actuators, joint = sys.actuators, sys.actuators.joints[k]
    start, dof = sys.joints.q_starts[joint], sys.joints.v_starts[joint]
    gear = actuators.gear[k]
    skip = kind.nv - 3
    axis = Vec3(*(gear[i][None] for i in range(skip, skip + 3)))
    quat = normalize4([q[start + skip + i][None] for i in range(4)])
    if actuators.in_parent[k]:
        axis = quaternion_matrix(quat).T @ axis
    entries = [*(gear[i][None] for i in range(skip)), *axis]
    moments.actuators.extend([k] * kind.nv)
    moments.dofs.extend(range(dof, dof + kind.nv))
    moments.gears.extend(entries)
    if kind is JointKind.FREE:
        return jnp.zeros_like(quat[0])
    return logarithm(quat) | axis
