"""Names, files, and what is said where something is missing."""

import ast
import importlib.metadata
import importlib.util
import types
import xml.etree.ElementTree as ET

import eqsim_playground
import equinox as eqx
import jax.random as jr
import mujoco
import numpy as np
import pytest
from _checks import needs_menagerie, needs_models
from eqsim_playground import Commands, JoystickNoise, JoystickWeights, Pushes
from eqsim_playground._humanoids import G1, T1
from eqsim_playground._models import (
    document,
    menagerie_file,
    playground_file,
    playground_folder,
)

import eqsim


# Corners of a tetrahedron, in the place of each mesh.
MESH = "v 0 0 0\nv 1 0 0\nv 0 1 0\nv 0 0 1\nf 1 3 2\nf 1 2 4\nf 1 4 3\nf 2 3 4\n"
GO1 = "locomotion/go1/xmls/scene_mjx_feetonly_flat_terrain.xml"
LEAP = "manipulation/leap_hand/xmls/scene_mjx_cube.xml"
PANDA = "manipulation/franka_emika_panda/xmls/mjx_single_cube.xml"


def test_names():
    points = importlib.metadata.distribution("eqsim-playground").entry_points
    names = {point.name for point in points if point.group == "eqsim.envs"}
    assert names and names <= set(eqsim.ENVS.names())
    for name in names:
        short = name.removeprefix("playground_")
        assert eqsim.ENVS.get(name) is vars(eqsim_playground)[short]


def test_without_playground(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r'pip install "eqsim-playground\[models\]"'):
        playground_folder()


@needs_models
def test_without_menagerie(monkeypatch, tmp_path):
    monkeypatch.setenv("EQSIM_MENAGERIE", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="git clone .*`EQSIM_MENAGERIE`"):
        menagerie_file("franka_emika_panda/mjx_panda.xml")
    monkeypatch.delenv("EQSIM_MENAGERIE")
    with pytest.raises(FileNotFoundError, match="external_deps/mujoco_menagerie/x.xml"):
        menagerie_file("x.xml")
    with pytest.raises(FileNotFoundError, match="too old or too new"):
        playground_file("x.xml")


def _whole(name: str, find) -> mujoco.MjModel:
    """The scene as it is, with a tetrahedron for each mesh and no textures of files."""
    file = playground_file(name)
    roots, assets = [ET.parse(file).getroot()], {}
    for root in roots:
        for part in root.findall("include"):
            inner = file.parent / part.get("file", "")
            inner = inner if inner.is_file() else find(inner.name)
            roots.append(ET.parse(inner).getroot())
            root.remove(part)
        for mesh in root.iter("mesh"):
            if mesh.get("file"):
                stem = mesh.get("file", "").rpartition("/")[2].rpartition(".")[0]
                mesh.set("name", mesh.get("name", stem))
                mesh.set("file", "mesh.obj")
    whole = ET.Element("mujoco")
    for root in (*roots[1:], roots[0]):
        whole.extend(list(root))
    for compiler in whole.findall("compiler"):
        compiler.attrib.pop("meshdir", None)
    for assets_of in whole.findall("asset"):
        for element in list(assets_of):
            if element.tag in ("texture", "material"):
                assets_of.remove(element)
    for element in whole.iter():
        element.attrib.pop("material", None)
    assets = {"mesh.obj": MESH.encode()}
    return mujoco.MjModel.from_xml_string(
        ET.tostring(whole, encoding="unicode"), assets
    )


def _panda(name: str):
    return menagerie_file(f"franka_emika_panda/{name}")


@needs_models
@pytest.mark.parametrize(
    ("name", "find"),
    [
        (GO1, menagerie_file),
        (G1.scene, menagerie_file),
        (T1.scene, menagerie_file),
        (LEAP, menagerie_file),
        pytest.param(PANDA, _panda, marks=needs_menagerie),
    ],
)
def test_meshes_are_only_drawn(name, find):
    """Without them, masses, inertias and shapes that touch are the same."""
    whole = _whole(name, find)
    bare = mujoco.MjModel.from_xml_string(document(name, find=find))
    for field in ("body_mass", "body_inertia", "body_ipos", "jnt_range", "qpos0"):
        np.testing.assert_array_equal(
            vars(type(whole))[field].__get__(whole),
            vars(type(bare))[field].__get__(bare),
        )
    is_mesh = whole.geom_type == mujoco.mjtGeom.mjGEOM_MESH
    assert np.any(is_mesh) and not bare.nmesh
    assert not np.any(whole.geom_contype[is_mesh] | whole.geom_conaffinity[is_mesh])
    for field in ("geom_size", "geom_friction", "geom_contype", "geom_solimp"):
        np.testing.assert_array_equal(
            vars(type(whole))[field].__get__(whole)[~is_mesh],
            vars(type(bare))[field].__get__(bare),
        )


def _config(name: str) -> dict:
    """The configuration of a file of Playground, of which only that function is executed."""
    tree = ast.parse(playground_file(name).read_text())
    tree.body = [x for x in tree.body if isinstance(x, ast.FunctionDef)]
    tree.body = [x for x in tree.body if x.name == "default_config"]
    made = types.SimpleNamespace(ConfigDict=dict, create=dict)
    scope = {"config_dict": made, "jp": np, "np": np}
    exec(compile(tree, name, "exec"), scope)
    return scope["default_config"]()


def same_numbers(fields: eqx.Module, config: dict) -> None:
    """The fields of a module are those of a configuration."""
    assert set(vars(fields)) == set(config)
    for name, value in config.items():
        np.testing.assert_allclose(vars(fields)[name], value, 1e-12)


@needs_models
def test_numbers_of_the_joystick():
    """All numbers are those of Playground's file."""
    config = _config("locomotion/go1/joystick.py")
    env = eqsim_playground.go1_joystick_flat()
    reward, noise = config["reward_config"], config["noise_config"]
    same_numbers(JoystickWeights(), reward["scales"])
    same_numbers(JoystickNoise(), noise["scales"])
    assert noise["level"] == 1.0 and not config["pert_config"]["enable"]
    pushes, commands = Pushes(), Commands()
    drawn = {"speed": "velocity_kick", "duration": "kick_durations"}
    for ours, theirs in (drawn | {"wait": "kick_wait_times"}).items():
        np.testing.assert_allclose(vars(pushes)[ours], config["pert_config"][theirs])
    np.testing.assert_allclose(commands.amplitude, config["command_config"]["a"])
    np.testing.assert_allclose(commands.keep, config["command_config"]["b"])
    single = {
        "ctrl_dt": env.dt,
        "sim_dt": env.sys.dt,
        "action_scale": env.action_scale,
        "soft_joint_pos_limit_factor": env.soft_limit,
        "Kp": env.sys.actuators.gain[0, 0],
        "Kd": env.sys.joints.damping[-1],
    }
    for name, value in single.items():
        np.testing.assert_allclose(value, config[name], 1e-12)
    assert env.tracking_sigma == reward["tracking_sigma"]
    assert env.foot_height == reward["max_foot_height"]


@needs_models
@pytest.mark.parametrize("robot", ["g1", "t1", "berkeley_humanoid"])
def test_numbers_of_humanoids(robot):
    """All numbers are those of Playground's files."""
    config = _config(f"locomotion/{robot}/joystick.py")
    env = vars(eqsim_playground)[f"{robot}_joystick_flat"]()
    reward, noise = config["reward_config"], config["noise_config"]["scales"]
    # Playground's weight is zero.
    scales = {**reward["scales"], "dof_acc": 0.0}
    kept = {name: x for name, x in vars(env.weights).items() if x is not None}
    assert {**kept, "dof_acc": 0.0} == pytest.approx(scales)
    parts = ("hip_pos",) * 3 + ("kfe_pos", "ffe_pos", "faa_pos")
    if "hip_pos" in noise:
        noise["joint_pos"] = [noise.pop(part) for part in parts[2:]]
        noise["joint_pos"] = [noise["joint_pos"][0]] * 2 + noise["joint_pos"]
        noise["joint_pos"] *= 2
    same_numbers(env.noise, noise)
    ranges = [config[name] for name in ("lin_vel_x", "lin_vel_y", "ang_vel_yaw")]
    np.testing.assert_allclose(
        [env.commands.low, env.commands.high], np.array(ranges).T
    )
    pushes, names = env.pushes, ("interval_range", "magnitude_range")
    kicks = [config["push_config"][name] for name in names]
    assert config["push_config"]["enable"]
    np.testing.assert_allclose([pushes.wait, pushes.speed], kicks)
    single = {
        "ctrl_dt": env.dt,
        "sim_dt": env.sys.dt,
        "action_scale": env.action_scale,
        "soft_joint_pos_limit_factor": env.targets.soft_limit,
    }
    of_reward = {
        "tracking_sigma": env.targets.tracking_sigma,
        "max_foot_height": env.targets.foot_height,
        "base_height_target": env.targets.base_height,
    }
    for values, numbers in ((single, config), (of_reward, reward)):
        for name, value in values.items():
            np.testing.assert_allclose(value, numbers[name], 1e-12)
    if robot == "g1":
        assert env.max_contact_force == reward["max_contact_force"]


@needs_models
@pytest.mark.parametrize(
    ("name", "file"), [("go1_getup", "getup"), ("go1_handstand", "handstand")]
)
def test_numbers_of_poses(name, file):
    """All numbers are those of Playground's files."""
    config = _config(f"locomotion/go1/{file}.py")
    env = vars(eqsim_playground)[name]()
    scales = config["reward_config"]["scales"]
    kept = {term: x for term, x in vars(env.weights).items() if x is not None}
    assert {"dof_acc": 0.0} | kept == pytest.approx(scales)
    for part, scale in config["noise_config"]["scales"].items():
        np.testing.assert_allclose(vars(env.noise)[part], scale, 1e-12)
    single = {
        "ctrl_dt": env.dt,
        "sim_dt": env.sys.dt,
        "action_scale": env.action_scale,
        "soft_joint_pos_limit_factor": env.soft_limit,
        "Kp": env.sys.actuators.gain[0, 0],
        "Kd": env.sys.joints.damping[-1],
    }
    if name == "go1_getup":
        single["drop_from_height_prob"] = env.drop
        single["settle_time"] = env.settle_steps * env.sys.dt
    else:
        single["init_from_crouch"] = env.crouch
    for part, value in single.items():
        np.testing.assert_allclose(value, config[part], 1e-12)


PPO_NAMES = {
    "num_envs": "num_envs",
    "unroll_length": "unroll_length",
    "num_minibatches": "num_minibatches",
    "num_updates_per_batch": "num_epochs",
    "learning_rate": "learning_rate",
    "discounting": "discount",
    "entropy_cost": "entropy_cost",
    "clipping_epsilon": "clip",
}


def _published(file: str, task: str) -> dict:
    """Settings of PPO out of the source text: those of all tasks, and of one."""
    path = playground_folder() / "config" / file
    functions = [
        x for x in ast.parse(path.read_text()).body if isinstance(x, ast.FunctionDef)
    ]
    (made,) = [x for x in functions if x.name == "brax_ppo_config"]
    found = {}
    for call in (x for x in ast.walk(made) if isinstance(x, ast.Call)):
        for word in call.keywords:
            if isinstance(word.value, ast.Constant):
                found.setdefault(word.arg, word.value.value)
    for branch in (x for x in ast.walk(made) if isinstance(x, ast.If)):
        if task in ast.unparse(branch.test).split("'"):
            lines = [x for x in branch.body if isinstance(x, ast.Assign)]
            for line in (x for x in lines if isinstance(x.value, ast.Constant)):
                found[ast.unparse(line.targets[0]).rpartition(".")[2]] = (
                    line.value.value
                )
            break
    return found


@needs_models
@pytest.mark.parametrize(
    ("name", "file", "task"),
    [
        ("go1_joystick_flat", "locomotion_params.py", "Go1JoystickFlatTerrain"),
        ("go1_getup", "locomotion_params.py", "Go1Getup"),
        ("go1_handstand", "locomotion_params.py", "Go1Handstand"),
        ("g1_joystick_flat", "locomotion_params.py", "G1JoystickFlatTerrain"),
        ("t1_joystick_flat", "locomotion_params.py", "T1JoystickFlatTerrain"),
        (
            "berkeley_humanoid_joystick_flat",
            "locomotion_params.py",
            "BerkeleyHumanoidJoystickFlatTerrain",
        ),
        ("panda_pick_cube", "manipulation_params.py", "PandaPickCube"),
    ],
)
def test_settings_of_ppo(name, file, task):
    settings = eqsim_playground.ppo_settings(f"playground_{name}")
    published = _published(file, task)
    # Brax's default of the clipping.
    published.setdefault("clipping_epsilon", 0.3)
    for theirs, ours in PPO_NAMES.items():
        assert settings[ours] == published[theirs], ours
    with pytest.raises(ValueError, match="`env` must be one of playground_.*got 'ant'"):
        eqsim_playground.ppo_settings("ant")


@needs_models
def test_numbers_of_the_hand():
    """All numbers are those of Playground's files."""
    folder = "manipulation/leap_hand"
    turned, moved = _config(f"{folder}/rotate_z.py"), _config(f"{folder}/reorient.py")
    rotate = eqsim_playground.leap_cube_rotate_z()
    reorient = eqsim_playground.leap_cube_reorient()
    same_numbers(rotate.weights, turned["reward_config"]["scales"])
    same_numbers(reorient.weights, moved["reward_config"]["scales"])
    same_numbers(reorient.noise, moved["obs_noise"]["scales"])
    scales = turned["noise_config"]["scales"]
    np.testing.assert_allclose(rotate.joint_noise, scales["joint_pos"], 1e-12)
    for env, config in ((rotate, turned), (reorient, moved)):
        for name, value in {"ctrl_dt": env.dt, "sim_dt": env.sys.dt}.items():
            np.testing.assert_allclose(value, config[name], 1e-12)
        np.testing.assert_allclose(env.action_scale, config["action_scale"], 1e-12)
    assert reorient.success_angle == moved["success_threshold"]
    assert reorient.success_reward == moved["reward_config"]["success_reward"]
    assert rotate.history == turned["history_len"] == moved["history_len"] == 1
    assert moved["obs_noise"]["random_ori_injection_prob"] == 0.0
    assert moved["ema_alpha"] == 1.0 and not moved["pert_config"]["enable"]


@needs_menagerie
def test_numbers_of_the_panda():
    """All numbers are those of Playground's file."""
    env = eqsim_playground.panda_pick_cube()
    config = _config("manipulation/franka_emika_panda/pick.py")
    same_numbers(env.weights, config["reward_config"]["scales"])
    for name, value in {"ctrl_dt": env.dt, "sim_dt": env.sys.dt}.items():
        np.testing.assert_allclose(value, config[name], 1e-12)
    assert env.action_scale == config["action_scale"]


@needs_models
def test_same_structure_each_time():
    """Made twice, a task needs no second compilation."""
    fn = eqx.filter_jit(lambda env, key: env.initial(key))
    fn(eqsim.make("playground_go1_joystick_flat"), jr.key(0))
    fn(eqsim.make("playground_go1_joystick_flat"), jr.key(1))
    assert fn._cached._cache_size() == 1


@needs_models
def test_examples(readme):
    """What the README shows runs as it stands."""
    for block in readme:
        exec(block, {})
