"""Random robots of one structure: other parameters, the same compiled program."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import eqsim
from eqsim.model import validate


# Each array is multiplied by one factor, so that the degrees of freedom of a joint keep
# equal parameters, bounds keep their order, and inertias satisfy the triangle
# inequality.
_WHERE: tuple[Callable[[eqsim.System], Any], ...] = (
    lambda s: (s.links.mass, s.links.inertia),
    lambda s: s.links.com,
    lambda s: s.joints.stiffness,
    lambda s: s.joints.damping,
    lambda s: s.joints.armature,
    lambda s: s.joints.frictionloss,
    lambda s: s.joints.range,
    lambda s: s.joints.limit_solref,
    lambda s: s.joints.force_range,
    lambda s: s.geoms.pos,
    lambda s: s.geoms.size,
    lambda s: s.geoms.friction,
    lambda s: s.geoms.margin,
    lambda s: s.geoms.solref,
    lambda s: s.geoms.solmix,
    lambda s: s.pairs.friction,
    lambda s: s.pairs.solref,
    lambda s: s.sites.pos,
    lambda s: s.sites.size,
    lambda s: s.equalities.solref,
    lambda s: s.equalities.torque_scale,
    lambda s: s.tendons.stiffness,
    lambda s: s.tendons.damping,
    lambda s: s.tendons.frictionloss,
    lambda s: s.tendons.range,
    lambda s: s.tendons.coef,
    lambda s: s.actuators.gear,
    lambda s: s.actuators.ctrl_range,
    lambda s: s.actuators.force_range,
    lambda s: s.actuators.time_constant,
    lambda s: (s.actuators.gain, s.actuators.bias),
    lambda s: s.sensors.cutoff,
    lambda s: (s.gravity, s.wind),
    lambda s: (s.density, s.viscosity),
    lambda s: s.impratio,
    lambda s: s.dt,
)
LOW, HIGH = 0.8, 1.25
"""Bounds of the factors."""


def variation(sys: eqsim.System, rng: np.random.Generator) -> eqsim.System:
    """Return a valid robot of the same structure, with every parameter of `_WHERE`
    scaled."""
    for where in _WHERE:
        factor = rng.uniform(LOW, HIGH)
        # Some robots lack the part.
        if jax.tree.leaves(where(sys)):
            scaled = jax.tree.map(
                lambda x: x * jnp.asarray(factor, x.dtype), where(sys)
            )
            sys = eqx.tree_at(where, sys, scaled)
    return validate(sys)


def stacked(systems: list[eqsim.System]) -> eqsim.System:
    """Stack robots of one structure to a batch."""
    dynamic, static = zip(*(eqx.partition(sys, eqx.is_array) for sys in systems))
    return eqx.combine(jax.tree.map(lambda *xs: jnp.stack(xs), *dynamic), static[0])
