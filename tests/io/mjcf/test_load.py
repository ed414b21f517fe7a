import copy
import threading
import time
import warnings

import assets
import equinox as eqx
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from helpers import tree_allclose
from trajectories import converged, expected, follow

from eqsim import Generalized, Positional, Spring
from eqsim.io import load_mjcf, write_mjcf
from eqsim.io.mjcf import sources
from eqsim.model import Activation, GeomKind, Integrator, JointKind, Transmission


each_file = pytest.mark.parametrize("name", assets.FILES)


def reference(name):
    mujoco.set_mju_user_warning(lambda text: None)
    try:
        return mujoco.MjModel.from_xml_path(str(assets.path(name)))
    finally:
        mujoco.set_mju_user_warning(None)


@each_file
def test_sizes(name):
    sys, m = load_mjcf(assets.path(name)), reference(name)
    sizes = (sys.nq, sys.nv, sys.nu, sys.na, sys.nlink, sys.njoint, sys.ngeom)
    assert sizes == (m.nq, m.nv, m.nu, m.na, m.nbody - 1, m.njnt, m.ngeom)


@each_file
def test_numbers(name):
    sys, m = load_mjcf(assets.path(name)), reference(name)
    links, joints, geoms, actuators = sys.links, sys.joints, sys.geoms, sys.actuators
    for ours, theirs in (
        (links.pos, m.body_pos[1:]),
        (links.quat, m.body_quat[1:]),
        (links.mass, m.body_mass[1:]),
        (links.com, m.body_ipos[1:]),
        (links.inertia, m.body_inertia[1:]),
        (links.inertia_quat, m.body_iquat[1:]),
        (joints.anchor, m.jnt_pos),
        (joints.axis, m.jnt_axis),
        (joints.range, m.jnt_range),
        (joints.stiffness, m.jnt_stiffness),
        (joints.ref, m.qpos0),
        (joints.spring_ref, m.qpos_spring),
        (joints.damping, m.dof_damping),
        (joints.armature, m.dof_armature),
        (joints.limit_solref, m.jnt_solref),
        (joints.limit_solimp, m.jnt_solimp),
        (joints.limit_margin, m.jnt_margin),
        (geoms.pos, m.geom_pos),
        (geoms.quat, m.geom_quat),
        (geoms.size, m.geom_size),
        (geoms.friction, m.geom_friction),
        (geoms.solref, m.geom_solref),
        (geoms.solimp, m.geom_solimp),
        (geoms.margin, m.geom_margin),
        (actuators.gear, m.actuator_gear),
        (actuators.ctrl_range, m.actuator_ctrlrange),
        (sys.gravity, m.opt.gravity),
        (sys.dt, m.opt.timestep),
        (sys.density, m.opt.density),
        (sys.viscosity, m.opt.viscosity),
    ):
        assert np.array_equal(np.asarray(ours), theirs)


@each_file
def test_structure(name):
    sys, m = load_mjcf(assets.path(name)), reference(name)
    assert sys.links.parents == tuple(m.body_parentid[1:] - 1)
    assert sys.joints.links == tuple(m.jnt_bodyid - 1)
    assert sys.geoms.links == tuple(m.geom_bodyid - 1)
    assert tuple(kind.value for kind in sys.geoms.kinds) == tuple(m.geom_type)
    assert sys.joints.limited == tuple(m.jnt_limited.astype(bool))
    assert sys.actuators.joints == tuple(m.actuator_trnid[:, 0])
    assert sys.actuators.ctrl_limited == tuple(m.actuator_ctrllimited.astype(bool))
    assert (sys.integrator is Integrator.RK4) == (m.opt.integrator == 1)
    given = [m.body(body).name for body in range(1, m.nbody)]
    assert all(ours in (name, f"link{i}") for i, (ours, name) in _named(sys, given))


def _named(sys, given):
    return enumerate(zip(sys.links.names, given))


@each_file
def test_loading_twice_gives_one_structure(name):
    first, second = load_mjcf(assets.path(name)), load_mjcf(str(assets.path(name)))
    structures = [jax.tree.structure(sys) for sys in (first, second)]
    assert structures[0] == structures[1]
    assert hash(structures[0]) == hash(structures[1])


def test_loading_twice_does_not_compile_twice():
    @jax.jit
    def weight(sys):
        return jnp.sum(sys.links.mass)

    for _ in range(2):
        weight(load_mjcf(assets.path("hopper")))
    assert weight._cache_size() == 1


def test_notes_of_the_humanoid():
    notes = "\n".join(load_mjcf(assets.path("humanoid")).notes)
    assert "solver" in notes


def test_warnings_of_mujoco_are_notes(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    sys = load_mjcf(assets.path("half_cheetah"))
    assert any(note.startswith("MuJoCo warns: ") for note in sys.notes)
    assert capfd.readouterr() == ("", "") and not list(tmp_path.iterdir())


def test_names_are_made_up():
    sys = load_mjcf(
        """
        <mujoco><worldbody><geom size=".1"/>
          <body name="link1"><joint/><geom name="geom0" size=".1" contype="0"/>
            <body><joint name="joint0" axis="1 0 0"/><geom size=".1"/></body>
          </body></worldbody>
          <actuator><motor joint="joint0"/></actuator></mujoco>
        """
    )
    assert sys.links.names == ("link1", "link1_")
    assert sys.joints.names == ("joint0_", "joint0")
    assert sys.geoms.names == ("geom0_", "geom0", "geom2")
    assert sys.actuators.names == ("actuator0",)


def test_every_joint_kind():
    sys = load_mjcf(
        """
        <mujoco><compiler angle="radian"/><worldbody>
          <body pos="1 2 3"><freejoint/><geom size=".1"/>
            <body><joint type="ball" range="0 1"/><geom size=".1"/></body>
            <body><joint type="slide" ref="0.1" springref="0.2" range="-1 1"/>
              <joint axis="1 0 0" frictionloss="0.5" margin="0.3"/>
              <geom size=".1"/></body>
          </body></worldbody></mujoco>
        """
    )
    kinds = JointKind.FREE, JointKind.SPHERICAL, JointKind.PRISMATIC, JointKind.REVOLUTE
    assert sys.joints.kinds == kinds
    assert sys.joints.limited == (False, True, True, False)
    assert sys.joints.has_friction == (False,) * 10 + (True,)
    assert sys.joints.ref.tolist() == [1, 2, 3, 1, 0, 0, 0, 1, 0, 0, 0, 0.1, 0]
    assert sys.joints.spring_ref[-2] == 0.2 and sys.joints.limit_margin[-1] == 0.3
    assert sys.joints.q_starts == (0, 7, 11, 12)


def test_actuators():
    sys = load_mjcf(
        """
        <mujoco><worldbody><body>
          <joint name="h" axis="1 0 0"/><joint name="b" type="slide"/>
          <geom size=".1"/></body>
          <body><joint name="ball" type="ball"/><geom size=".1"/></body></worldbody>
        <actuator>
          <motor joint="h" gear="3" ctrlrange="-1 1"/>
          <position joint="b" kp="5" kv="2" forcerange="-2 2" timeconst="0.1"/>
          <velocity joint="h" kv="4"/>
          <intvelocity joint="h" kp="2" actrange="-1 1"/>
          <damper joint="h" kv="7" ctrlrange="0 1"/>
          <general jointinparent="ball" gear="1 2 3" dyntype="filter" dynprm="0.3"
            gainprm="2 9 9" biasprm="9 9 9" actearly="true"/>
        </actuator></mujoco>
        """
    ).actuators
    none, integrator = Activation.NONE, Activation.INTEGRATOR
    exact = Activation.FILTER_EXACT
    assert sys.activation == (none, exact, none, integrator, none, Activation.FILTER)
    driven = [k for k, states in enumerate(sys.states) if states]
    assert driven == [1, 3, 5]
    assert sys.gain[:, 0].tolist() == [1, 5, 4, 2, 0, 2]
    assert sys.gain[4].tolist() == [0, 0, -7]
    assert sys.bias[1].tolist() == [0, -5, -2]
    # A fixed gain and no bias do not read the other numbers.
    assert sys.gain[5].tolist() == [2, 0, 0] and sys.bias[5].tolist() == [0, 0, 0]
    assert sys.time_constant[5] == 0.3 and sys.act_early[5]
    assert sys.transmissions[5] is Transmission.JOINT_IN_PARENT
    assert sys.force_limited[1] and sys.act_limited[3]


FLAGGED = """
<mujoco><option density="3" gravity="0 0 -5"><flag {}="disable"/></option>
<worldbody>
  <geom name="g" type="plane" size="1 1 1"/>
  <body gravcomp="1"><joint name="j" range="-1 1" limited="true" stiffness="2"
    damping="3" frictionloss="4"/><geom name="a" size=".1"/></body>
</worldbody>
<contact><pair geom1="g" geom2="a"/></contact>
<actuator><motor joint="j" gear="2" ctrlrange="-1 1" ctrllimited="true"/></actuator>
</mujoco>
"""
EFFECTS = {
    "gravity": lambda s: float(s.gravity[2]) == 0,
    "contact": lambda s: s.geoms.contype == (0, 0) and s.pairs.geoms == (),
    "limit": lambda s: s.joints.limited == (False,),
    "frictionloss": lambda s: s.joints.has_friction == (False,),
    "spring": lambda s: float(s.joints.stiffness[0]) == 0,
    "damper": lambda s: float(s.joints.damping[0]) == 0,
    "clampctrl": lambda s: s.actuators.ctrl_limited == (False,),
    "filterparent": lambda s: not s.filter_parent,
    "actuation": lambda s: not s.actuators.active,
    "refsafe": lambda s: not s.safe_solref,
    "eulerdamp": lambda s: not s.implicit_damping,
}


@pytest.mark.parametrize("flag", EFFECTS)
def test_flags(flag):
    """Each flag changes what it names and nothing else."""
    sys = load_mjcf(FLAGGED.format(flag))
    changed = [name for name, holds in EFFECTS.items() if holds(sys)]
    assert changed == [flag]


def test_flag_constraint():
    sys = load_mjcf(FLAGGED.format("constraint"))
    changed = [name for name, holds in EFFECTS.items() if holds(sys)]
    assert changed == ["contact", "limit", "frictionloss"]


def test_no_passive_forces_at_all():
    text = FLAGGED.replace("{}=", 'damper="disable" {}=').format("spring")
    sys = load_mjcf(text)
    assert not sys.has_fluid and float(sys.density) == 0
    assert sys.links.gravity_compensation.tolist() == [0]
    assert load_mjcf(FLAGGED.format("spring")).has_fluid


OVERRIDDEN = """
<mujoco>
  <option cone="elliptic" o_margin=".004" o_solref=".03 .8" o_solimp=".8 .95 .01 .5 2"
    o_friction="{} .02 .01 .01"><flag override="enable"/></option>
  <default><geom solref="-900 -40" solmix="2" condim="6"/></default>
  <worldbody><geom name="floor" type="plane" size="1 1 1" friction=".1"/>
    <body pos="0 0 .102"><freejoint/><geom name="ball" size=".1" margin=".05"/>
      <body pos="0 0 .2"><joint axis="0 1 0"/><geom size=".05" pos=".05 0 0" contype="0"
        conaffinity="0"/></body></body>
    {}</worldbody>
  <contact><pair geom1="floor" geom2="ball" condim="4" solreffriction=".1 1"/></contact>
</mujoco>"""
BALL = '<body pos=".6 0 .099"><freejoint/><geom size=".1"/></body>'


@pytest.mark.parametrize(("friction", "more"), ((".4 .4", BALL), (".4 .1", "")))
def test_override(friction, more):
    """All contacts have the parameters of the option, as in MuJoCo; no other is changed."""
    text = OVERRIDDEN.format(friction, more)
    sys, model = load_mjcf(text), converged(mujoco.MjModel.from_xml_string(text))
    data = mujoco.MjData(model)
    data.qvel[:2] = 0.5, 0.3
    data.qvel[-6:-3] = 0.6, -0.2, 0.1
    plain = mujoco.MjModel.from_xml_string(text.replace("enable", "disable"))
    found, others = follow(sys, [data], 40), expected(plain, [copy.copy(data)], 40)
    wanted = expected(model, [data], 40)
    np.testing.assert_allclose(found, wanted, rtol=1e-8, atol=1e-8)
    assert np.max(np.abs(others - wanted)) > 1e-3
    again = load_mjcf(write_mjcf(sys))
    assert tree_allclose(sys.without_pattern(), again.without_pattern(), atol=1e-12)
    assert model.geom_margin[1] == 0.05 and not sys.notes


def test_actuator_group_is_switched_off():
    sys = load_mjcf(
        """
        <mujoco><option actuatorgroupdisable="3"/><worldbody><body><joint name="j"/>
        <geom size=".1"/></body></worldbody><actuator>
        <motor joint="j" group="3"/><motor joint="j" group="2"/></actuator></mujoco>
        """
    )
    assert sys.actuators.enabled == (False, True)
    assert any("actuator0" in note for note in sys.notes)


def test_pairs_and_excludes():
    sys = load_mjcf(
        """
        <mujoco><worldbody><geom name="floor" type="plane" size="1 1 1"/>
          <body name="a"><joint/><geom name="ga" size=".1" gap=".2"/></body>
          <body name="b"><joint/><geom name="gb" size=".1"/></body></worldbody>
        <contact>
          <pair geom1="gb" geom2="floor" condim="1" friction=".3 .4" margin=".01"/>
          <exclude body1="b" body2="a"/><exclude body1="world" body2="a"/>
        </contact></mujoco>
        """
    )
    assert sys.pairs.geoms == ((0, 2),) and sys.pairs.condim == (1,)
    assert np.allclose(sys.pairs.friction[0, :2], [0.3, 0.4])
    assert set(map(frozenset, sys.excludes)) == {frozenset({0, 1}), frozenset({-1, 0})}
    # The floor and `a` are excluded, so the gap of `ga` means nothing at all.
    assert sys.notes == ()


def test_translating_links():
    sys = load_mjcf(
        """
        <mujoco><worldbody>
          <body><joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 1 0"/>
            <geom size=".1"/></body>
          <body><joint type="slide" axis="1 1 0"/><geom size=".1"/></body>
          <body><freejoint/><geom size=".1"/></body>
          <body><geom size=".1"/></body>
        </worldbody></mujoco>
        """
    )
    assert sys.links.translating == (True, False, False, False)


DISTANCE_FIELD = """
<mujoco><asset><mesh name="m" vertex="0 0 0 1 0 0 0 1 0 0 0 1"/></asset><worldbody>
  <geom type="sdf" mesh="m" contype="0" conaffinity="0" name="drawn"/>
  <body><joint/><geom name="ball" size=".1"/></body>
  <geom name="floor" type="plane" size="1 1 1"/>
</worldbody><contact><pair geom1="floor" geom2="ball"/></contact></mujoco>
"""


def test_shapes_that_touch_nothing_are_left_out():
    sys = load_mjcf(DISTANCE_FIELD)
    assert sys.geoms.names == ("floor", "ball")
    assert sys.geoms.kinds == (GeomKind.PLANE, GeomKind.SPHERE)
    assert sys.pairs.geoms == ((0, 1),)
    assert any('"drawn"' in note for note in sys.notes)


def test_medium():
    sys = load_mjcf(assets.path("swimmer"))
    assert sys.has_fluid and float(sys.density) == 4000
    assert not load_mjcf(assets.path("ant")).has_fluid


def test_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="nothing.xml.*existing file"):
        load_mjcf(tmp_path / "nothing.xml")
    with pytest.raises(FileNotFoundError, match="There is no MJCF file"):
        load_mjcf(tmp_path)
    with pytest.raises(TypeError):
        load_mjcf(3)


PARTS = """
<mujoco><compiler meshdir="meshes"/><include file="parts.xml"/><asset>
  <mesh name="m" file="shape.obj"/></asset></mujoco>
"""
INCLUDED = """
<mujoco><worldbody><body name="arm"><joint name="elbow"/>
  <geom type="mesh" mesh="m" contype="0" conaffinity="0"/></body></worldbody></mujoco>
"""
SHAPE = "v 0 0 0\nv 1 0 0\nv 0 1 0\nv 0 0 1\nf 1 3 2\nf 1 2 4\nf 1 4 3\nf 2 3 4\n"


def test_every_source_gives_the_same_robot(tmp_path):
    assets = {"parts.xml": INCLUDED, "shape.obj": SHAPE.encode()}
    (tmp_path / "meshes").mkdir()
    (tmp_path / "meshes" / "shape.obj").write_text(SHAPE)
    (tmp_path / "parts.xml").write_text(INCLUDED)
    (tmp_path / "robot.xml").write_text(PARTS)
    (tmp_path / "alone.xml").write_text(PARTS)
    path = tmp_path / "robot.xml"
    spec = mujoco.MjSpec.from_file(str(path))
    model = mujoco.MjModel.from_xml_path(str(path))
    wanted = load_mjcf(path)
    assert wanted.links.names == ("arm",) and float(wanted.links.mass[0]) > 0
    for source, contents in (
        (str(path), None),
        (path, None),
        (PARTS, assets),
        (PARTS, assets | {"unused.txt": "x"}),
        (spec, None),
        (model, None),
    ):
        sys = load_mjcf(source, contents)
        assert tree_allclose(sys, wanted)
        assert jax.tree.structure(sys) == jax.tree.structure(wanted)


def test_a_model_is_copied():
    model = mujoco.MjModel.from_xml_path(str(assets.path("hopper")))
    sys = load_mjcf(model)
    before = jax.tree.map(np.array, sys)
    model.body_mass[:] = 7.0
    model.opt.gravity[:] = 7.0
    model.qpos0[:] = 7.0
    assert tree_allclose(jax.tree.map(np.array, sys), before)


def test_a_spec_that_was_changed():
    spec = mujoco.MjSpec.from_string(FLAGGED.format("contact"))
    spec.option.timestep = 0.125
    assert float(load_mjcf(spec).dt) == 0.125
    spec.worldbody.add_body(name="empty").add_joint()
    with pytest.raises(ValueError, match="^The MjSpec cannot be read by MuJoCo"):
        load_mjcf(spec)


def test_assets_that_are_wrong():
    with pytest.raises(ValueError, match="^The MJCF text .*cannot be read by MuJoCo"):
        load_mjcf(PARTS, {"parts.xml": INCLUDED})
    with pytest.raises(TypeError, match="assets"):
        load_mjcf(PARTS, {"a": 3})  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="assets"):
        load_mjcf(PARTS, ["a"])  # pyright: ignore[reportArgumentType]
    model = mujoco.MjModel.from_xml_string(FLAGGED.format("contact"))
    with pytest.raises(ValueError, match="the source is an MjModel"):
        load_mjcf(model, {"a": b""})


def test_mujoco_stays_silent(tmp_path, monkeypatch, capfd):
    """Neither errors nor warnings of any source reach the terminal or a log file."""
    monkeypatch.chdir(tmp_path)
    spec = mujoco.MjSpec.from_file(str(assets.path("half_cheetah")))
    broken = mujoco.MjSpec.from_string("<mujoco/>")
    broken.worldbody.add_body().add_joint()
    for source in (spec, broken, "<mujoco><foo/></mujoco>", PARTS):
        try:
            load_mjcf(source)
        except ValueError:
            pass
    assert capfd.readouterr() == ("", "") and not list(tmp_path.iterdir())


KEYED = """
<mujoco><worldbody>
  <body name="base" pos="0 0 1"><freejoint name="root"/><geom size=".1"/>
    <body><joint name="knee" ref="0.1"/><geom size=".1" pos=".3 0 0"/></body>
  </body></worldbody>
<actuator><motor joint="knee"/>
  <general name="lag" joint="knee" dyntype="filter" dynprm=".1"/></actuator>
<keyframe><key name="home" time="3" qpos="1 2 3 0 0 0 2 .5" ctrl="4 5" act="6"/>
  <key qvel="1 2 3 4 5 6 7"/></keyframe></mujoco>
"""


def test_threads_leave_the_handlers_of_warnings(monkeypatch):
    """One begins while another one reads, and ends after it."""
    before = mujoco.get_mju_user_warning(), warnings.showwarning
    begun, read = threading.Event(), []

    def build(seconds):
        begun.set()
        time.sleep(seconds)
        read.append(seconds)

    each = {"first": 0.2, "second": 0.4}
    monkeypatch.setattr(
        sources,
        "_reader",
        lambda name, _: (name, "", lambda: build(each[name])),
    )
    threads = [threading.Thread(target=sources.compile_source, args=(x,)) for x in each]
    threads[0].start()
    assert begun.wait(5.0)
    threads[1].start()
    for thread in threads:
        thread.join()
    assert sorted(read) == [0.2, 0.4]
    assert (mujoco.get_mju_user_warning(), warnings.showwarning) == before


def test_keyframes():
    sys = load_mjcf(KEYED)
    assert sys.keyframes.names == ("home", "key1") and sys.nkey == 2
    home, other = sys.keyframe("home"), sys.keyframe("key1")
    assert home.q.tolist() == [1, 2, 3, 0, 0, 0, 1, 0.5]
    assert home.qd.tolist() == [0] * 7 and home.act.tolist() == [6]
    assert home.ctrl.tolist() == [4, 5]
    assert np.array_equal(other.q, sys.joints.ref)
    assert other.qd.tolist() == [1, 2, 3, 4, 5, 6, 7]
    with pytest.raises(
        ValueError, match="no keyframe 'hme'.*Did you mean 'home'.*key1"
    ):
        sys.keyframe("hme")
    again = load_mjcf(write_mjcf(sys))
    assert tree_allclose(again.keyframes, sys.keyframes)
    assert "keyframes\n  home\n  key1" in str(sys)


def test_a_state_at_a_keyframe():
    sys = load_mjcf(KEYED)
    home = sys.keyframe("home")
    for pipeline in (Generalized(), Spring(), Positional()):
        state = eqx.filter_jit(pipeline.init_keyframe)(sys, "home")
        assert np.array_equal(state.q, home.q) and np.array_equal(state.qd, home.qd)
        assert state.act.tolist() == [6]


@pytest.mark.parametrize(
    "text, says",
    [
        ("<mujoco><worldbody><body", "XML parse error"),
        ("<mujoco><foo/></mujoco>", "unrecognized element"),
        ("<mujoco><worldbody><body><joint/></body></worldbody></mujoco>", "mass and"),
        ("<mujoco><worldbody><geom size='0'/></worldbody></mujoco>", "size"),
    ],
)
def test_malformed(text, says, tmp_path):
    cannot = "cannot be read by MuJoCo, which says"
    with pytest.raises(
        ValueError, match=f"^The MJCF text.*{cannot}.*\n.*{says}"
    ) as info:
        load_mjcf(" \n" + text)
    assert len(str(info.value).partition("\n")[0]) < 110
    file = tmp_path / "robot.xml"
    file.write_text(text)
    with pytest.raises(ValueError, match=f"^robot.xml.*{cannot}.*\n.*{says}"):
        load_mjcf(file)


def test_urdf_is_refused(tmp_path):
    """MuJoCo would read it, and leave out its fixed base link."""
    text = """<?xml version="1.0"?> <!-- <mujoco/> --> <!-- -->
    <robot name="arm"><link name="base"/></robot>"""
    file = tmp_path / "arm.urdf"
    file.write_bytes(b"\xef\xbb\xbf" + text.encode())
    for source in (text, file, str(file)):
        with pytest.raises(ValueError, match="is a URDF.*Load it by `load_urdf`"):
            load_mjcf(source)
    with pytest.raises(ValueError, match="cannot be read by MuJoCo"):
        load_mjcf("<!-- --> " * 10_000 + "<robots/>")


def test_nan():
    text = """<mujoco><worldbody><body><joint damping="nan"/><geom size=".1"/></body>
    </worldbody></mujoco>"""
    with pytest.raises(
        ValueError, match=r"System.joints.damping is NaN at index \(0,\)"
    ):
        load_mjcf(text)


def test_leaves_are_arrays_of_the_default_type():
    sys = load_mjcf(assets.path("ant"))
    for leaf in jax.tree.leaves(sys):
        assert eqx.is_array(leaf) and leaf.dtype == jnp.result_type(float)
