"""Domain randomization of the Go1."""

import equinox as eqx
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from eqsim import System
from eqsim.randomize import AbstractRandomizer

from ._task import between, index, number


class RandomGo1(AbstractRandomizer):
    """Playground's domain randomization of the Go1, for `eqsim.DomainRandomization`.

    All distributions are uniform. Inverse weights, which Playground does not change,
    are recomputed from the new masses.

    **Arguments:**

    - `floor_friction`: range of the sliding friction of the floor.
    - `frictionloss`, `armature`: ranges of factors of the dry friction and the armature of
        each joint.
    - `trunk_com`: range of the shift of the trunk's center of mass in each direction, m.
    - `mass`: range of the factor of the mass of each link; inertias do not change.
    - `trunk_mass`: range of the mass added to the trunk, kg.
    - `zero`: range of the shift of the zero of each joint, rad.
    """

    floor_friction: Float[Array, "2"] = number((0.4, 1.0))
    frictionloss: Float[Array, "2"] = number((0.9, 1.1))
    armature: Float[Array, "2"] = number((1.0, 1.05))
    trunk_com: Float[Array, "2"] = number((-0.05, 0.05))
    mass: Float[Array, "2"] = number((0.9, 1.1))
    trunk_mass: Float[Array, "2"] = number((-1.0, 1.0))
    zero: Float[Array, "2"] = number((-0.05, 0.05))

    def __call__(self, key: PRNGKeyArray, sys: System) -> System:
        """Return the changed robot.

        **Raises:** `ValueError` if it has no floor or no trunk.
        """
        keys = jr.split(key, 7)
        floor = index(sys.geoms.names, "floor", "shape")
        trunk = index(sys.links.names, "trunk", "link")
        links, joints, count = sys.links, sys.joints, sys.nv - 6
        friction = between(keys[0], self.floor_friction)
        mass = links.mass * between(keys[4], self.mass, (sys.nlink,))
        shift = between(keys[3], self.trunk_com, (3,))
        new = (
            sys.geoms.friction.at[floor, 0].set(friction),
            joints.frictionloss.at[6:].multiply(
                between(keys[1], self.frictionloss, (count,))
            ),
            joints.armature.at[6:].multiply(between(keys[2], self.armature, (count,))),
            links.com.at[trunk].add(shift),
            mass.at[trunk].add(between(keys[5], self.trunk_mass)),
            joints.ref.at[7:].add(between(keys[6], self.zero, (count,))),
        )
        return eqx.tree_at(_changed, sys, new)


def _changed(sys: System):
    links, joints = sys.links, sys.joints
    friction = sys.geoms.friction, joints.frictionloss, joints.armature
    return *friction, links.com, links.mass, joints.ref
