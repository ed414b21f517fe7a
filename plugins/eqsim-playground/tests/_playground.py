"""MuJoCo Playground's own tasks on MJX, started in a given state. Meshes, which are
only drawn, are replaced, so that Menagerie is needed only for the Panda."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from eqsim_playground._models import menagerie_file
from mujoco import mjx
from mujoco_playground._src import mjx_env
from mujoco_playground._src.locomotion.go1 import base as go1_base, joystick
from mujoco_playground._src.manipulation.franka_emika_panda import panda, pick


# Corners of a tetrahedron.
MESH = b"v 0 0 0\nv 1 0 0\nv 0 1 0\nv 0 0 1\nf 1 3 2\nf 1 2 4\nf 1 4 3\nf 2 3 4\n"


class Step(NamedTuple):
    """Results of a step of Playground; `terms` are weighted."""

    obs: Any
    reward: Any
    done: Any
    terms: dict[str, Any]


class _Assets(dict):
    """Files by name; missing meshes are tetrahedra."""

    def with_meshes(self, xml: str) -> dict[str, bytes]:
        for word in xml.replace("'", '"').split('"'):
            name = word.rpartition("/")[2]
            if name.endswith((".stl", ".obj")) and name not in self:
                self[name] = MESH
        return dict(self)


def _files(folder: str) -> _Assets:
    found = _Assets()
    path = mjx_env.ROOT_PATH / folder / "xmls"
    mjx_env.update_assets(found, path, "*.xml")
    return found


def _go1_assets() -> dict[str, bytes]:
    found = _files("locomotion/go1")
    texts = [x.decode() for name, x in found.items() if "feetonly" in name]
    meshes = found.with_meshes("".join(texts))
    # MuJoCo selects the reader by the suffix of the name.
    return {k: _stl() if k.endswith(".stl") else x for k, x in meshes.items()}


def _panda_assets() -> dict[str, bytes]:
    found = _files("manipulation/franka_emika_panda")
    arm = menagerie_file("franka_emika_panda/mjx_panda.xml").read_bytes()
    found["mjx_panda.xml"] = arm
    meshes = found.with_meshes(arm.decode())
    return {k: _stl() if k.endswith(".stl") else x for k, x in meshes.items()}


def _stl() -> bytes:
    """Return the same tetrahedron in the other format."""
    corners = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]], "<f4")
    faces = ((0, 2, 1), (0, 1, 3), (0, 3, 2), (1, 2, 3))
    rows = [np.concatenate([np.zeros(3, "<f4"), *corners[list(f)]]) for f in faces]
    body = b"".join(row.astype("<f4").tobytes() + b"\0\0" for row in rows)
    return bytes(80) + np.uint32(len(faces)).tobytes() + body


def _refreshed_step(model, data, action, n_substeps=1):
    """Take a step of Playground, and then compute forces and sensors at the new
    state."""

    def step(data, _):
        return mjx.step(model, data.replace(ctrl=action)), None

    data = jax.lax.scan(step, data, (), n_substeps)[0]
    return mjx.forward(model, data)


class Theirs:
    """A task of Playground with a converged solver, without noise, and with sensors and
    forces evaluated at the state after each step."""

    def __init__(self, name: str):
        go1_base.get_assets, panda.get_assets = _go1_assets, _panda_assets
        quiet = {"impl": "jax"}
        if name == "playground_go1_joystick_flat":
            config = joystick.default_config()
            self.env = joystick.Joystick(
                config=config, config_overrides={**quiet, "noise_config.level": 0.0}
            )
            self.dt, self.named = self.env.dt, "reward/"
        else:
            turned = name.endswith("orientation")
            self.env = pick.PandaPickCube(
                config=pick.default_config(),
                config_overrides=quiet,
                sample_orientation=turned,
            )
            self.dt, self.named = 1.0, ""
        self._converge()
        self.reset, self.step = jax.jit(self._reset), jax.jit(self._step)
        self.judge = jax.jit(self._judge)

    def _converge(self) -> None:
        option = self.env._mj_model.opt
        option.iterations, option.tolerance = 50, 0.0
        option.ls_iterations, option.ls_tolerance = 50, 1e-10
        option.solver = mujoco.mjtSolver.mjSOL_NEWTON
        self.env._mjx_model = mjx.put_model(self.env._mj_model, impl="jax")

    def _reset(self, key):
        state = self.env.reset(key)
        data = mjx.forward(self.env._mjx_model, state.data)
        state = state.replace(data=data)
        if self.named:
            return state, self.env._get_obs(data, dict(state.info))
        return state, self.env._get_obs(data, state.info)

    def _step(self, state, action):
        """Take a step of Playground."""
        return self._by(_refreshed_step, state, action)

    def _judge(self, state, action, q, qd):
        """Return Playground's results of a step that leads to given coordinates and
        velocities."""

        def given(model, data, ctrl, n_substeps=1):
            return mjx.forward(model, data.replace(qpos=q, qvel=qd, ctrl=ctrl))

        return self._by(given, state, action)[1]

    def _by(self, physics, state, action):
        # Read while tracing.
        mjx_env.step = physics
        state = self.env.step(state, action)
        scales = self.env._config.reward_config.scales
        weight = lambda name: self.dt if self.named else scales[name]
        terms = {
            name: state.metrics[self.named + name] * weight(name) for name in scales
        }
        return state, Step(state.obs, state.reward, state.done, terms)


def double(tree: Any) -> Any:
    """Convert all arrays to double precision."""
    return jax.tree.map(lambda x: jnp.asarray(x, float) if _is_float(x) else x, tree)


def _is_float(x: Any) -> bool:
    return hasattr(x, "dtype") and jnp.issubdtype(x.dtype, jnp.floating)
