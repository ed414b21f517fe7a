"""Robots of the benchmarks, from files of other packages."""

import dataclasses
import importlib.util
import pathlib

import mujoco

import eqsim
from eqsim.model import Integrator


GYMNASIUM = (
    "ant",
    "half_cheetah",
    "hopper",
    "humanoid",
    "humanoidstandup",
    "inverted_double_pendulum",
    "inverted_pendulum",
    "pusher_v5",
    "reacher",
    "swimmer",
    "walker2d_v5",
)
TIMED = ("brax_ant", "ant", "half_cheetah", "humanoid")
"""Timed robots. Brax's ant has 4 possible contacts, Gymnasium's ant 25, its humanoid 126."""


class NotInstalled(Exception):
    """The package of a file or of a simulator is not installed."""


def model_file(name: str) -> pathlib.Path:
    """Return the MJCF file of a robot.

    **Arguments:**

    - `name`: name of a file of Gymnasium, without suffix; `brax_` and a name for a file
        of Brax; `"barkour"` for the quadruped among the test data of MJX; or a path
        that ends with `.xml`.

    **Raises:** `NotInstalled` if the package is missing, `ValueError` if the file is.
    """
    if name.endswith(".xml"):
        return pathlib.Path(name)
    if name == "barkour":
        folder = package("mujoco.mjx") / "test_data" / "barkour_v0" / "assets"
        file = folder / "barkour_v0_mjx.xml"
    elif name.startswith("brax_"):
        file = package("brax") / "envs" / "assets" / f"{name[5:]}.xml"
    else:
        file = package("gymnasium") / "envs" / "mujoco" / "assets" / f"{name}.xml"
    if not file.exists():
        known = sorted(other.stem for other in file.parent.glob("*.xml"))
        raise ValueError(
            f"There is no model {name!r}. Files there: {', '.join(known)}."
        )
    return file


def package(name: str) -> pathlib.Path:
    """Return the folder of a package, without importing it."""
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise NotInstalled(f"{name} is not installed: pip install 'eqsim[bench]'")
    return pathlib.Path(spec.origin).parent


def mujoco_model(name: str, *, euler: bool = False) -> mujoco.MjModel:
    """Return the robot in MuJoCo.

    **Arguments:**

    - `euler`: true to use Euler and Newton independently of the file, which all
        simulators support.
    """
    model = mujoco.MjModel.from_xml_path(str(model_file(name)))
    if euler:
        model.opt.integrator = mujoco.mjtIntegrator.mjINT_EULER
        model.opt.solver = mujoco.mjtSolver.mjSOL_NEWTON
    return model


def system(name: str, *, euler: bool = False) -> eqsim.System:
    """Return the robot in eqsim; with `euler`, with Euler independently of the file."""
    sys = eqsim.load_mjcf(model_file(name))
    return dataclasses.replace(sys, integrator=Integrator.EULER) if euler else sys
