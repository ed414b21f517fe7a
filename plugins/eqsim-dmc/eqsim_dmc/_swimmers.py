"""A swimmer and a fish, in a fluid."""

import functools as ft
import xml.etree.ElementTree as ET

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from eqsim import AbstractPipeline, State, System
from eqsim.bridges import check_count
from eqsim.kinematics import forward, forward_velocity
from eqsim.randomize import AbstractRandomizer

from ._models import edited_model, find, of_file, of_model
from ._sensing import distance, geom_position, random_quaternion, rotation
from ._task import AbstractEndlessTask, index, physics, preset, random_joints, tolerance
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

    sys: System = eqx.field(converter=of_model(swimmer_model), default=None)
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


swimmer_swimmer6, swimmer_swimmer15 = (
    preset(
        Swimmer,
        f"Create `Swimmer` with {count} links and a target placed at each reset.",
        ft.partial(swimmer_model, count),
        draw=RandomPoolTarget,
    )
    for count in (6, 15)
)


_JOINTS = (
    "tail1",
    "tail_twist",
    "tail2",
    "finright_roll",
    "finright_pitch",
    "finleft_roll",
    "finleft_pitch",
)


class Fish(AbstractEndlessTask):
    r"""A fish in a fluid that learns to keep upright, or to swim to a target.

    Observation: `joint_angles` of tail and fins (rad); `upright`, the cosine $c$ of the
    angle between the z axes of torso and world; with `swim` also `target`, from mouth
    to target in the frame of the mouth (m); `velocity` (m/s, rad/s); 21 or 24 entries.

    Reward: $t(c)$, which is 1 for $c = 1$ (margin 1). With `swim` it is
    $(7 t(d) + \frac{1 + c}{2}) / 8$ with the distance $d$ from mouth to target, at most
    the sum $r$ of their radii (margin $2 r$).

    Initial state: the orientation uniform, tail and fins uniform from -0.2 to 0.2 rad,
    at rest.

    The target is the shape `target` of the robot, `sys.geoms.pos` and `sys.geoms.size`.
    The task `fish_swim` draws a position in every episode: see `RandomWaterTarget`.

    **Arguments:**

    - `sys`: the robot; by default the suite's `fish.xml`.
    - `pipeline`: the physics; by default `Generalized()`.
    - `frame_skip`: time steps per control step.
    - `swim`: true if the fish learns to swim to the target.

    ??? cite "Reference"
        Tassa et al., *DeepMind Control Suite*, 2018. `dm_control.suite.fish`.
    """

    sys: System = eqx.field(converter=of_file("fish.xml"), default=None)
    pipeline: AbstractPipeline = eqx.field(converter=physics, default=None)
    frame_skip: int = eqx.field(static=True, default=10)
    swim: bool = eqx.field(static=True, default=False)

    def initial(self, key: PRNGKeyArray) -> State:
        key_quat, key_joints = jr.split(key)
        q = self.sys.joints.ref
        root = self.sys.joints.q_starts[index(self.sys.joints.names, "root", "joint")]
        quat = random_quaternion(key_quat, self.sys)
        q = q.at[root + 3 : root + 7].set(quat)
        angles = jr.uniform(key_joints, (len(_JOINTS),), q.dtype, -0.2, 0.2)
        return self.pipeline.init(self.sys, q.at[self._angles].set(angles))

    def parts(
        self, state: State, action: Float[Array, " nu"]
    ) -> dict[str, Float[Array, "..."]]:
        parts = {
            "joint_angles": state.q[self._angles],
            "upright": self._upright(state),
        }
        if self.swim:
            parts["target"] = self._to_target(state)
        return {**parts, "velocity": state.qd}

    def reward(self, state: State, action: Float[Array, " nu"]) -> Float[Array, ""]:
        upright = self._upright(state)
        if not self.swim:
            return tolerance(upright, (1.0, 1.0), 1.0)
        names, size = self.sys.geoms.names, self.sys.geoms.size
        mouth, target = (index(names, name, "shape") for name in ("mouth", "target"))
        reach = size[mouth, 0] + size[target, 0]
        far = distance(self._to_target(state))
        there = tolerance(far, (0.0, reach), 2.0 * reach)
        return (7.0 * there + 0.5 * (1.0 + upright)) / 8.0

    @property
    def _angles(self) -> Array:
        joints = self.sys.joints
        places = [index(joints.names, name, "joint") for name in _JOINTS]
        return jnp.asarray([joints.q_starts[joint] for joint in places])

    def _upright(self, state: State) -> Float[Array, ""]:
        torso = index(self.sys.links.names, "torso", "link")
        return forward(self.sys, state.q).rot[torso, 2, 2]

    def _to_target(self, state: State) -> Float[Array, "3"]:
        geoms, poses = self.sys.geoms, forward(self.sys, state.q)
        mouth, start = geom_position(self.sys, poses, "mouth")
        _, end = geom_position(self.sys, poses, "target")
        frame = poses.rot[geoms.links[mouth]] @ rotation(geoms.quat[mouth])
        return (end - start) @ frame


class RandomWaterTarget(AbstractRandomizer):
    """Randomization that places the shape `target`: x and y uniform from -0.4 m to 0.4
    m, z from 0.1 m to 0.3 m."""

    def __call__(self, key: PRNGKeyArray, sys: System) -> System:
        pos = sys.geoms.pos
        target = index(sys.geoms.names, "target", "shape")
        low, high = jnp.asarray([-0.4, -0.4, 0.1]), jnp.asarray([0.4, 0.4, 0.3])
        place = jr.uniform(key, (3,), pos.dtype, low, high)
        return eqx.tree_at(lambda s: s.geoms.pos, sys, pos.at[target].set(place))


fish_upright = Fish
fish_swim = preset(
    Fish,
    "Create `Fish` that learns to swim to a target placed at each reset.",
    draw=RandomWaterTarget,
    swim=True,
)
