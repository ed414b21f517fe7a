"""The published tasks of legged robots, evaluated on `mjData` of MuJoCo C.

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
from eqsim_playground import LeggedRobot
from eqsim_playground._models import add_force_sensors, document, playground_file


# Weights of terms that count nothing; 1 for others. Accelerations are large.
UNUSED = {"dof_acc": 1e-6}
FIELDS = "qpos", "qvel", "qacc", "ctrl", "sensordata", "actuator_force"
FIELDS += ("xfrc_applied",)


def converge(model: mujoco.MjModel) -> None:
    """Make MuJoCo solve each step as exactly as it can."""
    model.opt.solver = mujoco.mjtSolver.mjSOL_NEWTON
    model.opt.iterations, model.opt.tolerance = 200, 0.0
    model.opt.ls_iterations, model.opt.ls_tolerance = 200, 1e-12


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


class Known(types.SimpleNamespace):
    """Data or state of Playground."""

    def replace(self, **changed: Any) -> "Known":
        return Known(**{**vars(self), **changed})


def standard():
    """The promotion of types and shapes on which Playground relies."""
    stack = contextlib.ExitStack()
    stack.enter_context(jax.numpy_dtype_promotion("standard"))
    stack.enter_context(jax.numpy_rank_promotion("allow"))
    return stack


class Published:
    """A published task without noise and pushes.

    **Arguments:**

    - `file`: path of the file of the task, below `mujoco_playground/_src/locomotion`.
    - `name`: name of the class.
    - `about`: description of the robot, of which the names of scene and contact sensors
        are used.
    """

    def __init__(self, file: str, name: str, about: LeggedRobot):
        self.about, robot = about, file.partition("/")[0]
        consts = _published(f"locomotion/{robot}/{robot}_constants.py")
        base = _published(f"locomotion/{robot}/base.py", consts=consts)
        known = {f"{robot}_base": base, "consts": consts, "gait": _published("gait.py")}
        self.module = _published(f"locomotion/{file}", **known)
        self.config = self.module.default_config()
        self.config["noise_config"]["level"] = 0.0
        if "push_config" in self.config:
            self.config["push_config"]["enable"] = False
        scales = self.config.reward_config.scales
        unused = [term for term, scale in scales.items() if scale == 0.0]
        scales.update({term: UNUSED.get(term, 1.0) for term in unused})
        text = document(about.scene, add_force_sensors)
        self.model = mujoco.MjModel.from_xml_string(text)
        converge(self.model)
        self.data = mujoco.MjData(self.model)
        self.task = object.__new__(vars(self.module)[name])
        given = {
            **{"_config": self.config, "_mj_model": self.model},
            **{"_mjx_model": self.model, "n_substeps": 1, "sim_dt": 0.004},
            "_imu_site_id": self.model.site(about.imu).id,
            "_feet_floor_found_sensor": [
                self.model.sensor(group[0]).id for group in about.contacts
            ],
        }
        vars(self.task).update(given)
        with standard():
            self.task._post_init()
        self._step, self._observe = jax.jit(self._stepped), jax.jit(self._observed)

    def seen(self, q, qd, ctrl) -> dict[str, np.ndarray]:
        """Return what the task reads in a state."""
        data = self.data
        data.qpos[:], data.qvel[:], data.ctrl[:] = q, qd, ctrl
        data.qacc_warmstart[:] = 0.0
        mujoco.mj_forward(self.model, data)
        places = {"site_xpos": data.site_xpos.copy()}
        places["site_xmat"] = data.site_xmat.reshape(-1, 3, 3).copy()
        return {x: getattr(data, x).copy() for x in FIELDS} | places

    def begin(self, q, qd, command, phase) -> dict[str, np.ndarray]:
        """Begin an episode; returns the observation.

        **Arguments:**

        - `phase`: phases of the feet and their rate.
        """
        nu, (angle, rate) = self.model.nu, phase
        zeros = np.zeros(len(self.about.feet))
        self.info = {
            **{"rng": jax.random.PRNGKey(0), "step": 0, "command": np.array(command)},
            **{"last_act": np.zeros(nu), "last_last_act": np.zeros(nu)},
            **{"motor_targets": np.zeros(nu), "feet_air_time": zeros},
            **{"last_contact": zeros > 0.0, "swing_peak": zeros},
            **{"phase_dt": np.array([rate]), "phase": np.array(angle)},
            **{"push": np.zeros(2), "push_step": 0, "push_interval_steps": 10_000},
            **{"steps_since_last_pert": 0, "steps_until_next_pert": 10_000},
            **{"steps_until_next_cmd": 10_000},
            **{"filtered_linvel": np.zeros(3), "filtered_angvel": np.zeros(3)},
        }
        self.before = self.seen(q, qd, q[7:])
        read = lambda name: self.data.sensor(name).data[0] > 0.0
        contact = np.array([any(map(read, group)) for group in self.about.contacts])
        with standard():
            return self._observe(self.before, self.info, contact)

    def _observed(self, before, info, contact):
        given = Known(**before), dict(info), contact
        # A task that does not read contacts does not take them.
        count = self.task._get_obs.__code__.co_argcount - 1
        return self.task._get_obs(*given[:count])

    def step(self, action, q, qd, ctrl) -> Known:
        """Judge a step that leads to given coordinates and velocities, with given targets.

        **Returns:** observation, reward, end, weighted terms, and the published targets.
        """
        after = self.seen(q, qd, ctrl)
        with standard():
            found = self._step(self.info, action, self.before, after)
        self.before, self.info = after, found.pop("info")
        return Known(**found)

    def _stepped(self, info, action, before, after) -> dict[str, Any]:
        targets = []

        def given(model, data, ctrl, count):
            targets.append(ctrl)
            return Known(**after)

        self.module.mjx_env.step = given
        new = self.task.step(
            Known(data=Known(**before), info=dict(info), metrics={}), action
        )
        dt, named = self.config.ctrl_dt, "reward/"
        terms = {
            name.removeprefix(named): dt * x
            for name, x in new.metrics.items()
            if name.startswith(named)
        }
        kept = {name: vars(new)[name] for name in ("info", "obs", "reward", "done")}
        return {**kept, "terms": terms, "ctrl": targets[0]}
