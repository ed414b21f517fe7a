import pickle

import mujoco
import pytest
from helpers import tree_allclose

from eqsim.io import load_mjcf, UnsupportedMJCF
from eqsim.io.mjcf._support import FEATURES, Status
from eqsim.model import GeomKind
from eqsim.model.pairs import _REGISTRY


TEMPLATE = """
<mujoco>
  <compiler angle="radian"/>
  <option {option}>{flag}</option>
  {extension}
  <asset><mesh name="m" vertex="0 0 0 1 0 0 0 1 0 0 0 1"/></asset>
  <worldbody>
    <geom name="floor" type="plane" size="1 1 1"/>
    <body name="one" pos="0 0 1">
      <joint name="hinge" axis="1 0 0" {joint}/>
      <geom name="ball" size=".1" {geom}/>
      <site name="site"/>
    </body>
    <body name="two" pos="0 2 1">
      <joint name="spherical" type="ball"/>
      <geom name="rod" type="capsule" size=".1 .2"/>
      <site name="other_site"/>
    </body>
    {world}
  </worldbody>
  {more}
</mujoco>
"""


def text(**parts):
    names = ("option", "flag", "extension", "joint", "geom", "world", "more")
    return TEMPLATE.format(**{name: parts.get(name, "") for name in names})


def actuator(rest):
    return f"<actuator>{rest}</actuator>"


MOVING = '<body name="three"><joint/><geom name="shape" size=".1 .1 .1" {}/></body>'
MOCAP = '<body mocap="true" pos="0 0 1"/><body mocap="true" pos="2 0 1" euler="9 0 0"/>'
TENDON = (
    """<tendon><fixed name="t" {}><joint joint="hinge" coef="1"/></fixed></tendon>"""
)
# Feature, what uses it, and a word that the error must say.
REFUSED = {
    "flex equality": (
        {
            "world": '<flexcomp name="rope" type="grid" count="3 1 1" '
            'spacing=".1 .1 .1" dim="1" mass="1"><edge equality="true"/></flexcomp>'
        },
        "equality constraint of flexes ",
    ),
    "tendon springyield": (
        {"more": TENDON.format('stiffness="3" springyield=".1"')},
        'springyield of tendon "t"',
    ),
    "user dynamics": (
        {"more": actuator('<general name="u" joint="hinge" dyntype="user"/>')},
        'user-defined activation in actuator "u"',
    ),
    "user gain": (
        {"more": actuator('<general name="u" joint="hinge" gaintype="user"/>')},
        'user-defined law in actuator "u"',
    ),
    "part of a motor": (
        {
            "more": actuator(
                '<general name="pm" joint="hinge" biastype="dcmotor" gainprm="1"/>'
            )
        },
        'part of a DC motor in actuator "pm"',
    ),
    "delay": (
        {
            "more": actuator(
                '<pid name="d" joint="hinge" kp="3" input="vel ff" delay=".1" nsample="9"/>'
            ),
        },
        'several controls "d"',
    ),
    "springyield": ({"joint": 'stiffness="1" springyield=".1"'}, 'joint "hinge"'),
    "adhesion without passive forces": (
        {"geom": 'adhesion="1"', "flag": '<flag spring="disable" damper="disable"/>'},
        'spring="disable", damper="disable"',
    ),
    "mixed solref": ({"geom": 'solref="0.02 -1"'}, 'element "ball"'),
    "flex": (
        {
            "world": '<flexcomp name="rope" type="grid" count="3 1 1" '
            'spacing=".1 .1 .1" dim="1" mass="1"/>'
        },
        'flex "rope"',
    ),
    "discrete": ({"option": 'integrator="discrete"'}, 'integrator "discrete"'),
    "override": (
        {"flag": '<flag override="enable"/>', "option": 'o_friction="1 .5 .1 .1 .1"'},
        'override="enable" with unequal numbers',
    ),
    "diagexact": ({"flag": '<flag diagexact="enable"/>'}, 'flag diagexact="enable"'),
    "speculative": (
        {"flag": '<flag speculative="enable"/>'},
        'flag speculative="enable"',
    ),
    "nativeccd": (
        {
            "flag": '<flag nativeccd="disable"/>',
            "world": '<geom name="can" type="cylinder" size=".1 .1" contype="2"/>'
            '<body><joint/><geom type="capsule" size=".1 .1" conaffinity="2" '
            'contype="0"/></body>',
            "geom": 'contype="0" conaffinity="0"',
        },
        'convex shapes nativeccd="disable"',
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case):
    parts, says = REFUSED[case]
    with pytest.raises(UnsupportedMJCF) as error:
        load_mjcf(text(**parts))
    message = str(error.value)
    assert message.startswith("The MJCF text uses ") and "does not simulate:" in message
    assert says in message


def test_the_template_itself_is_accepted():
    assert load_mjcf(text()).nlink == 2


def test_everything_at_once_is_listed_once(tmp_path):
    cases = [
        "tendon springyield",
        "springyield",
        "discrete",
        "override",
    ]
    parts: dict[str, str] = {}
    for case in cases:
        for name, part in REFUSED[case][0].items():
            parts[name] = f"{parts.get(name, '')} {part}"
    file = tmp_path / "robot.xml"
    file.write_text(text(**parts))
    with pytest.raises(UnsupportedMJCF) as error:
        load_mjcf(file)
    message = str(error.value)
    assert message.startswith(f"robot.xml uses {len(cases)} features that eqsim")
    assert len(message.splitlines()) == 1 + len(cases) == 1 + len(error.value.problems)
    for case in cases:
        assert REFUSED[case][1] in message
    assert str(pickle.loads(pickle.dumps(error.value))) == message


def test_every_refused_feature_has_a_test():
    """Every row of the table that refuses something is provoked above."""
    provoked = set()
    for parts, _ in REFUSED.values():
        with pytest.raises(UnsupportedMJCF) as error:
            load_mjcf(text(**parts))
        provoked |= {feature.name for feature, _ in error.value.problems}
    refused = {row.name for row in FEATURES if row.status is Status.REFUSED}
    # MuJoCo's wheel has no such plugins.
    assert refused - provoked == {"plugin of body", "plugin of actuator"}


ACCEPTED = {
    "disabled equality": (
        {
            "flag": '<flag equality="disable"/>',
            "more": '<equality><joint name="e" joint1="hinge"/></equality>',
        },
        'equality constraint that is disabled by a flag "e"',
    ),
    "coupled branches": (
        {
            "world": '<body><joint name="other"/><geom size=".1" contype="0" '
            'conaffinity="0"/></body>',
            "more": '<tendon><fixed name="t" armature="1"><joint joint="hinge" coef="1"/>'
            '<joint joint="other" coef="1"/></fixed></tendon>',
        },
        'inertia that couples branches, armature of tendon "t"',
    ),
    "gap": ({"geom": 'gap="1"'}, 'contact gap of geom "ball"'),
    "mocap pose of a keyframe": (
        {
            "world": MOCAP,
            "more": '<keyframe><key name="k"/>'
            '<key name="l" mpos="0 0 1 1 1 1"/></keyframe>',
        },
        'pose of mocap bodies in key "l": it is an input: pass it to `set_mocap`',
    ),
    "sleep": (
        {"flag": '<flag sleep="enable"/>'},
        'flag for sleeping bodies sleep="enable"',
    ),
    "solver": ({"option": 'solver="CG" iterations="3"'}, "solver, iterations"),
}


@pytest.mark.parametrize("case", ACCEPTED)
def test_accepted_with_a_note(case):
    parts, note = ACCEPTED[case]
    (found,) = load_mjcf(text(**parts)).notes
    assert found.startswith((note, f"solver setting {note}"))


SILENT = {
    "mocap pose of a body in a keyframe": {
        "world": MOCAP,
        "more": '<keyframe><key/><key mpos="0 0 1 2 0 1"/></keyframe>',
    },
    "flags": {
        "flag": '<flag warmstart="disable" energy="enable" fwdinv="enable" '
        'invdiscrete="enable" sensor="disable" island="disable" midphase="disable" '
        'autoreset="disable" nativeccd="disable" multiccd="disable"/>'
    },
    "frictionless elliptic": {
        "option": 'cone="elliptic"',
        "flag": '<flag contact="disable"/>',
    },
    "condim of a shape that touches nothing": {
        "geom": 'condim="6" contype="0" conaffinity="0" adhesion="1"'
    },
    "nativeccd of planes": {
        "flag": '<flag nativeccd="disable" multiccd="disable"/>',
        "world": '<geom type="plane" size="1 1 1" contype="2" conaffinity="2"/><body><joint/>'
        '<geom type="ellipsoid" size=".1 .2 .1" contype="2" conaffinity="0"/></body>',
    },
    "boxes apart": {
        "world": MOVING.format('type="box" contype="0" conaffinity="2"'),
    },
    "actuators": {
        "more": actuator(
            '<muscle joint="hinge" lengthrange="0 1"/><pid joint="hinge" kp="1"/>'
            '<dcmotor joint="hinge" motorconst="1" resistance="1"/>'
            '<orientation joint="spherical" kp="1"/><motor site="site"/>'
            '<position joint="spherical" kp="1" damping="1 2 3" armature="1"/>'
            '<adhesion body="one" ctrlrange="0 1"/>'
            '<motor cranksite="site" slidersite="other_site" cranklength="3"/>'
        )
    },
    "actuatorfrcrange": {"joint": 'actuatorfrcrange="-1 1" actuatorgravcomp="true"'},
    "polynomials": {"joint": 'stiffness="1 2 3" damping="1 2 3"'},
    "dead polynomials": {
        "joint": 'stiffness="1 2" damping="1 2"',
        "flag": '<flag spring="disable" damper="disable"/>',
    },
    "ball motor": {"more": actuator('<motor joint="spherical" gear="1 2 3"/>')},
    "sensor": {"more": '<sensor><jointpos name="s" joint="hinge"/></sensor>'},
}


@pytest.mark.parametrize("case", SILENT)
def test_accepted_silently(case):
    assert load_mjcf(text(**SILENT[case])).notes == ()


def test_long_lists_are_shortened(monkeypatch):
    monkeypatch.delitem(_REGISTRY, (GeomKind.CYLINDER, GeomKind.CYLINDER))
    bodies = "".join(
        f'<body><joint/><geom name="can{i}" type="cylinder" size=".1 .1"/></body>'
        for i in range(9)
    )
    with pytest.raises(UnsupportedMJCF) as error:
        load_mjcf(f"<mujoco><worldbody>{bodies}</worldbody></mujoco>")
    text = 'cylinder with cylinder (36 pairs, for instance "can0" with "can1")'
    assert error.value.problems[0][1] == [text]


def test_many_elements_are_counted():
    bodies = '<body><joint springyield=".1" stiffness="1"/><geom size=".1"/></body>'
    with pytest.raises(UnsupportedMJCF, match="and 20 more: remove it") as error:
        load_mjcf(f"<mujoco><worldbody>{30 * bodies}</worldbody></mujoco>")
    assert len(error.value.problems[0][1]) == 30 and len(str(error.value)) < 700


def test_elements_without_names_are_named_by_their_bodies(monkeypatch):
    monkeypatch.delitem(_REGISTRY, (GeomKind.CYLINDER, GeomKind.CYLINDER))
    shape = '<joint/><geom type="cylinder" size=".1 .1"/></body>'
    body, other = f'<body name="hand">{shape}', f"<body>{shape}"
    floor = '<geom type="plane" size="1 1 1"/>'
    with pytest.raises(UnsupportedMJCF) as error:
        load_mjcf(f"<mujoco><worldbody>{floor}{body}{other}</worldbody></mujoco>")
    text = 'cylinder with cylinder (1 pair, for instance "geom1" of body "hand" with "geom2" of '
    assert text + 'body "body2")' in str(error.value)


PLUGINS = {
    "geom": (
        {
            "more": '<asset><mesh name="solid" vertex="0 0 0 1 0 0 0 1 0 0 0 1"/></asset>',
            "world": '<body pos="0 9 1"><joint/><geom name="ring" type="sdf" mesh="solid"/>'
            "</body>",
        },
        'distance field of geom "ring": use one of MuJoCo\'s plugins',
    ),
}
TOUCH_GRID = {
    "extension": '<extension><plugin plugin="mujoco.sensor.touch_grid"/></extension>',
    "more": '<sensor><plugin name="skin" plugin="mujoco.sensor.touch_grid" '
    'objtype="site" objname="site"><config key="size" value="2 2"/>'
    '<config key="fov" value="10 10"/><config key="gamma" value="0"/>'
    '<config key="nchannel" value="1"/></plugin></sensor>',
}
RING = {
    "extension": '<extension><plugin plugin="mujoco.sdf.torus">'
    '<instance name="i"/></plugin></extension>',
    "more": '<asset><mesh name="torus"><plugin instance="i"/></mesh>'
    '<mesh name="solid" vertex="0 0 0 1 0 0 0 1 0 0 0 1"/></asset>',
}
RING_GEOM = '<geom name="ring" type="sdf" mesh="torus" {}><plugin instance="i"/></geom>'
REFUSED |= {
    "mesh and distance field": (
        RING
        | {
            "world": f'<body pos="0 9 1"><joint/>{RING_GEOM.format("")}</body>'
            '<geom name="solid" type="mesh" mesh="solid"/>'
        },
        "contact between shapes mesh with sdf",
    ),
    "fluid": (
        RING
        | {
            "option": 'density="1"',
            "world": '<body pos="0 9 1"><joint/>'
            + RING_GEOM.format('fluidshape="ellipsoid"')
            + "</body>",
        },
        'fluid forces on distance field "ring":',
    ),
}
REFUSED |= {f"{kind} plugin": case for kind, case in PLUGINS.items()}


@pytest.mark.parametrize("kind", PLUGINS)
def test_plugins_are_refused_by_name(kind):
    parts, says = PLUGINS[kind]
    with pytest.raises(UnsupportedMJCF) as error:
        load_mjcf(text(**parts))
    assert says in str(error.value)


def test_plugins_of_sensors_are_left_out():
    """They measure, and do not change the motion."""
    sys = load_mjcf(text(**TOUCH_GRID))
    assert any('"skin"' in note for note in sys.notes)
    assert len(sys.sensors.names) == len(load_mjcf(text()).sensors.names)


def pid(name="pid", joint="hinge", words="", **settings):
    """An actuator with the plugin `mujoco.pid`."""
    config = "".join(
        f'<config key="{key}" value="{x}"/>' for key, x in settings.items()
    )
    plugin = f'<plugin name="{name}" plugin="mujoco.pid" joint="{joint}" {words}>'
    return f"{plugin}{config}</plugin>"


EXTENSION = '<extension><plugin plugin="mujoco.pid"/></extension>'
AFFINE = '<default class="affine"><general biastype="affine"/></default>'
WRONG_PIDS = {
    "text": (pid(kp="strong"), 'kp="strong", which is not a finite number'),
    "infinite": (pid(kp=1, imax="inf"), 'imax="inf", which is not a finite number'),
    "nan": (pid(kd="nan"), 'kd="nan", which is not a finite number'),
    "law of a class": (
        pid(kp=1, words='class="affine"'),
        'gaintype="fixed" and biastype="affine" of its default class',
    ),
    "after two controls": (
        '<pid joint="hinge" kp="3" input="vel ff"/>' + pid(kp=1),
        "listed after actuators with several controls",
    ),
    "after three forces": (
        '<orientation joint="spherical" kp="1" input="expmap"/>' + pid(kp=1),
        "listed after actuators with several controls or forces",
    ),
    "disabled": (pid(kp=1, words='group="3"'), "in a disabled group"),
    "muscle": (pid(kp=1, words='dyntype="muscle" actdim="0"'), 'dyntype="muscle"'),
}


def wrong_pid(case):
    actuators, _ = WRONG_PIDS[case]
    return {
        "extension": f"{EXTENSION}<default>{AFFINE}</default>",
        "option": 'actuatorgroupdisable="3"',
        "more": actuator(actuators),
    }


REFUSED["setting of a plugin"] = wrong_pid("text"), "setting of `mujoco.pid`"


@pytest.mark.parametrize("case", WRONG_PIDS)
def test_settings_of_pid_plugins_are_refused_by_name(case):
    says = f'setting of `mujoco.pid` in actuator "pid" ({WRONG_PIDS[case][1]}'
    with pytest.raises(UnsupportedMJCF) as error:
        load_mjcf(text(**wrong_pid(case)))
    assert says in str(error.value) and len(error.value.problems) == 1


def test_other_plugins_of_actuators_are_refused_by_name():
    """MuJoCo's wheel has no other one, so the compiled model is changed."""
    parts = {"extension": EXTENSION, "more": actuator(pid(kp=1))}
    model = mujoco.MjModel.from_xml_string(text(**parts))
    assert len(load_mjcf(model).actuators.names) == 1
    model.plugin[0] += 1
    with pytest.raises(
        UnsupportedMJCF, match='plugin of actuator "pid": of all plugins'
    ):
        load_mjcf(model)


def test_body_plugins_are_refused_by_name():
    """MuJoCo's wheel has no plugin for bodies, so the compiled model is changed."""
    model = mujoco.MjModel.from_xml_string(text())
    model.body_plugin[1] = 0
    with pytest.raises(UnsupportedMJCF, match='plugin of body "one":'):
        load_mjcf(model)


IGNORED = {
    "delay": "delay",
    "user gain": "user",
    "springyield": "springyield",
    "tendon springyield": "springyield",
    "nativeccd": "nativeccd",
}


@pytest.mark.parametrize("case", IGNORED)
def test_ignored_by_name(case):
    key = IGNORED[case]
    source = text(**REFUSED[case][0])
    with pytest.raises(UnsupportedMJCF, match=rf'ignore=\("{key}",\)'):
        load_mjcf(source)
    says = f'ignore=("{key}",)'
    assert any(says in note for note in load_mjcf(source, ignore=(key,)).notes)
    # Without the feature, the file gives the same robot.
    assert load_mjcf(source, ignore=key).nlink == load_mjcf(source, ignore=(key,)).nlink


def test_every_key_has_a_test():
    assert {row.key for row in FEATURES} - {None} == set(IGNORED.values())


def test_ignoring_springyield_leaves_it_out():
    parts = REFUSED["springyield"][0]
    plain = text(joint='stiffness="1"')
    first, second = load_mjcf(plain), load_mjcf(text(**parts), ignore=("springyield",))
    assert tree_allclose(without_notes(first), without_notes(second))


def without_notes(sys):
    return type(sys)(**{**vars(sys), "notes": ()})


def test_only_what_is_named_is_ignored():
    parts = {**REFUSED["delay"][0], **REFUSED["springyield"][0]}
    with pytest.raises(UnsupportedMJCF) as error:
        load_mjcf(text(**parts), ignore=("delay",))
    assert [feature.key for feature, _ in error.value.problems] == ["springyield"]


def test_unknown_names_cannot_be_ignored():
    with pytest.raises(ValueError, match="'dely'.*Did you mean 'delay'.*delay, "):
        load_mjcf(text(), ignore=("dely",))
    with pytest.raises(ValueError, match="'plugin', which cannot be ignored"):
        load_mjcf(text(), ignore=("plugin",))
