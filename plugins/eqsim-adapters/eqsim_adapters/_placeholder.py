"""Placeholder robot for environments without a robot of eqsim."""

from typing import Any

import equinox as eqx
import numpy as np

import eqsim
from eqsim import System


def check_robot(library: Any, sys: System, inner: Any, nu: int, dt: float) -> None:
    """Raise `ValueError` unless `sys` has the sizes and the time step of the robot."""
    q, qd = eqx.filter_eval_shape(library.coordinates, inner)
    sizes = {"nq": q.shape[0], "nv": qd.shape[0], "nu": nu}
    for name, size in sizes.items():
        own = {"nq": sys.nq, "nv": sys.nv, "nu": sys.nu}[name]
        if own != size:
            raise ValueError(
                f"`sys.{name}` must be {size}, as in the robot of {library.name}, got "
                f"{own}. Load the model file of that environment, or leave `sys` out."
            )
    if not np.isclose(float(sys.dt), dt, rtol=1e-5):
        raise ValueError(
            f"`sys.dt` must be {dt} s, the control step of {library.name}, got "
            f"{float(sys.dt)} s. Change it with `eqx.tree_at`."
        )


def placeholder(action_range: np.ndarray, dt: float) -> System:
    """Return a mass on a rail, with one motor per entry of an action."""
    motors = "".join(
        f'<motor name="action{k}" joint="rail"{_limits(low, high)}/>'
        for k, (low, high) in enumerate(np.asarray(action_range, float).tolist())
    )
    return eqsim.load_mjcf(
        f'<mujoco><option timestep="{dt!r}" gravity="0 0 0"/><worldbody><body name="none">'
        '<joint name="rail" type="slide" axis="1 0 0"/>'
        '<geom size="0.1" mass="1" contype="0" conaffinity="0"/></body></worldbody>'
        f"<actuator>{motors}</actuator></mujoco>"
    )


def _limits(low: float, high: float) -> str:
    if np.isfinite(low) and np.isfinite(high):
        return f' ctrllimited="true" ctrlrange="{low!r} {high!r}"'
    return ' ctrllimited="false"'
