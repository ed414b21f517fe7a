"""Legged robots of MuJoCo Menagerie, described by names, and loaded from its files.

`Robot` is the description; `load_robot` reads the file and replaces its actuators by
position servos; `find_names` finds in a `System` what a description names.
"""

import importlib
import os
import pathlib
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

import eqsim
from eqsim import System
from eqsim.envs import reflected_name
from eqsim.io import with_height_field
from eqsim.model import GeomKind, JointKind
from eqsim.terrain import TerrainGrid, with_terrain


MENAGERIE = "EQSIM_MENAGERIE"
"""Environment variable with the path of a copy of MuJoCo Menagerie."""


class Robot(NamedTuple):
    """Description of a legged robot by the names in its file.

    A value by joint is a number for all joints, or a dictionary from parts of joint names to
    numbers: the first part that a name contains counts, and `""` is contained in all.

    - `name`: name of the robot, as in names of environments.
    - `file`: path of a scene with a floor, as it is or below the root of Menagerie.
    - `root`: link of the free joint.
    - `feet`: sites or shapes at the soles, or links. Of a link, the foot is that shape that
        can touch something and whose center is farthest from the origin of the link.
    - `keyframe`: keyframe of the default pose; empty for `pose` alone.
    - `pose`: joint angles of the default pose by joint, rad, instead of those of `keyframe`.
    - `height`: height of the root in the default pose, m; None for that of `keyframe`.
    - `stiffness`, `damping`: gains of the servos by joint, N m/rad and N m s/rad; None for
        those of the file.
    - `torque_limit`: largest torque by joint, N m; None for the limits of the file.
    - `action_scale`: change of the target angle per unit of action by joint, rad.
    - `pose_weights`: weights of deviations from the default pose by joint.
    - `dt`: time step for training, s.
    - `fallen`: tilt of the root from which the robot has fallen, rad.
    - `foot_height`: height of a swing, m.
    - `terrain_contacts`: largest number of contacts of each shape with terrain. The deepest
        are kept, and `Solved.converged` is false where there are more.
    - `speed`: factor of the velocities that tasks command by default.
    - `weights`: weights of reward terms that differ from those of other robots, 1/s.
    """

    name: str
    file: str
    root: str
    feet: tuple[str, ...]
    keyframe: str = "home"
    pose: Mapping[str, float] | None = None
    height: float | None = None
    stiffness: float | Mapping[str, float] | None = None
    damping: float | Mapping[str, float] | None = None
    torque_limit: float | Mapping[str, float] | None = None
    action_scale: float | Mapping[str, float] = 0.3
    pose_weights: float | Mapping[str, float] = 1.0
    dt: float = 0.005
    fallen: float = 1.0
    foot_height: float = 0.08
    terrain_contacts: int = 8
    speed: float = 1.0
    weights: Mapping[str, float] = MappingProxyType({})


_ABDUCTION = {"hip": 1.0, "HAA": 1.0, "hx": 1.0, "abduction": 1.0, "": 0.3}
_LEGS = {"Head": 0.0, "head": 0.0, "knee": 0.2, "Knee": 0.2, "KFE": 0.2, "pitch": 0.4}
_LEGS |= {"Pitch": 0.4, "HFE": 0.4, "ankle": 0.4, "FFE": 0.4, "": 1.0}
# These fall often before they walk; a high cost of falls would teach them to stand.
_UPRIGHT = {"fallen": -100.0, "tilt": -3.0}
# A fall costs more than with other robots: the largest tilts after new commands become
# several times rarer.
_SURE_FOOTED = {"fallen": -1350.0}

GO1 = Robot(
    name="go1",
    file="unitree_go1/scene.xml",
    root="trunk",
    feet=("FR", "FL", "RR", "RL"),
    stiffness=35.0,
    damping=0.5,
    pose_weights=_ABDUCTION,
    terrain_contacts=1,
    weights=_SURE_FOOTED,
)
GO2 = GO1._replace(
    name="go2",
    file="unitree_go2/scene.xml",
    root="base",
    feet=("FL", "FR", "RL", "RR"),
)
A1 = GO1._replace(
    name="a1",
    file="unitree_a1/scene.xml",
    feet=("FR_calf", "FL_calf", "RR_calf", "RL_calf"),
    weights={},
)
ANYMAL_C = Robot(
    name="anymal_c",
    file="anybotics_anymal_c/scene.xml",
    root="base",
    feet=("LF_SHANK", "RF_SHANK", "LH_SHANK", "RH_SHANK"),
    keyframe="",
    pose={"F_HFE": 0.4, "H_HFE": -0.4, "F_KFE": -0.8, "H_KFE": 0.8, "HAA": 0.0},
    height=0.56,
    stiffness=85.0,
    damping=2.0,
    action_scale=0.4,
    pose_weights=_ABDUCTION,
    terrain_contacts=1,
)
SPOT = Robot(
    name="spot",
    file="boston_dynamics_spot/scene.xml",
    root="body",
    feet=("FL", "FR", "HL", "HR"),
    torque_limit={"kn": 115.0, "": 45.0},
    pose_weights=_ABDUCTION,
    terrain_contacts=1,
    weights=_UPRIGHT,
)
BARKOUR = Robot(
    name="barkour",
    file="google_barkour_vb/scene.xml",
    root="torso",
    feet=("foot_front_left", "foot_hind_left", "foot_front_right", "foot_hind_right"),
    stiffness=35.0,
    damping=0.5,
    pose_weights={"abduction": 1.0, "": 0.3},
)
G1 = Robot(
    name="g1",
    file="unitree_g1/scene.xml",
    root="pelvis",
    feet=("left_foot", "right_foot"),
    keyframe="stand",
    pose={
        "hip_pitch": -0.3,
        "knee": 0.6,
        "ankle_pitch": -0.3,
        "shoulder_pitch": 0.2,
        "left_shoulder_roll": 0.2,
        "right_shoulder_roll": -0.2,
        "elbow": 0.9,
        "": 0.0,
    },
    height=0.76,
    stiffness={"hip": 100.0, "knee": 150.0, "waist": 150.0, "": 40.0},
    damping={"hip": 2.0, "knee": 4.0, "waist": 4.0, "": 2.0},
    action_scale=0.4,
    pose_weights=_LEGS,
    terrain_contacts=1,
    weights=_UPRIGHT,
)
T1 = Robot(
    name="t1",
    file="booster_t1/scene.xml",
    root="Trunk",
    feet=("left_foot_link", "right_foot_link"),
    stiffness={"Hip": 120.0, "Knee": 150.0, "Ankle": 60.0, "Waist": 120.0, "": 30.0},
    damping={"Hip": 3.0, "Knee": 3.0, "Waist": 3.0, "": 1.5},
    action_scale=0.4,
    pose_weights=_LEGS,
    weights=_UPRIGHT,
)
H1 = Robot(
    name="h1",
    file="unitree_h1/scene.xml",
    root="pelvis",
    feet=("left_ankle_link", "right_ankle_link"),
    stiffness={"knee": 200.0, "ankle": 40.0, "torso": 300.0, "hip": 150.0, "": 100.0},
    damping={"knee": 4.0, "torso": 6.0, "": 2.0},
    action_scale=0.4,
    pose_weights=_LEGS,
    terrain_contacts=2,
    weights=_UPRIGHT,
)
APOLLO = Robot(
    name="apollo",
    file="apptronik_apollo/scene.xml",
    root="base_link",
    feet=("collision_l_sole", "collision_r_sole"),
    keyframe="stand",
    action_scale=0.4,
    pose_weights={"knee": 0.2, "hip_fe": 0.4, "ankle": 0.4, "neck": 0.0, "": 1.0},
    weights=_UPRIGHT,
)
BERKELEY = Robot(
    name="berkeley_humanoid",
    file="berkeley_humanoid/scene.xml",
    root="torso",
    feet=("LL_FOOT", "LR_FOOT"),
    stiffness={"HR": 20.0, "HAA": 20.0, "HFE": 20.0, "KFE": 20.0, "": 5.0},
    damping={"HR": 1.5, "HAA": 1.5, "HFE": 1.5, "KFE": 1.5, "": 0.3},
    action_scale=0.4,
    pose_weights=_LEGS,
    weights=_UPRIGHT,
)
OP3 = Robot(
    name="op3",
    file="robotis_op3/scene.xml",
    root="body_link",
    feet=("l_ank_roll_link", "r_ank_roll_link"),
    keyframe="",
    pose={
        "l_hip_pitch": -0.4,
        "r_hip_pitch": 0.4,
        "l_knee": 0.8,
        "r_knee": -0.8,
        "l_ank_pitch": 0.4,
        "r_ank_pitch": -0.4,
        "": 0.0,
    },
    height=0.262,
    pose_weights={"knee": 0.2, "pitch": 0.4, "head": 0.0, "": 1.0},
    foot_height=0.04,
    speed=0.4,
    weights=_UPRIGHT,
)
ROBOTS = {
    robot.name: robot
    for robot in (
        *(GO1, GO2, A1, ANYMAL_C, SPOT, BARKOUR),
        *(G1, H1, T1, APOLLO, BERKELEY, OP3),
    )
}
"""Robots by name."""


def find_robot(robot: Robot | str) -> Robot:
    """Return a description, or that of a name in `ROBOTS`; `ValueError` if there is none."""
    if isinstance(robot, Robot):
        return robot
    check_known("robot", [robot], ROBOTS)
    return ROBOTS[robot]


def check_known(what: str, names: Iterable[str], known: Iterable[str]) -> None:
    """Raise `ValueError` unless all names are known."""
    if unknown := [name for name in names if name not in known]:
        raise ValueError(
            f"`{what}` names {', '.join(map(repr, unknown))}. Choose from "
            f"{', '.join(known)}."
        )


# Loading.


def menagerie_file(name: str) -> pathlib.Path:
    """Return the path of a file of MuJoCo Menagerie, below `EQSIM_MENAGERIE`.

    **Raises:** `FileNotFoundError`, with advice on how to get Menagerie.
    """
    folder = os.environ.get(MENAGERIE)
    file = pathlib.Path(name)
    if not file.is_file():
        file = pathlib.Path(folder or "mujoco_menagerie") / name
    if not file.is_file():
        where = (
            f"`{MENAGERIE}` is {folder!r}" if folder else f"`{MENAGERIE}` is not set"
        )
        raise FileNotFoundError(
            f"MuJoCo Menagerie is needed, but there is no file {file} ({where}). Run `git "
            "clone https://github.com/google-deepmind/mujoco_menagerie` and set "
            f"`{MENAGERIE}` to the folder."
        )
    return file


def by_joint(
    value: float | Mapping[str, float], joints: tuple[str, ...], what: str
) -> np.ndarray:
    """Return a value for each joint, see `Robot`.

    **Raises:** `ValueError` if there is none for a joint.
    """
    if not isinstance(value, Mapping):
        return np.full(len(joints), float(value))
    found = [[x for part, x in value.items() if part in name] for name in joints]
    missing = [name for name, xs in zip(joints, found, strict=True) if not xs]
    if missing:
        raise ValueError(
            f"`{what}` has no value for the joints {', '.join(missing)}, only for names "
            f'that contain {", ".join(map(repr, value))}. Add them, or `"": number` for all.'
        )
    return np.array([xs[0] for xs in found])


def load_robot(
    robot: Robot, terrain: TerrainGrid | None = None, **options: Any
) -> System:
    """Load a robot with position servos, from its own file.

    The actuator of each joint gets the law $\\tau = k_p (u - q) - k_d \\dot q$, within its
    torque limit; the control $u$ is an angle. Everything else, meshes and all collisions
    included, is that of the file.

    **Arguments:**

    - `terrain`: terrain in place of the floor; by default the floor of the file. Its
        heights are those of the key 0; `eqsim.terrain.with_terrain` replaces them.
    - `options`: arguments of `eqsim.load_mjcf`.

    **Raises:** `FileNotFoundError` if Menagerie is not found, `ValueError` if the
    description names what the file does not have.
    """
    mujoco: Any = importlib.import_module("mujoco")
    spec = mujoco.MjSpec.from_file(str(menagerie_file(robot.file)))
    add_servos(spec, robot)
    spec.option.timestep = robot.dt
    if terrain is None:
        return eqsim.load_mjcf(spec, **options)
    spec = with_height_field(spec, *terrain.shape, terrain.size)
    options = {"height_field_contacts": robot.terrain_contacts} | options
    return with_terrain(eqsim.load_mjcf(spec, **options), terrain.heights(jr.key(0)))


def add_servos(spec: Any, robot: Robot) -> None:
    """Replace the actuators of a `mujoco.MjSpec` by those of `load_robot`."""
    mujoco: Any = importlib.import_module("mujoco")
    model = spec.compile()
    joints = tuple(
        model.joint(a.trnid[0]).name for a in map(model.actuator, range(model.nu))
    )
    limits = torque_limits(model, robot, joints)
    stiffness, damping = model.actuator_gainprm[:, 0], -model.actuator_biasprm[:, 2]
    if robot.stiffness is not None:
        stiffness = by_joint(robot.stiffness, joints, "stiffness")
    if robot.damping is not None:
        damping = by_joint(robot.damping, joints, "damping")
    for k, actuator in enumerate(spec.actuators):
        actuator.gaintype = mujoco.mjtGain.mjGAIN_FIXED
        actuator.biastype = mujoco.mjtBias.mjBIAS_AFFINE
        actuator.gainprm = [stiffness[k], *[0.0] * 9]
        actuator.biasprm = [0.0, -stiffness[k], -damping[k], *[0.0] * 7]
        actuator.ctrllimited = 0
        actuator.forcelimited = 1
        actuator.forcerange = [-limits[k], limits[k]]


def torque_limits(model: Any, robot: Robot, joints: tuple[str, ...]) -> np.ndarray:
    """Return the torque limit of each joint, N m: that of the description, or of the file,
    which can be in the actuator's force, its control (for motors), or the joint."""
    if robot.torque_limit is not None:
        return by_joint(robot.torque_limit, joints, "torque_limit")
    limits = np.full(len(joints), np.inf)
    for k in range(model.nu):
        joint = model.actuator_trnid[k, 0]
        motor = model.actuator_biastype[k] == 0
        if model.actuator_forcelimited[k]:
            limits[k] = model.actuator_forcerange[k, 1]
        if motor and model.actuator_ctrllimited[k]:
            most = model.actuator_ctrlrange[k, 1] * model.actuator_gainprm[k, 0]
            limits[k] = min(limits[k], most)
        if model.jnt_actfrclimited[joint]:
            limits[k] = min(limits[k], model.jnt_actfrcrange[joint, 1])
    if unlimited := [
        n for n, x in zip(joints, limits, strict=True) if not np.isfinite(x)
    ]:
        raise ValueError(
            f"{robot.file} has no torque limit for the joints {', '.join(unlimited)}. Pass "
            "`torque_limit`."
        )
    return limits


# Names in a system.


class Names(NamedTuple):
    """Where a `System` has what a `Robot` names.

    - `root`: index of the root link.
    - `joints`, `places`: name and index of the joint of each actuator.
    - `q`, `qd`: entries of these joints in the coordinates and velocities.
    - `feet`: link, and whether it is a site, and index of each foot.
    - `others`: number of the foot on the other side of each, by names; its own number if
        there is none.
    """

    root: int
    joints: tuple[str, ...]
    places: tuple[int, ...]
    q: tuple[int, ...]
    qd: tuple[int, ...]
    feet: tuple[tuple[int, bool, int], ...]
    others: tuple[int, ...]


def find_names(sys: System, robot: Robot) -> Names:
    """Find what a description names.

    **Raises:** `ValueError` that lists the names there are.
    """
    places = tuple(joint for joint, _ in sys.actuators.targets)
    joints = tuple(sys.joints.names[k] for k in places)
    refs = [sys.joint(name) for name in joints]
    feet = tuple(_find_foot(sys, robot, name) for name in robot.feet)
    if not feet:
        raise ValueError(
            f"`Robot.feet` of {robot.name!r} is empty. Name a site, a shape or a link per "
            "foot."
        )
    root = _find(sys.links.names, robot.root, "link", robot)
    if sys.joints.kinds[0] is not JointKind.FREE or sys.joints.links[0] != root:
        raise ValueError(
            f"`Robot.root` of {robot.name!r} must be the link of the first joint, which must "
            f"be free, got {robot.root!r}; that joint is one of "
            f"{sys.links.names[sys.joints.links[0]]!r}."
        )
    return Names(
        root=root,
        joints=joints,
        places=places,
        q=tuple(ref.q.start for ref in refs),
        qd=tuple(ref.qd.start for ref in refs),
        feet=feet,
        others=tuple(
            robot.feet.index(reflected_name(name, robot.feet)) for name in robot.feet
        ),
    )


def _find_foot(sys: System, robot: Robot, name: str) -> tuple[int, bool, int]:
    if name in sys.sites.names:
        index = sys.sites.names.index(name)
        return sys.sites.links[index], True, index
    if name in sys.geoms.names:
        return _checked(sys, robot, sys.geoms.names.index(name))
    if name in sys.links.names:
        return _find_sole(sys, robot, name)
    named = [n for n in sys.geoms.names if not n.startswith("geom")]
    known = [*sys.links.names, *sys.sites.names, *named]
    raise ValueError(
        f"The robot {robot.name!r} has no site, shape or link {name!r} for a foot. It has "
        f"{', '.join(known)}. Name one of them per foot in `Robot.feet`."
    )


def _find_sole(sys: System, robot: Robot, link: str) -> tuple[int, bool, int]:
    index = sys.links.names.index(link)
    colliding = zip(sys.geoms.links, sys.geoms.contype, sys.geoms.conaffinity)
    own = [k for k, (on, *bits) in enumerate(colliding) if on == index and any(bits)]
    if not own:
        raise ValueError(
            f"The link {link!r} of the robot {robot.name!r} has no shape that touches the "
            "ground. Name another link, a shape, or a site in `Robot.feet`."
        )
    far = [float(jnp.sum(sys.geoms.pos[k] ** 2)) for k in own]
    return _checked(sys, robot, own[int(np.argmax(far))])


def _checked(sys: System, robot: Robot, geom: int) -> tuple[int, bool, int]:
    """Return a shape as a foot, if its lowest point is known."""
    kind = sys.geoms.kinds[geom]
    if kind not in (GeomKind.SPHERE, GeomKind.CAPSULE, GeomKind.BOX):
        raise ValueError(
            f"The foot {sys.geoms.names[geom]!r} of the robot {robot.name!r} is a "
            f"{kind.name}, but the sole of a foot is known for spheres, capsules and boxes "
            "only. Name a site at the sole in `Robot.feet`."
        )
    return sys.geoms.links[geom], False, geom


def _find(names: tuple[str, ...], name: str, kind: str, robot: Robot) -> int:
    if name not in names:
        raise ValueError(
            f"The robot {robot.name!r} has no {kind} {name!r}. It has {', '.join(names)}."
        )
    return names.index(name)


def default_pose(sys: System, robot: Robot, names: Names) -> tuple[Any, Any]:
    """Return the coordinates of the default pose, and the joint angles of the servos."""
    with jax.ensure_compile_time_eval():  # Inside transformations, too.
        home = sys.keyframe(robot.keyframe).q if robot.keyframe else sys.joints.ref
        q = np.array(home)
    if robot.pose is not None:
        q[list(names.q)] = by_joint(robot.pose, names.joints, "pose")
    if robot.height is not None:
        q[2] = robot.height
    return jnp.asarray(q), jnp.asarray(q[list(names.q)])
