"""Armature and damping of degrees of freedom and tendons, with those of the
actuators."""

from typing import Any, NamedTuple

import jax.numpy as jnp

from ..kinematics._manifold import dof_joints
from ..model import System, Transmission
from ..model._gather import accumulate, take
from ._addresses import addresses


class Damping(NamedTuple):
    r"""Damping of degrees of freedom or tendons:
    the force is $-v\,(d + d_1 |v| + d_2 v^2 + \dots)$.

    - `linear`: $d$, `(n, *batch)`.
    - `poly`: $d_1, d_2, \dots$, `(n, order, *batch)`; None if there are none.
    """

    linear: Any
    poly: Any

    def force(self, rate):
        """Compute the damping force."""
        return -rate * self._coefficient(rate, lambda k: 1)

    def slope(self, rate):
        """Compute the derivative of the damping force by the rate, negative."""
        return self._coefficient(rate, lambda k: k + 2)

    def _coefficient(self, rate, weight):
        total = self.linear
        if self.poly is None:
            return total
        speed = jnp.abs(rate)
        power = speed
        for k in range(self.poly.shape[1]):
            total = total + weight(k) * self.poly[:, k] * power
            power = power * speed
        return total


def armature(sys: System):
    """Return the armature of each degree of freedom, `(nv, *batch)`."""
    own, extra = sys.joints.armature, sys.actuators.armature
    return own if extra is None else own + _on_dofs(sys, extra[:, None])[:, 0]


def damping(sys: System) -> Damping:
    """Return the damping of each degree of freedom."""
    joints, actuators = sys.joints, sys.actuators
    linear, poly = joints.damping, joints.damping_poly
    if actuators.damping is not None:
        linear = linear + _on_dofs(sys, actuators.damping[:, None])[:, 0]
    if actuators.damping_poly is not None:
        extra = _on_dofs(sys, actuators.damping_poly)
        poly = extra if poly is None else poly + extra
    return Damping(linear, poly)


def tendon_armature(sys: System):
    """Return the armature of each tendon, `(ntendon, *batch)`."""
    own, extra = sys.tendons.armature, sys.actuators.armature
    return own if extra is None else own + _on_tendons(sys, extra[:, None])[:, 0]


def tendon_damping(sys: System) -> Damping:
    """Return the damping of each tendon."""
    tendons, actuators = sys.tendons, sys.actuators
    linear, poly = tendons.damping, tendons.damping_poly
    if actuators.damping is not None:
        linear = linear + _on_tendons(sys, actuators.damping[:, None])[:, 0]
    if actuators.damping_poly is not None:
        poly = poly + _on_tendons(sys, actuators.damping_poly)
    return Damping(linear, poly)


def _on_tendons(sys: System, values):
    """Sum numbers of actuators `(nactuator, n, *batch)`, times their squared gear, over
    the tendons that they act on."""
    actuators = sys.actuators
    outs = addresses(actuators.structure).out
    owners = [
        k
        for k, kind in enumerate(actuators.transmissions)
        if kind is Transmission.TENDON
    ]
    gear = take(actuators.gear, [outs[k] for k in owners])[:, 0]
    terms = take(values, owners) * (gear * gear)[:, None]
    return accumulate(terms, [actuators.targets[k][0] for k in owners], sys.ntendon)


def _on_dofs(sys: System, values):
    """Sum numbers of actuators `(nactuator, n, *batch)`, times their squared gear, over
    the degrees of freedom of the joints that they act on."""
    actuators, joints = sys.actuators, sys.joints
    outs, counts = addresses(actuators.structure).out, actuators.num_outputs
    pairs = [
        (k, dof)
        for k, joint in enumerate(actuators.joints)
        for dof, owner in enumerate(dof_joints(joints.kinds))
        # As in MuJoCo, servos of orientation have no damping and armature.
        if owner == joint and counts[k] == 1
    ]
    owners = [k for k, _ in pairs]
    gear = take(actuators.gear, [outs[k] for k in owners])[:, 0]
    terms = take(values, owners) * (gear * gear)[:, None]
    return accumulate(terms, [dof for _, dof in pairs], sys.nv)
