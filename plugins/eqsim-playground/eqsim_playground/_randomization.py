"""Domain randomization of legged robots."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from eqsim import System
from eqsim.randomize import AbstractRandomizer

from ._task import as_array, between, index, number


class RandomLegged(AbstractRandomizer):
    """Playground's domain randomization of legged robots, for `eqsim.DomainRandomization`.

    All distributions are uniform. Inverse weights, which Playground does not change,
    are recomputed from the new masses. The defaults are those of the Go1; `random_g1`,
    `random_t1` and `random_berkeley_humanoid` have others.

    **Arguments:**

    - `trunk`: name of the trunk.
    - `floor_friction`: range of the sliding friction of the floor.
    - `frictionloss`, `armature`: ranges of factors of the dry friction and the armature of
        each joint.
    - `trunk_com`: range of the shift of the trunk's center of mass in each direction, m;
        None for no shift.
    - `mass`: range of the factor of the mass of each link; inertias do not change.
    - `trunk_mass`: range of the mass added to the trunk, kg.
    - `zero`: range of the shift of the zero of each joint, rad.
    - `stiffness`: range of the factor of the stiffness of each servo; None for no change.
    - `damping`: range of the factor of the damping of `damped`; None for no change.
    - `damped`: joints whose damping changes.
    """

    trunk: str = eqx.field(static=True, default="trunk")
    floor_friction: Float[Array, "2"] = number((0.4, 1.0))
    frictionloss: Float[Array, "2"] = number((0.9, 1.1))
    armature: Float[Array, "2"] = number((1.0, 1.05))
    trunk_com: Float[Array, "2"] | None = number((-0.05, 0.05))
    mass: Float[Array, "2"] = number((0.9, 1.1))
    trunk_mass: Float[Array, "2"] = number((-1.0, 1.0))
    zero: Float[Array, "2"] = number((-0.05, 0.05))
    stiffness: Float[Array, "2"] | None = number(None)
    damping: Float[Array, "2"] | None = number(None)
    damped: tuple[str, ...] = eqx.field(static=True, default=())

    def __check_init__(self):
        if self.damped and self.damping is None:
            raise ValueError(
                f"`damped` {self.damped!r} needs `damping`, the range of the factor, got "
                "None."
            )
        if self.damping is not None and not self.damped:
            raise ValueError("`damping` needs `damped`, names of joints, got ().")

    def __call__(self, key: PRNGKeyArray, sys: System) -> System:
        """Return the changed robot.

        **Raises:** `ValueError` if it has no floor, no trunk, or lacks a joint.
        """
        keys = jr.split(key, 9)
        trunk = index(sys.links.names, self.trunk, "link")
        links, joints, count = sys.links, sys.joints, sys.nv - 6
        factors = lambda key, bounds: between(key, bounds, (count,))
        mass = links.mass * between(keys[4], self.mass, (sys.nlink,))
        damping = joints.damping
        if self.damping is not None:
            at = jnp.array([5 + index(joints.names, x, "joint") for x in self.damped])
            damping = damping.at[at].multiply(
                between(keys[8], self.damping, (len(self.damped),))
            )
        gain, bias = sys.actuators.gain, sys.actuators.bias
        if self.stiffness is not None:
            factor = between(keys[7], self.stiffness, (sys.nu,))
            gain = gain.at[:, 0].multiply(factor)
            bias = bias.at[:, 1].multiply(factor)
        com = links.com
        if self.trunk_com is not None:
            com = com.at[trunk].add(between(keys[3], self.trunk_com, (3,)))
        new = {
            "links.com": com,
            "links.mass": mass.at[trunk].add(between(keys[5], self.trunk_mass)),
            "joints.frictionloss": joints.frictionloss.at[6:].multiply(
                factors(keys[1], self.frictionloss)
            ),
            "joints.armature": joints.armature.at[6:].multiply(
                factors(keys[2], self.armature)
            ),
            "joints.ref": joints.ref.at[7:].add(factors(keys[6], self.zero)),
            "joints.damping": damping,
            "actuators.gain": gain,
            "actuators.bias": bias,
            **_floor(sys, between(keys[0], self.floor_friction)),
        }
        return eqx.tree_at(
            lambda s: [_at(s, path) for path in new], sys, [*new.values()]
        )


def _at(sys: System, path: str) -> Any:
    part, _, name = path.partition(".")
    return getattr(getattr(sys, part), name)


def _floor(sys: System, friction: Float[Array, ""]) -> dict[str, Array]:
    """Return the friction of the floor: that of its explicit pairs, if it has some."""
    floor, pairs = index(sys.geoms.names, "floor", "shape"), sys.pairs
    places = [k for k, pair in enumerate(pairs.geoms) if floor in pair]
    if places:
        new = pairs.friction.at[jnp.array(places), :2].set(friction)
        return {"pairs.friction": new}
    return {"geoms.friction": sys.geoms.friction.at[floor, 0].set(friction)}


def random_go1() -> RandomLegged:
    """Return the domain randomization of the Go1."""
    return RandomLegged()


def random_g1() -> RandomLegged:
    """Return the domain randomization of the G1."""
    return RandomLegged("torso_link", frictionloss=as_array((0.5, 2.0)), trunk_com=None)


def random_t1() -> RandomLegged:
    """Return the domain randomization of the T1."""
    return RandomLegged(
        "Trunk",
        floor_friction=as_array((0.2, 0.6)),
        trunk_com=None,
        mass=as_array((0.98, 1.02)),
        stiffness=as_array((0.9, 1.1)),
        damping=as_array((0.5, 2.0)),
        damped=tuple(
            f"{side}_Ankle_{axis}"
            for side in ("Left", "Right")
            for axis in ("Pitch", "Roll")
        ),
    )


def random_berkeley_humanoid() -> RandomLegged:
    """Return the domain randomization of the Berkeley Humanoid."""
    return RandomLegged("torso", trunk_com=None)
