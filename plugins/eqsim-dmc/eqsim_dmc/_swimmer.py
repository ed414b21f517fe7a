import xml.etree.ElementTree as ET
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from eqsim import AbstractPipeline, DomainRandomization, State, System
from eqsim.bridges import check_count
from eqsim.kinematics import forward, forward_velocity
from eqsim.randomize import AbstractRandomizer

from ._models import edited_model, find
from ._sensing import distance, geom_position
from ._task import AbstractEndlessTask, index, physics, random_joints
from ._tolerance import tolerance
from .sigmoids import long_tail


def swimmer_model(num_links: int = 6) -> System:
    """Return the system of `swimmer.xml` with a head and a tail of links, as in the
    suite.

    **Arguments:**

    - `num_links`: number of links including the head, at least 3. The joints between
        them bend by at most 360 degrees divided by this number.
    """
    check_count("num_links", num_links, 3)
    return edited_model(_add_tail, "swimmer.xml", num_links)


def _add_tail(root: ET.Element, num_links: int) -> None:
    link, limit = find(root, "body", "head"), repr(360.0 / num_links)
    motors, sensor = ET.SubElement(root, "actuator"), root.find("sensor")
    if sensor is None:
        sensor = ET.SubElement(root, "sensor")
    for k in range(num_links - 1):
        link = ET.SubElement(link, "body", name=f"segment_{k}", pos="0 0.1 0")
        for kind in ("visual", "inertial"):
            ET.SubElement(link, "geom", {"class": kind, "name": f"{kind}_{k}"})
        ET.SubElement(link, "site", name=f"site_{k}")
        ET.SubElement(link, "joint", name=f"joint_{k}", range=f"-{limit} {limit}")
        ET.SubElement(motors, "motor", name=f"motor_{k}", joint=f"joint_{k}")
        for kind in ("velocimeter", "gyro"):
            ET.SubElement(sensor, kind, name=f"{kind}_{k}", site=f"site_{k}")


def _model(sys: System | None) -> System:
    return swimmer_model() if sys is None else sys


class Swimmer(AbstractEndlessTask):
    r"""A planar snake in a fluid whose nose learns to reach a target.

    Observation: `joints`, the angles between the links (rad); `to_target`, from nose to
    target in the frame of the head, x and y (m); `body_velocities`, of each link the
    velocity along its x and y axes (m/s) and the angular velocity about z (rad/s); for
    $n$ links $4 n + 1$ entries.

    Reward: `tolerance` of the distance between nose and target in the plane, at most
    the radius $r$ of the target (long tail, margin $5 r$).

    Initial state: the joints uniform in their ranges, the angle of the head in the
    circle, at rest.

    The target is the shape `target` of the robot, `sys.geoms.pos` and `sys.geoms.size`.
    The tasks draw a position in every episode: see `RandomPoolTarget`.

    **Arguments:**

    - `sys`: the robot; by default that of `swimmer_model(6)`.
    - `pipeline`: the physics; by default `Generalized()`.
    - `frame_skip`: time steps per control step.

    ??? cite "Reference"
        Coulom, *Reinforcement learning using neural networks, with applications to motor
        control*, 2002. `dm_control.suite.swimmer`.
    """

    sys: System = eqx.field(converter=_model, default=None)
    pipeline: AbstractPipeline = eqx.field(converter=physics, default=None)
    frame_skip: int = eqx.field(static=True, default=15)

    def initial(self, key: PRNGKeyArray) -> State:
        return self.pipeline.init(self.sys, random_joints(self.sys, key))

    def parts(
        self, state: State, action: Float[Array, " nu"]
    ) -> dict[str, Float[Array, "..."]]:
        axes = jnp.swapaxes(forward(self.sys, state.q).rot, 1, 2)
        speed = forward_velocity(self.sys, state.q, state.qd)
        # The sites are at the origins of the links.
        linear, angular = (
            jnp.sum(axes * x[:, None], axis=2) for x in (speed.lin, speed.ang)
        )
        planar = jnp.concatenate([linear[:, :2], angular[:, 2:]], axis=1)
        return {
            "joints": state.q[3:],
            "to_target": self._to_target(state),
            "body_velocities": planar.ravel(),
        }

    def reward(self, state: State, action: Float[Array, " nu"]) -> Float[Array, ""]:
        target = index(self.sys.geoms.names, "target", "shape")
        radius, far = self.sys.geoms.size[target, 0], distance(self._to_target(state))
        return tolerance(far, (0.0, radius), 5.0 * radius, long_tail)

    def _to_target(self, state: State) -> Float[Array, "2"]:
        poses = forward(self.sys, state.q)
        head = index(self.sys.links.names, "head", "link")
        _, nose = geom_position(self.sys, poses, "nose")
        _, target = geom_position(self.sys, poses, "target")
        return ((target - nose) @ poses.rot[head])[:2]


class RandomPoolTarget(AbstractRandomizer):
    """Randomization that places the shape `target`: x and y uniform from -0.3 m to 0.3
    m in one of five episodes, from -2 m to 2 m in the others."""

    def __call__(self, key: PRNGKeyArray, sys: System) -> System:
        pos = sys.geoms.pos
        target = index(sys.geoms.names, "target", "shape")
        key_close, key_place = jr.split(key)
        reach = jnp.where(jr.bernoulli(key_close, 0.2), 0.3, 2.0).astype(pos.dtype)
        place = reach * jr.uniform(key_place, (2,), pos.dtype, -1.0, 1.0)
        return eqx.tree_at(lambda s: s.geoms.pos, sys, pos.at[target, :2].set(place))


def swimmer_swimmer6(**options: Any) -> DomainRandomization:
    """Create `Swimmer` with 6 links and a target, which `RandomPoolTarget` places at a
    reset.

    **Arguments:** its options.
    """
    return DomainRandomization(Swimmer(**options), RandomPoolTarget())


def swimmer_swimmer15(**options: Any) -> DomainRandomization:
    """Create the same with 15 links. **Arguments:** the options of `Swimmer`."""
    if options.get("sys") is None:
        options["sys"] = swimmer_model(15)
    return DomainRandomization(Swimmer(**options), RandomPoolTarget())
