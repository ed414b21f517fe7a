"""`load_urdf`: what MuJoCo drops or misreads in a URDF, and what a URDF does not have."""

import os
import pathlib
import struct
import sysconfig

import equinox as eqx
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

import eqsim
from eqsim.io import load_urdf, Motors, Servos
from eqsim.io.urdf._description import _is_physical, _nearest_inertia
from eqsim.io.urdf._mesh_files import readable
from eqsim.model import candidate_pairs, Integrator, JointKind


INERTIAL = """<inertial><origin xyz=".1 0 .05"/><mass value="1.5"/>
  <inertia ixx=".02" ixy=".001" ixz="0" iyy=".03" iyz="0" izz=".025"/></inertial>"""
BALL = '<collision><geometry><sphere radius=".1"/></geometry></collision>'


def link(name, content=INERTIAL):
    return f'<link name="{name}">{content}</link>'


def joint(name, parent, child, content="", kind="revolute", xyz="0 0 .4"):
    return (
        f'<joint name="{name}" type="{kind}"><parent link="{parent}"/>'
        f'<child link="{child}"/><origin xyz="{xyz}" rpy=".1 0 .2"/>{content}</joint>'
    )


def limit(lower=-1, upper=1, effort=5):
    return f'<limit lower="{lower}" upper="{upper}" effort="{effort}" velocity="2"/>'


def robot(*parts):
    return f'<robot name="r">{"".join(parts)}</robot>'


def mesh(name, tag="collision", **attributes):
    extra = " ".join(f'{k}="{v}"' for k, v in attributes.items())
    return f'<{tag}><geometry><mesh filename="{name}" {extra}/></geometry></{tag}>'


def stl(size=1.0):
    """A tetrahedron as a binary STL file."""
    points = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]], "<f4") * size
    faces = np.array([[0, 2, 1], [0, 1, 3], [0, 3, 2], [1, 2, 3]])
    rows = [bytes(12) + points[face].tobytes() + bytes(2) for face in faces]
    return bytes(80) + struct.pack("<I", 4) + b"".join(rows)


# An arm with a mimic joint, damping, friction, a link without shape, and a fixed tool.
ARM = robot(
    link("base", INERTIAL + BALL),
    link("upper", INERTIAL + BALL),
    link("lower"),
    link("finger"),
    link("tool", ""),
    joint("shoulder", "base", "upper", f'<axis xyz="0 2 0"/>{limit()}'),
    joint(
        "elbow",
        "upper",
        "lower",
        f'<axis xyz="0 1 1"/>{limit()}<dynamics damping=".3" friction=".1"/>',
    ),
    joint(
        "slide",
        "lower",
        "finger",
        f'<axis xyz="1 0 0"/>{limit()}<mimic joint="elbow" multiplier=".5" offset=".1"/>',
        "prismatic",
    ),
    joint("mount", "lower", "tool", kind="fixed"),
)


@pytest.fixture(scope="module")
def arm():
    return load_urdf(ARM)


@pytest.fixture(scope="module")
def step():
    return eqx.filter_jit(eqsim.Generalized().step)


def test_step_equals_mujoco(arm, step):
    """MuJoCo reads the same text, and merges fixed links."""
    model = mujoco.MjModel.from_xml_string(ARM)
    model.opt.tolerance, model.opt.iterations = 0.0, 200
    data = mujoco.MjData(model)
    data.qpos[:], data.qvel[:] = [0.3, -0.4, 0.2], [1.0, -2.0, 0.5]
    state = eqsim.Generalized().init(arm, jnp.array(data.qpos), jnp.array(data.qvel))
    for _ in range(5):
        mujoco.mj_step(model, data)
        state = step(arm, state, jnp.zeros(0))
    np.testing.assert_allclose(state.q, data.qpos, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(state.qd, data.qvel, rtol=1e-9, atol=1e-9)


def test_mimic_joint_follows(arm, step):
    start = jnp.array([0.3, -0.4, -0.1]), jnp.array([0.0, 3.0, 1.5])
    state = eqsim.Generalized().init(arm, *start)
    for _ in range(100):
        state = step(arm, state, jnp.zeros(0))
    assert abs(state.q[1] + 0.4) > 0.05
    np.testing.assert_allclose(state.q[2], 0.1 + 0.5 * state.q[1], atol=5e-3)


def test_names_stay(arm):
    assert arm.links.names == ("base", "upper", "lower", "finger", "tool")
    assert arm.joints.names == ("shoulder", "elbow", "slide")
    assert arm.geoms.names == ("base", "upper")
    merged = load_urdf(ARM, fuse_links=True)
    assert merged.links.names == ("upper", "lower", "finger")
    mass = lambda sys: sys.links.mass[jnp.array([sys.link("lower").index])]
    np.testing.assert_allclose(mass(merged), mass(arm))


def test_notes_name_what_is_not_simulated():
    text = ARM.replace("</robot>", '<transmission name="t"/></robot>')
    notes = "\n".join(load_urdf(text).notes)
    assert "velocity limit of joint shoulder, elbow, slide" in notes
    assert "transmission t" in notes and "`actuators`" in notes


def test_kinds_of_joints():
    names = ("wheel", "endless", "planar", "ball", "free")
    kinds = ("continuous", "revolute", "planar", "spherical", "floating")
    limits = ("", limit("-inf", "inf", "inf"), "", "", "")
    joints = [
        joint(name, "base", f"{name}_link", f'<axis xyz="0 0 1"/>{x}', kind)
        for name, kind, x in zip(names, kinds, limits, strict=True)
    ]
    sys = load_urdf(robot(link("base"), *(link(f"{x}_link") for x in names), *joints))
    assert sys.nq == 1 + 1 + 3 + 4 + 7
    assert not any(sys.joints.limited)
    assert JointKind.SPHERICAL in sys.joints.kinds


def test_xml_that_mujoco_reads():
    """Comments with two hyphens, undeclared prefixes, and zeros at the end."""
    text = ARM.replace("</robot>", "<!-- a -- b --><x:y z:w='1'/></robot>\0\n")
    assert load_urdf("\ufeff\n" + text).nlink == 5


# Mesh files.


def meshed(*names, content=""):
    shapes = "".join(mesh(name) for name in names)
    return robot(link("base"), link("a", INERTIAL + shapes + content), AXLE)


AXLE = joint("j", "base", "a", limit())


def extents(sys):
    """Sizes of the bounding boxes of all meshes, in the axes of the files."""
    found = []
    for geom, index in enumerate(sys.geoms.data):
        mine = sys.meshes.vertices[sys.mesh(sys.meshes.names[index]).vertices]
        turn = Rotation.from_quat(np.array(sys.geoms.quat[geom]), scalar_first=True)
        found.append(np.ptp(turn.apply(np.array(mine)), axis=0))
    return np.array(found)


@pytest.mark.parametrize(
    "name, file, options",
    [
        ("package://bot/meshes/a.stl", "elsewhere/meshes/a.stl", "packages"),
        ("package://bot/meshes/a.stl", "bot/meshes/a.stl", ""),
        ("package://bot/meshes/a.stl", "ws/meshes/a.stl", "package.xml"),
        ("package://bot/meshes/a.stl", "ros/bot/meshes/a.stl", "ROS_PACKAGE_PATH"),
        ("package://bot/meshes/a.stl", "ros/share/bot/meshes/a.stl", "AMENT"),
        ("model://bot/meshes/a.stl", "ws/bot/meshes/a.stl", ""),
        ("../meshes/a.stl", "ws/meshes/a.stl", ""),
        ("meshes/a.stl", "ws/meshes/a.stl", ""),
        ("file://ROOT/x/a.STL", "x/a.STL", ""),
        ("package://unknown/any/a.stl", "ws/urdf/a.stl", ""),
    ],
    ids=str,
)
def test_packages(tmp_path, monkeypatch, name, file, options):
    (tmp_path / "ws" / "urdf").mkdir(parents=True)
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_bytes(stl(2.0))
    packages = {"bot": tmp_path / "elsewhere"} if options == "packages" else None
    if options == "package.xml":
        (tmp_path / "ws" / options).write_text("<package><name>bot</name></package>")
    monkeypatch.setenv("ROS_PACKAGE_PATH", f":{tmp_path / 'ros'}")
    monkeypatch.setenv("AMENT_PREFIX_PATH", str(tmp_path / "ros"))
    path = tmp_path / "ws" / "urdf" / "bot.urdf"
    path.write_text(meshed(name.replace("ROOT", str(tmp_path))))
    sys = load_urdf(path, packages=packages)
    np.testing.assert_allclose(extents(sys), [[2.0, 2.0, 2.0]], rtol=1e-5)


def test_files_of_one_name():
    """Meshes in different folders stay apart, and equal files are read once."""
    assets = {"l/a.stl": stl(1.0), "r/a.stl": stl(2.0)}
    scaled = mesh("l/a.stl", scale="1 -3 1")
    text = meshed("l/a.stl", "r/a.stl", "l/a.stl", content=scaled)
    sys = load_urdf(text, assets)
    sizes = [[1, 1, 1], [2, 2, 2], [1, 1, 1], [1, 3, 1]]
    np.testing.assert_allclose(extents(sys), sizes, rtol=1e-5)
    assert len(sys.meshes.names) == 3 and sys.geoms.names[:2] == ("a", "a_1")


COLLADA = """<?xml version="1.0"?>
<COLLADA xmlns="http://www.collada.org/2005/11/COLLADASchema" version="1.4.1">
<asset><unit meter="0.01"/><up_axis>Y_UP</up_axis></asset>
<library_geometries><geometry id="g"><mesh>
  <source id="s"><float_array count="12">0 0 0 1 0 0 0 1 0 0 0 1</float_array></source>
  <vertices id="v"><input semantic="POSITION" source="#s"/></vertices>
  {faces}
</mesh></geometry></library_geometries>
<library_visual_scenes><visual_scene><node><scale>100 100 100</scale>
  <node>{pose}<instance_geometry url="#g"/></node></node></visual_scene>
</library_visual_scenes></COLLADA>"""
TRIANGLES = """<triangles count="4"><input semantic="VERTEX" source="#v" offset="0"/>
  <input semantic="NORMAL" source="#n" offset="1"/>
  <p>0 0 2 0 1 0 0 1 1 1 3 1 0 2 3 2 2 2 1 3 2 3 3 3</p></triangles>"""
POLYGONS = """<polylist count="2"><input semantic="VERTEX" source="#v" offset="0"/>
  <vcount>4 3</vcount><p>0 2 1 3 1 2 3</p></polylist>"""


def points_of(data):
    count = struct.unpack_from("<I", data, 80)[0]
    return np.frombuffer(data[84:], "<12f4, <u2", count)["f0"][:, 3:].reshape(-1, 3)


@pytest.mark.parametrize(
    "faces, pose, shift",
    [
        (TRIANGLES, "", [0, 0, 0]),
        (POLYGONS, "<translate>1 2 3</translate>", [1, 2, 3]),
        (TRIANGLES, "<matrix>1 0 0 1 0 1 0 2 0 0 1 3 0 0 0 1</matrix>", [1, 2, 3]),
        (TRIANGLES, "<rotate>1 1 1 120</rotate>", [0, 0, 0]),
    ],
    ids=("triangles", "polygons", "matrix", "rotate"),
)
def test_collada(faces, pose, shift):
    suffix, data = readable("a.DAE", COLLADA.format(faces=faces, pose=pose).encode())
    expected = points_of(stl()) + np.array(shift)
    unique = lambda points: np.unique(np.round(points, 5) + 0.0, axis=0)
    assert suffix == ".stl"
    np.testing.assert_array_equal(unique(points_of(data)), unique(expected))


def test_text_stl():
    corners = points_of(stl()).reshape(-1, 3, 3)
    facets = [
        "outer loop\n" + "".join(f"vertex {x} {y} {z}\n" for x, y, z in face)
        for face in corners
    ]
    text = "solid a\n" + "endloop\n".join(facets) + "endsolid a\n"
    found = points_of(readable("a.stl", text.encode())[1])
    np.testing.assert_array_equal(found, corners.reshape(-1, 3))
    # A binary file whose header begins like a text.
    binary = b"solid" + stl()[5:]
    assert readable("a.stl", binary) == (".stl", binary)


def test_visual_shapes_never_fail():
    ball = BALL.replace("collision", "visual")
    bad = "".join(mesh(x, "visual") for x in ("package://no/c.stl", "a.glb", "b.dae"))
    text = meshed("a.stl", content=ball + bad)
    assets = {"a.stl": stl(), "a.glb": b"", "b.dae": "no XML"}
    assert load_urdf(text, assets).geoms.names == ("a",)
    sys = load_urdf(text, assets, visuals=True)
    assert set(sys.geoms.names) == {"a", "a_visual"}
    assert any("visual mesh package://no/c.stl, a.glb, b.dae" in x for x in sys.notes)


def test_skipped_meshes():
    sys = load_urdf(meshed("a.stl", "q/b.dae"), {"a.stl": stl()}, skip_meshes="*.dae")
    assert sys.ngeom == 1 and any("q/b.dae: left out" in x for x in sys.notes)


# Inertias.


def test_links_without_inertia():
    text = robot(
        link("base"),
        link("a", BALL),
        link("b"),
        link("c", BALL),
        joint("j", "base", "a", limit()),
        joint("k", "a", "b", limit()),
        joint("f", "b", "c", kind="fixed"),
    )
    sys, ball = load_urdf(text), 4 / 3 * np.pi * 0.1**3
    np.testing.assert_allclose(sys.links.mass, [1.5, 1000 * ball, 1.5, 1000 * ball])
    assert any("link a, c: without <inertial>" in note for note in sys.notes)
    # Visual shapes weigh nothing.
    seen = load_urdf(
        text.replace(BALL, BALL + BALL.replace("collision", "visual")), visuals=True
    )
    np.testing.assert_allclose(seen.links.mass, sys.links.mass)
    light = load_urdf(text, density=10.0)
    np.testing.assert_allclose(light.links.mass, [1.5, 10 * ball, 1.5, 10 * ball])
    with pytest.raises(ValueError, match=r"moving links without mass: a\. Add"):
        load_urdf(text, density=0.0)
    repaired = load_urdf(text, density=0.0, repair_inertia=True, min_mass=0.2)
    np.testing.assert_allclose(repaired.links.mass, [1.5, 0.2, 1.5, 0.0])


WRONG = INERTIAL.replace('iyy=".03"', 'iyy=".3"')


def test_impossible_inertia():
    text = robot(link("base"), link("a", WRONG), link("b"), AXLE, joint("k", "a", "b"))
    with pytest.raises(ValueError, match=r"inertias: a\. .*`repair_inertia=True`"):
        load_urdf(text)
    sys = load_urdf(text, repair_inertia=True)
    assert "inertia of link a: repaired." in sys.notes
    eqsim.model.validate(sys)


@pytest.mark.parametrize("scale", (0.0, 1e-8, 1.0))
def test_nearest_inertia(scale):
    rng = np.random.default_rng(0)
    for _ in range(20):
        matrix = rng.normal(size=(3, 3))
        matrix = scale * (matrix + matrix.T)
        near = _nearest_inertia(matrix, 1e-9)
        assert _is_physical(near)
        again = _nearest_inertia(near, 1e-9)
        np.testing.assert_allclose(again, near, rtol=1e-4, atol=1e-5 * scale + 1e-12)


# What a URDF does not have.


def test_floating_base_stands_on_the_ground(arm):
    sys = load_urdf(ARM, floating=True, ground=True)
    assert sys.joints.names[0] == "floating_base" and sys.nq == 10
    np.testing.assert_allclose(sys.joints.ref[:7], [0, 0, 0.1, 1, 0, 0, 0])
    assert sys.geoms.names[0] == "ground"
    placed = load_urdf(ARM, floating=True, ground=True, pos=(1.0, 2.0, 3.0))
    np.testing.assert_allclose(placed.joints.ref[:3], [1, 2, 3])
    fixed = load_urdf(ARM, pos=(0.0, 0.0, 0.5))
    np.testing.assert_allclose(fixed.links.pos[0], [0, 0, 0.5])
    below = '<link name="world"/>' + joint(
        "w", "world", "base", kind="fixed", xyz="0 0 2"
    )
    world = load_urdf(ARM.replace("</robot>", below + "</robot>"), floating=True)
    assert world.nv == 9 and world.links.names == arm.links.names
    np.testing.assert_allclose(world.joints.ref[2], 2.0)


def test_self_collisions():
    text = robot(link("base", INERTIAL + BALL), link("a"), link("b", INERTIAL + BALL))
    text = text.replace("</robot>", AXLE + joint("k", "a", "b") + "</robot>")
    options = {"floating": True, "ground": True}

    def pairs(sys):
        return {
            frozenset((sys.geoms.names[one], sys.geoms.names[two]))
            for one, two, _ in candidate_pairs(sys)
        }

    ground = {frozenset(("ground", "base")), frozenset(("ground", "b"))}
    assert pairs(load_urdf(text, **options)) == ground | {frozenset(("base", "b"))}
    assert pairs(load_urdf(text, self_collisions=False, **options)) == ground
    # Parents that are fixed to the world are part of it.
    fixed = robot(link("base", INERTIAL + BALL), link("arm", INERTIAL + BALL)).replace(
        "</robot>", joint("j", "base", "arm", limit()) + "</robot>"
    )
    assert pairs(load_urdf(fixed)) == {frozenset(("base", "arm"))}
    assert not pairs(load_urdf(fixed, self_collisions=False))


def test_motors():
    sys = load_urdf(ARM, actuators=Motors())
    assert sys.actuators.names == ("shoulder", "elbow")
    np.testing.assert_array_equal(sys.actuators.ctrl_range, [[-5, 5], [-5, 5]])
    np.testing.assert_array_equal(sys.actuators.gain[:, 0], [1, 1])
    one = load_urdf(ARM.replace('effort="5"', 'effort="0"'), actuators=Motors(("el*",)))
    assert one.actuators.names == ("elbow",) and not any(one.actuators.ctrl_limited)


def test_servos():
    sys = load_urdf(ARM, actuators=Servos({"el*": 20.0, "*": 10.0}, {"shoulder": 2.0}))
    np.testing.assert_array_equal(sys.actuators.gain[:, 0], [10, 20])
    np.testing.assert_array_equal(sys.actuators.bias, [[0, -10, -2], [0, -20, 0]])
    np.testing.assert_array_equal(sys.actuators.ctrl_range, [[-1, 1], [-1, 1]])
    np.testing.assert_array_equal(sys.actuators.force_range, [[-5, 5], [-5, 5]])
    assert sys.integrator is Integrator.IMPLICIT_FAST
    own = "<mujoco><option integrator='Euler' timestep='.01'/></mujoco></robot>"
    kept = load_urdf(ARM.replace("</robot>", own), actuators=Servos({"elbow": 1.0}))
    assert kept.integrator is Integrator.EULER and kept.actuators.names == ("elbow",)
    np.testing.assert_allclose(kept.dt, 0.01)


@pytest.mark.parametrize(
    "source, options, error, match",
    [
        ("missing.urdf", {}, FileNotFoundError, r"no URDF file 'missing.urdf'"),
        ("<mujoco/>", {}, ValueError, r"got <mujoco>\. Read MJCF by `load_mjcf`"),
        ("<robot><a></robot>", {}, ValueError, r"not well-formed XML: mismatched tag"),
        ('<!DOCTYPE r [<!ENTITY e "x">]><robot/>', {}, ValueError, r"XML entities"),
        (
            meshed("package://bot/a.stl", "b.obj"),
            {},
            FileNotFoundError,
            r"2 mesh files(.|\n)*package://bot/a\.stl(.|\n)*packages={\"bot\": \"FOLDER\"}",
        ),
        (
            meshed("a.glb"),
            {"assets": {"a.glb": b""}},
            ValueError,
            r"a\.glb: the format",
        ),
        (ARM, {"packages": {"x": "nowhere"}}, FileNotFoundError, r"`packages\['x'\]`"),
        (ARM, {"skip_meshes": ("*.stl",)}, ValueError, r"matches no collision mesh"),
        (
            ARM,
            {"actuators": Motors(("knee",))},
            ValueError,
            r"Names: shoulder, elbow\.",
        ),
        (ARM, {"actuators": Servos(-1.0)}, ValueError, r"`stiffness` must be zero or"),
        (ARM, {"actuators": "motor"}, TypeError, r"actuators"),
        (ARM, {"density": -1.0}, ValueError, r"`density` must be zero or positive"),
        (ARM, {"min_mass": 0.0}, ValueError, r"`min_mass` must be positive"),
        (ARM, {"pos": (0.0, 1.0)}, ValueError, r"`pos` must be three numbers"),
        (
            robot(
                link("base"),
                link("a"),
                joint("j", "base", "a", kind="floating"),
                link("c"),
            ),
            {"floating": True},
            ValueError,
            r"`floating` needs one root link",
        ),
        (
            robot(
                link("base"), "\n\n", link("a"), joint("j", "base", "a", kind="ball")
            ),
            {},
            ValueError,
            r"invalid joint type(.|\n)*line 5",
        ),
        (
            robot(link("base"), link("a"), joint("j", "base", "a", limit("${x}"))),
            {},
            ValueError,
            r"Expand macros of xacro",
        ),
    ],
)
def test_errors(source, options, error, match):
    with pytest.raises(error, match=match):
        load_urdf(source, **options)


def test_xacro_files(tmp_path):
    (tmp_path / "bot.urdf.xacro").write_text("<robot/>")
    with pytest.raises(ValueError, match=r"`xacro bot.urdf.xacro > bot.urdf`"):
        load_urdf(tmp_path / "bot.urdf.xacro")


# Public files.


def public_files():
    """URDF files of installed packages, and below the folder `EQSIM_URDFS`."""
    folders = [sysconfig.get_path("purelib"), os.environ.get("EQSIM_URDFS", "")]
    return [
        path for x in folders if x for path in sorted(pathlib.Path(x).rglob("*.urdf"))
    ]


@pytest.mark.slow
def test_what_mujoco_loads_is_loaded():
    loaded, failed = 0, []
    for path in public_files():
        try:
            mujoco.MjModel.from_xml_path(str(path))
        except ValueError:
            continue
        try:
            eqsim.load_urdf(path)
            loaded += 1
        except Exception as error:
            failed.append(f"{path}: {error}")
    if not loaded and not failed:
        pytest.skip("No installed package has URDF files that MuJoCo loads.")
    assert not failed, "\n".join(failed)
