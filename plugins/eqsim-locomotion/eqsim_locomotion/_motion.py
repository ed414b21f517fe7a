"""Reference motions of a robot: coordinates over time, from files or from a formula."""

import pathlib
import zipfile
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from eqsim import System
from eqsim.bridges import check_count
from eqsim.kinematics import difference, forward, integrate
from eqsim.model import JointKind
from eqsim.model.arrays import as_array

from ._legged import check_positive
from ._robots import by_joint, default_pose, find_names, find_robot, load_robot, Robot


def _untraced(value: Any) -> Any:
    """Convert a number to an array, see `as_array`, that is no tracer under `jax.jit`."""
    with jax.ensure_compile_time_eval():
        return as_array(value)


class ReferenceMotion(eqx.Module):
    r"""Coordinates of a robot over time, at equal intervals.

    Velocities are not stored: they are central differences on the configuration space,
    $\dot q_k = (q_{k+1} \ominus q_{k-1}) / 2T$, one-sided in the first and the last frame.

    **Arguments:**

    - `q`: coordinates of each frame, as `State.q`: of the free joint the position in the
        world, m, and the orientation as a unit quaternion, scalar first.
    - `period`: time between frames $T$, s.

    **Raises:** `ValueError` if there are fewer than two frames.
    """

    q: Float[Array, "frames nq"] = eqx.field(converter=as_array)
    period: Float[Array, ""] = eqx.field(converter=_untraced)

    def __check_init__(self):
        if getattr(self.q, "ndim", 2) != 2 or self.q.shape[0] < 2:
            raise ValueError(
                f"`ReferenceMotion.q` must have the shape (frames, nq) with at least two "
                f"frames, got {self.q.shape}."
            )

    @property
    def frames(self) -> int:
        """Number of frames."""
        return self.q.shape[0]

    def at(
        self, sys: System, frame: Int[Array, ""]
    ) -> tuple[Float[Array, " nq"], Float[Array, " nv"]]:
        """Return coordinates and velocities of a frame; after the last one, the robot rests
        in its coordinates.

        **Arguments:**

        - `sys`: the robot; only its structure is read.
        - `frame`: number of the frame, from 0.
        """
        last = self.frames - 1
        k = jnp.clip(frame, 0, last)
        before, after = jnp.maximum(k - 1, 0), jnp.minimum(k + 1, last)
        step = difference(sys, self.q[before], self.q[after])
        time = (after - before).astype(step.dtype) * self.period.astype(step.dtype)
        return self.q[k], jnp.where(frame > last, 0.0, step / time)

    def resampled(self, sys: System, period: float) -> "ReferenceMotion":
        r"""Return the motion with another time between frames.

        Between frames, $q = q_k \oplus \alpha (q_{k+1} \ominus q_k)$: linear in positions
        and angles, spherical linear in quaternions (Shoemake, *Animating rotation with
        quaternion curves*, 1985).

        **Raises:** `ValueError` if the motion is shorter than one period.
        """
        old, last = float(self.period), self.frames - 1
        count = int(np.floor(last * old / period + 1e-6)) + 1
        if count < 2:
            raise ValueError(
                f"The motion takes {last * old:.3g} s, less than two frames of {period} s. "
                "Choose a longer part."
            )
        place = np.arange(count) * period / old
        index = np.minimum(place.astype(int), last - 1)
        share = jnp.asarray(place - index, self.q.dtype)
        between = lambda a, b, s: integrate(sys, a, s * difference(sys, a, b))
        q = jax.vmap(between)(self.q[index], self.q[index + 1], share)
        return ReferenceMotion(q, period)


def load_motion(
    path: str | pathlib.Path,
    sys: System,
    *,
    fps: float | int | None = None,
    start: float | int = 0.0,
    end: float | int | None = None,
) -> ReferenceMotion:
    """Load a motion of a robot, whose first joint is free, from a file.

    - `.npz`: array `q` `(frames, nq)` as `State.q`, number `fps`, and optionally `joints`,
        the names of the columns after the seventh, in any order, of which only those of
        the robot are read.
    - `.csv`: a frame per row without header: position of the root, m, its quaternion `x y
        z w`, and the joints in the order of the robot, rad (the format of Unitree's
        retargeted LAFAN1).

    **Arguments:**

    - `sys`: the robot.
    - `fps`: frames per second; by default that of the file, or 30 for `.csv`.
    - `start`, `end`: the part to read, s; by default all.

    **Raises:** `ValueError` that names the file if the file does not fit the robot;
    `FileNotFoundError` if there is none.

    ??? cite "Reference"
        Harvey et al., *Robust motion in-betweening*, 2020 (LAFAN1).
    """
    path = pathlib.Path(path)
    if sys.joints.kinds[:1] != (JointKind.FREE,) or sys.nq != 6 + len(sys.joints.kinds):
        raise ValueError(
            f"{path}: a motion needs a robot with one free joint, which comes first, and "
            f"joints of one coordinate, got {list(zip(sys.joints.names, sys.joints.kinds))}."
        )
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {path} with a motion.")
    read = {".npz": _read_npz, ".csv": _read_csv}.get(path.suffix)
    if read is None:
        raise ValueError(
            f"{path}: motions are files `.npz` or `.csv`, got {path.suffix!r}. Save `q` and "
            "`fps` with `numpy.savez`."
        )
    q, own_fps = read(path, sys)
    _check_values(path, q)
    fps = own_fps if fps is None else fps
    if not (np.isfinite(fps) and fps > 0.0):
        raise ValueError(f"{path}: `fps` must be positive, got {fps}.")
    return ReferenceMotion(_cut(path, q, fps, start, end), 1.0 / fps)


def _read_npz(path: pathlib.Path, sys: System) -> tuple[np.ndarray, float]:
    try:
        with np.load(path) as file:
            found = {name: file[name] for name in file.files}
    except (ValueError, TypeError, EOFError, OSError, zipfile.BadZipFile) as error:
        raise ValueError(f"Cannot read {path} as an `.npz` file: {error}") from error
    if missing := [name for name in ("q", "fps") if name not in found]:
        raise ValueError(
            f"{path} has no array {' and '.join(map(repr, missing))}, only "
            f"{', '.join(map(repr, found)) or 'none'}. Save `q` and `fps`."
        )
    try:
        q = np.asarray(found["q"], float)
        fps = np.asarray(found["fps"], float).item()
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"{path}: `q` must be numbers and `fps` one number: {error}"
        ) from error
    joints = sys.joints.names[1:]
    if "joints" in found and q.ndim == 2:
        names = [str(name) for name in np.atleast_1d(found["joints"])]
        _check_columns(path, q, 7 + len(names), f"the {len(names)} of its `joints`")
        if missing := [name for name in joints if name not in names]:
            raise ValueError(
                f"{path} has no joint {', '.join(missing)}. It has {', '.join(names)}. "
                "Choose the robot that the motion was made for."
            )
        q = q[:, [*range(7), *(7 + names.index(name) for name in joints)]]
    _check_columns(path, q, sys.nq, f"the {len(joints)} joints of the robot")
    return q, fps


def _read_csv(path: pathlib.Path, sys: System) -> tuple[np.ndarray, float]:
    try:
        q = np.loadtxt(path, delimiter=",", ndmin=2)
    except ValueError as error:
        raise ValueError(
            f"{path} must have only numbers, separated by commas, without header: {error}"
        ) from error
    _check_columns(path, q, sys.nq, f"the {sys.nq - 7} joints of the robot")
    return q[:, [0, 1, 2, 6, 3, 4, 5, *range(7, sys.nq)]], 30.0


def _check_columns(path: pathlib.Path, q: np.ndarray, number: int, joints: str) -> None:
    if q.ndim != 2 or q.shape[1] != number:
        raise ValueError(
            f"{path} has coordinates of the shape {q.shape}, expected (frames, {number}): 7 "
            f"columns of the root and {joints}. Choose the robot that the motion was made "
            "for."
        )


def _check_values(path: pathlib.Path, q: np.ndarray) -> None:
    if not np.all(np.isfinite(q)):
        row, column = np.argwhere(~np.isfinite(q))[0]
        raise ValueError(
            f"{path} must be finite, got {q[row, column]} in frame {row}, coordinate {column}."
        )
    off = np.abs(np.linalg.norm(q[:, 3:7], axis=1) - 1.0)
    if len(off) and off.max() > 1e-2:
        row = int(off.argmax())
        raise ValueError(
            f"{path}: columns 3 to 6 must be unit quaternions, got {q[row, 3:7].tolist()} "
            f"in frame {row}. In a `.csv` file, they come as x y z w."
        )


def _cut(
    path: pathlib.Path, q: np.ndarray, fps: Any, start: Any, end: Any
) -> np.ndarray:
    """Return the frames between two times, with quaternions of unit length."""
    duration = (len(q) - 1) / fps
    end = duration if end is None else end
    if not 0.0 <= start < end <= duration + 1e-6:
        raise ValueError(
            f"{path} takes {duration:.2f} s, so `start` and `end` must be between 0 and "
            f"that, the first one smaller, got {start} and {end}."
        )
    q = q[int(np.round(start * fps)) : int(np.round(end * fps)) + 1].copy()
    if len(q) < 2:
        raise ValueError(
            f"{path} has {len(q)} frame from {start} to {end} s, but a motion needs two. "
            "Choose a longer part."
        )
    q[:, 3:7] /= np.linalg.norm(q[:, 3:7], axis=1, keepdims=True)
    return q


# Angles at the lowest point of a squat minus those of the default pose, by joint. The feet
# stay parallel to the ground, as angles of one leg add to zero.
SQUAT = {
    **{"hip_pitch": -0.5, "Hip_Pitch": -0.5, "knee": 1.0, "Knee": 1.0},
    **{"ankle_roll": 0.0, "Ankle_Roll": 0.0, "ankle": -0.5, "Ankle": -0.5},
    **{"shoulder_pitch": -0.8, "Shoulder_Pitch": -0.8, "": 0.0},
}


def squats(
    robot: Robot | str = "g1",
    sys: System | None = None,
    *,
    bend: float | Mapping[str, float] | None = None,
    count: int = 2,
    seconds: float | int = 2.0,
    period: float = 0.02,
) -> ReferenceMotion:
    r"""Return squats with raised arms, which need no file.

    Angles are $q_0 + \tfrac12 (1 - \cos 2 \pi t / T)\, b$, with the default pose $q_0$. The
    root is moved such that the mean position of the feet stays where it is.

    **Arguments:**

    - `robot`: description of the robot, or its name.
    - `sys`: the robot; by default that of `load_robot(robot)`.
    - `bend`: $b$ by joint, rad, see `Robot`; by default `SQUAT`, whose names are those of
        G1, H1 and T1.
    - `count`: number of squats.
    - `seconds`: duration $T$ of each, s.
    - `period`: time between frames, s.

    **Raises:** `ValueError` if `bend` is zero, or another number is not positive.
    """
    check_count("count", count)
    check_positive("seconds", seconds)
    check_positive("period", period)
    robot = find_robot(robot)
    sys = load_robot(robot) if sys is None else sys
    names = find_names(sys, robot)
    start, _ = default_pose(sys, robot, names)
    angles = by_joint(SQUAT if bend is None else bend, names.joints, "bend")
    if not np.any(angles):
        raise ValueError(
            f"`bend` is zero for all joints of {robot.name!r}: {', '.join(names.joints)}. "
            "Pass angles by names of joints."
        )
    feet = jnp.asarray([link for link, *_ in names.feet])
    time = np.arange(round(count * seconds / period) + 1) * period
    depth = jnp.asarray(0.5 - 0.5 * np.cos(2.0 * np.pi * time / seconds), start.dtype)
    place = lambda q: jnp.mean(forward(sys, q).pos[feet], axis=0)

    def frame(depth):
        q = start.at[jnp.asarray(names.q)].add(depth * jnp.asarray(angles, start.dtype))
        return q.at[:3].add(place(start) - place(q))

    return ReferenceMotion(jax.vmap(frame)(depth), period)


def find_motion(
    motion: Any, robot: Robot, sys: System, *, start: float | int = 0.0, end: Any = None
) -> ReferenceMotion:
    """Return the given motion, load it from a file, or return squats by default.

    **Raises:** `ValueError` if it does not fit the robot, or a part is asked for of a motion
    that is no file; `TypeError` if it is neither.
    """
    if isinstance(motion, str | pathlib.Path):
        return load_motion(motion, sys, start=start, end=end)
    if start != 0.0 or end is not None:
        raise ValueError(
            f"`start` and `end` apply to motion files only, got {start} and {end} without a "
            "file. Pass `motion=PATH`."
        )
    if motion is None:
        return squats(robot, sys)
    if not isinstance(motion, ReferenceMotion):
        raise TypeError(
            f"`motion` must be a `ReferenceMotion` or the path of a file, got {motion!r}."
        )
    if motion.q.shape[1] != sys.nq:
        raise ValueError(
            f"`motion` has {motion.q.shape[1]} coordinates, but the robot {robot.name!r} has "
            f"{sys.nq}. Load it with `load_motion(path, sys)` of this robot."
        )
    return motion
