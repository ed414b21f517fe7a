"""The published joystick tasks of humanoids, evaluated on `mjData` of MuJoCo C.

The classes of Playground's files are executed without the rest of the package, whose
dependencies are not needed: their rewards, observations and ends are functions of sensors
and coordinates, which MuJoCo C computes with a converged solver.
"""

import __future__

import ast
import contextlib
import types
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from _go1_reference import converge
from eqsim_playground import Legged
from eqsim_playground._models import add_force_sensors, document, playground_file


FOLDERS = {
    "G1Joystick": "locomotion/g1",
    "T1Joystick": "locomotion/t1",
    "BerkeleyHumanoidJoystick": "locomotion/berkeley_humanoid",
}
# Weights of terms that count nothing; 1 for others. Accelerations are large.
UNUSED = {"dof_acc": 1e-6}
FIELDS = "qpos", "qvel", "qacc", "ctrl", "sensordata", "actuator_force"


class Config(dict):
    """A nested dictionary with attributes."""

    __getattr__ = dict.__getitem__


class _Robot:
    """What the published base classes need of `mjx_env.MjxEnv`."""

    dt = property(lambda self: self._config.ctrl_dt)
    mj_model = property(lambda self: self._mj_model)
    mjx_model = property(lambda self: self._mj_model)


def _sensor(model, data, name: str):
    found = model.sensor(name)
    start, size = int(found.adr[0]), int(found.dim[0])
    return data.sensordata[start : start + size]


def _published(file: str, **known: Any) -> types.SimpleNamespace:
    """Execute classes, functions and constants of a file of Playground."""
    kinds = ast.ClassDef, ast.FunctionDef, ast.Assign
    tree = ast.parse(playground_file(file).read_text())
    body = [x for x in tree.body if isinstance(x, kinds)]
    env = types.SimpleNamespace(
        MjxEnv=_Robot,
        ROOT_PATH=playground_file(file).parents[2],
        get_sensor_data=_sensor,
    )
    scope = {
        **{"jax": jax, "jp": jnp, "np": np, "mujoco": mujoco, "mjx_env": env},
        "config_dict": types.SimpleNamespace(ConfigDict=Config, create=Config),
        **known,
    }
    # Annotations, which name types of other packages, are not evaluated.
    flags = __future__.annotations.compiler_flag
    exec(compile(ast.Module(body, []), file, "exec", flags, True), scope)
    return types.SimpleNamespace(**scope)


class State(types.SimpleNamespace):
    """A state of Playground."""

    def replace(self, **changed: Any) -> "State":
        return State(**{**vars(self), **changed})


def standard():
    """The promotion of types and shapes on which Playground relies."""
    stack = contextlib.ExitStack()
    stack.enter_context(jax.numpy_dtype_promotion("standard"))
    stack.enter_context(jax.numpy_rank_promotion("allow"))
    return stack


class HumanoidReference:
    """A published task without noise and pushes.

    **Arguments:**

    - `name`: name of the class of eqsim.
    - `about`: description of the robot, of which the names of scene and contact sensors
        are used.
    """

    def __init__(self, name: str, about: Legged):
        self.about, scene = about, about.scene
        self.folder = folder = FOLDERS[name]
        short = folder.rpartition("/")[2]
        consts = _published(f"{folder}/{short}_constants.py")
        base = _published(f"{folder}/base.py", consts=consts)
        known = {f"{short}_base": base, "consts": consts}
        gait = _published("gait.py")
        self.module = _published(f"{folder}/joystick.py", gait=gait, **known)
        self.config = self.module.default_config()
        self.config["noise_config"]["level"] = 0.0
        self.config["push_config"]["enable"] = False
        scales = self.config.reward_config.scales
        unused = [term for term, scale in scales.items() if scale == 0.0]
        scales.update({term: UNUSED.get(term, 1.0) for term in unused})
        self.model = mujoco.MjModel.from_xml_string(document(scene, add_force_sensors))
        converge(self.model)
        self.data = mujoco.MjData(self.model)
        self.task = object.__new__(self.module.Joystick)
        self.task._config, self.task._mj_model = self.config, self.model
        self.task._mjx_model, self.task.n_substeps = self.model, 10
        with standard():
            self.task._post_init()
        self._step = jax.jit(self._stepped)

    def seen(self, q, qd, ctrl) -> State:
        """Return what the task reads in a state."""
        data = self.data
        data.qpos[:], data.qvel[:], data.ctrl[:] = q, qd, ctrl
        data.qacc_warmstart[:] = 0.0
        mujoco.mj_forward(self.model, data)
        places = {"site_xpos": data.site_xpos.copy()}
        places["site_xmat"] = data.site_xmat.reshape(-1, 3, 3).copy()
        return State(**{x: getattr(data, x).copy() for x in FIELDS}, **places)

    def contact(self) -> np.ndarray:
        """Test if each foot touches the floor."""
        read = lambda name: self.data.sensor(name).data[0] > 0.0
        return np.array([any(map(read, group)) for group in self.about.contacts])

    def begin(self, q, qd, command, phase, rate) -> tuple[dict, dict]:
        """Begin an episode; returns the memory of the task and the observation."""
        nu = self.model.nu
        info = {
            **{"rng": jax.random.PRNGKey(0), "step": 0, "command": np.array(command)},
            **{"last_act": np.zeros(nu), "last_last_act": np.zeros(nu)},
            **{"motor_targets": np.zeros(nu), "feet_air_time": np.zeros(2)},
            **{"last_contact": np.zeros(2, bool), "swing_peak": np.zeros(2)},
            **{"phase_dt": np.array([rate]), "phase": np.array(phase)},
            **{"push": np.zeros(2), "push_step": 0, "push_interval_steps": 10_000},
        }
        if (
            "filtered_linvel"
            in playground_file(f"{self.folder}/joystick.py").read_text()
        ):
            info |= {"filtered_linvel": np.zeros(3), "filtered_angvel": np.zeros(3)}
        seen = self.seen(q, qd, q[7:])
        with standard():
            obs = self.task._get_obs(seen, dict(info), self.contact())
        return info, obs

    def step(self, info: dict, action, q, qd) -> tuple[dict, dict, Any, bool, dict]:
        """Judge a step that leads to given coordinates and velocities.

        **Returns:** memory, observation, reward, end, and weighted terms.
        """
        ctrl = self.task._default_pose + action * self.config.action_scale
        with standard():
            return self._step(info, action, vars(self.seen(q, qd, ctrl)))

    def _stepped(self, info, action, seen):
        mjx_env = self.module.mjx_env
        mjx_env.step = lambda model, data, ctrl, count: State(**seen)
        start = State(data=State(**seen), info=dict(info), metrics={})
        new = self.task.step(start, action)
        dt, named = self.config.ctrl_dt, "reward/"
        terms = {
            name.removeprefix(named): dt * x
            for name, x in new.metrics.items()
            if name.startswith(named)
        }
        return new.info, new.obs, new.reward, new.done, terms
