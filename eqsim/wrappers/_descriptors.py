"""Descriptors: features that distinguish skills, for quality diversity and skill
discovery."""

import abc
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..envs import AbstractEnv, Timestep
from ..kinematics import forward
from ..model import candidate_pairs, System
from ..model.arrays import as_array
from ._randomization import robot
from ._wrapper import AbstractReport, check_env, layers


class AbstractDescriptor(AbstractReport):
    """A wrapper that adds `timestep.descriptor`, a vector that describes the behavior
    of the robot.

    **Raises:** `ValueError` if `env` already has a descriptor.
    """

    def __check_init__(self):
        for held in layers(self.env):
            if isinstance(held, AbstractDescriptor):
                raise ValueError(
                    f"`{type(self).__name__}` contains `{type(held).__name__}`, but a "
                    "timestep has only one descriptor. Remove one of them."
                )

    @property
    @abc.abstractmethod
    def descriptor_names(self) -> tuple[str, ...]:
        """Name of each entry of the descriptor."""

    @property
    @abc.abstractmethod
    def descriptor_range(self) -> Float[Array, "ndescriptor 2"]:
        """Lower and upper limit of each entry of the descriptor."""

    @abc.abstractmethod
    def describe(
        self, state: Any, action: Float[Array, " nu"]
    ) -> Float[Array, " ndescriptor"]:
        """Compute the descriptor of a state under a constant action."""

    def report(
        self, state: Any, action: Float[Array, " nu"], timestep: Timestep
    ) -> Timestep:
        found, where = self.describe(state, action), lambda t: t.descriptor
        return eqx.tree_at(where, timestep, found, is_leaf=lambda x: x is None)


class FeetContact(AbstractDescriptor):
    """Adds a descriptor of feet on the ground: 1 if a shape of the link touches a shape
    of the world, else 0. Derivatives are zero.

    Used by `ant_uni`, `half_cheetah_uni`, `hopper_uni`, `walker2d_uni` and
    `humanoid_uni`, as in QDax (Chalumeau et al. 2024).

    **Arguments:**

    - `env`: the environment.
    - `feet`: names of the links of the feet.

    **Raises:** `ValueError` if a link does not exist, or has no shape that can touch
    the world.
    """

    env: AbstractEnv
    feet: tuple[str, ...] = eqx.field(static=True)

    def __check_init__(self):
        check_env(self, self.env)
        owners = _owners(self.sys, [pair[:2] for pair in candidate_pairs(self.sys)])
        for foot in self.feet:
            if {self.sys.link(foot).index, -1} not in owners:
                raise ValueError(
                    f"No shape of the link {foot!r} can touch the world. Choose a link "
                    "with a shape that collides."
                )

    @property
    def descriptor_names(self) -> tuple[str, ...]:
        return tuple(f"{foot} on the ground" for foot in self.feet)

    @property
    def descriptor_range(self) -> Float[Array, "ndescriptor 2"]:
        return jnp.tile(jnp.array([[0.0, 1.0]]), (len(self.feet), 1))

    def describe(
        self, state: Any, action: Float[Array, " nu"]
    ) -> Float[Array, " ndescriptor"]:
        sys, now = robot(self.env, state), self.physics(state)
        contacts = self.pipeline.contacts(sys, now, action)
        touching = [
            contacts.between(sys, sys.link(foot).index, -1) & (contacts.dist <= 0.0)
            for foot in self.feet
        ]
        return jnp.stack([jnp.any(own) for own in touching]).astype(now.q.dtype)


def _owners(sys: System, geoms) -> list[set[int]]:
    """Return the two links of each pair of shapes."""
    links = sys.geoms.links
    return [{links[first], links[second]} for first, second in geoms]


class TorsoPosition(AbstractDescriptor):
    """Adds the position of the first link, x and y in m, as the descriptor.

    Used by `ant_omni` and `humanoid_omni`, with the limits of QDax (Chalumeau et al.
    2024) and without the reward for running.

    **Arguments:**

    - `env`: the environment.
    - `limit`: largest absolute position, m.
    """

    env: AbstractEnv
    limit: Float[Array, ""] = eqx.field(converter=as_array, default=30.0)

    @property
    def descriptor_names(self) -> tuple[str, ...]:
        return "x", "y"

    @property
    def descriptor_range(self) -> Float[Array, "ndescriptor 2"]:
        return jnp.stack([jnp.stack([-self.limit, self.limit])] * 2)

    def describe(
        self, state: Any, action: Float[Array, " nu"]
    ) -> Float[Array, " ndescriptor"]:
        return forward(robot(self.env, state), self.physics(state).q).pos[0, :2]
