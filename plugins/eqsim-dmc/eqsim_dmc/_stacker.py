import xml.etree.ElementTree as ET
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from eqsim import AbstractPipeline, DomainRandomization, State, System
from eqsim.bridges import check_count
from eqsim.kinematics import forward, site_poses
from eqsim.randomize import AbstractRandomizer

from ._arm import arm_parts, joint_places, joint_speeds, planar_pose, random_arm
from ._models import as_array, edited_model, remove
from ._sensing import distance, sensors
from ._starts import draw_without_contact
from ._task import AbstractEndlessTask, index, physics
from ._tolerance import tolerance


def stacker_model(num_boxes: int = 2) -> System:
    """Return the system of `stacker.xml`. **Arguments:** `num_boxes`, from 1 to 4."""
    check_count("num_boxes", num_boxes)
    if num_boxes > 4:
        raise ValueError(f"`num_boxes` must be from 1 to 4, got {num_boxes}.")
    return edited_model(_edit, "stacker.xml", num_boxes)


def _edit(root: ET.Element, num_boxes: int) -> None:
    for k in range(num_boxes, 4):
        remove(root, "body", f"box{k}")


def _model(sys: System | None) -> System:
    return stacker_model() if sys is None else sys


class Stacker(AbstractEndlessTask):
    r"""A planar arm with a hand that learns to stack boxes up to a target.

    Observation: `arm_pos`, sines and cosines of the angles of the arm; `arm_vel`
    (rad/s); `touch`, $\ln(1 + f)$ of the contact forces on five zones of the hand (N);
    `hand_pos` and `box_pos`, each the position x, z (m) and the entries w and y of the
    quaternion; `box_vel` (m/s, rad/s, m/s each); `target_pos`, x and z (m); for $n$
    boxes $35 + 7 n$ entries. Without `fully_observable` only the first three; 29
    entries.

    Reward: $t(a)\,t(b)$ of the distance $a$ between the target and the nearest box
    (margin the width of a box), and the distance $b$ between target and hand, at least
    0.1 m (margin 0.01 m).

    Initial state: joints uniform in their ranges, the root of the arm in the circle,
    finger and thumb equally; the boxes uniform on one side; redrawn until nothing
    touches; at rest.

    The target is a link of the robot, `sys.links.pos`. The tasks place it in every
    episode: see `RandomTower`.

    **Arguments:**

    - `sys`: the robot; by default that of `stacker_model(2)`.
    - `pipeline`: the physics; by default `Generalized()`, which `touch` needs.
    - `frame_skip`: time steps per control step.
    - `fully_observable`: true to observe hand, boxes and target.
    - `clearance`: distance of the hand from the target for the full reward, m.

    ??? cite "Reference"
        Tassa et al., *DeepMind Control Suite*, 2018. `dm_control.suite.stacker`.
    """

    sys: System = eqx.field(converter=_model, default=None)
    pipeline: AbstractPipeline = eqx.field(converter=physics, default=None)
    frame_skip: int = eqx.field(static=True, default=10)
    fully_observable: bool = eqx.field(static=True, default=True)
    clearance: Float[Array, ""] = eqx.field(converter=as_array, default=0.1)

    def initial(self, key: PRNGKeyArray) -> State:
        q = draw_without_contact(_start, key, self.sys)
        return self.pipeline.init(self.sys, q)

    def parts(
        self, state: State, action: Float[Array, " nu"]
    ) -> dict[str, Float[Array, "..."]]:
        sys, boxes = self.sys, _boxes(self.sys)
        values = sensors(self.pipeline, sys, state, action)
        touch = jnp.concatenate([values[name] for name in sys.sensors.names])
        parts = arm_parts(sys, state, touch)
        if not self.fully_observable:
            return parts
        pose = lambda name: jnp.concatenate(planar_pose(sys, state.q, name))
        joints = [f"{box}_{axis}" for box in boxes for axis in "xyz"]
        return {
            **parts,
            "hand_pos": pose("hand"),
            "box_pos": jnp.stack([pose(box) for box in boxes]),
            "box_vel": joint_speeds(sys, state.qd, joints),
            "target_pos": forward(sys, state.q).pos[_target(sys), ::2],
        }

    def reward(self, state: State, action: Float[Array, " nu"]) -> Float[Array, ""]:
        sys, poses = self.sys, site_poses(self.sys, state.q)
        at = lambda name: poses.pos[index(sys.sites.names, name, "site")]
        away = lambda name: distance(at(name) - at("target"))
        nearest = jnp.min(jnp.stack([away(box) for box in _boxes(sys)]))
        close = tolerance(nearest, margin=2.0 * _half_width(sys))
        return close * tolerance(away("grasp"), (self.clearance, jnp.inf), 0.01)


class RandomTower(AbstractRandomizer):
    """Randomization that places the target: x uniform from -0.37 m to 0.37 m, at the
    height of one of the boxes of a tower on the ground."""

    def __call__(self, key: PRNGKeyArray, sys: System) -> System:
        pos, target = sys.links.pos, _target(sys)
        key_place, key_level = jr.split(key)
        x = jr.uniform(key_place, (), pos.dtype, -0.37, 0.37)
        level = jr.randint(key_level, (), 0, len(_boxes(sys))).astype(pos.dtype)
        z = _half_width(sys) * (2.0 * level + 1.0)
        pos = pos.at[target, 0].set(x).at[target, 2].set(z)
        return eqx.tree_at(lambda s: s.links.pos, sys, pos)


def _boxes(sys: System) -> list[str]:
    return [name for name in sys.links.names if name.startswith("box")]


def _target(sys: System) -> int:
    return index(sys.links.names, "target", "link")


def _half_width(sys: System) -> Float[Array, ""]:
    return sys.geoms.size[index(sys.geoms.names, "target", "shape"), 0]


def _start(key: PRNGKeyArray, sys: System):
    """Draw coordinates of arm and boxes."""
    key_arm, key_boxes = jr.split(key)
    q, boxes = random_arm(sys, key_arm), _boxes(sys)
    low, high = jnp.asarray([0.1, 0.0, 0.0]), jnp.asarray([0.3, 0.7, 2.0 * jnp.pi])
    places = jr.uniform(key_boxes, (len(boxes), 3), q.dtype, low[None], high[None])
    names = [f"{box}_{axis}" for box in boxes for axis in "xzy"]
    q = q.at[jnp.asarray(joint_places(sys, names))].set(places.ravel())
    return q, sys, q


def stacker_stack_2(**options: Any) -> DomainRandomization:
    """Create `Stacker` with 2 boxes and a target, which `RandomTower` places at a
    reset.

    **Arguments:** the options of `Stacker`.
    """
    return _stacker(2, options)


def stacker_stack_4(**options: Any) -> DomainRandomization:
    """Create the same with 4 boxes. **Arguments:** the options of `Stacker`."""
    return _stacker(4, options)


def _stacker(num_boxes: int, options: dict[str, Any]) -> DomainRandomization:
    if options.get("sys") is None:
        options["sys"] = stacker_model(num_boxes)
    return DomainRandomization(Stacker(**options), RandomTower())
