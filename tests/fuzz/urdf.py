"""URDF: elements, attributes and mesh files of a small robot changed at random."""

import copy
import xml.etree.ElementTree as ET
from random import Random

import eqsim
from eqsim.io import load_urdf, Motors, Servos

from .mutations import damaged, foreign, number, word


_LINK = """<link name="{}"><inertial><origin xyz="0 0 .1"/><mass value="1"/>
<inertia ixx=".1" iyy=".1" izz=".1" ixy="0" ixz="0" iyz="0"/></inertial>
<collision name="{}"><origin xyz="0 0 0" rpy="0 0 0"/><geometry>{}</geometry></collision>
<visual><geometry><mesh filename="package://a/b.dae"/></geometry></visual></link>"""
_SHAPES = {
    "base": '<box size="1 1 1"/>',
    "a": '<mesh filename="package://p/m.stl" scale="1 1 1"/>',
    "b": '<mesh filename="x/m.dae"/>',
    "c": '<cylinder radius=".1" length="1"/>',
}
_JOINT = """<joint name="{}" type="{}"><parent link="{}"/><child link="{}"/><axis xyz="0 1 0"/>
<origin xyz="0 0 .3" rpy="0 0 1"/><limit lower="-1" upper="1" effort="3" velocity="2"/>
<dynamics damping="1" friction=".1"/>{}</joint>"""
_ROBOT = "".join(
    [
        '<robot name="r"><mujoco><compiler meshdir="m"/><option timestep=".01"/></mujoco>',
        *(_LINK.format(name, name, shape) for name, shape in _SHAPES.items()),
        _JOINT.format("j", "revolute", "base", "a", ""),
        _JOINT.format("k", "prismatic", "a", "b", '<mimic joint="j" multiplier="2"/>'),
        _JOINT.format("f", "fixed", "b", "c", ""),
        "</robot>",
    ]
)
_COLLADA = """<COLLADA xmlns="c"><asset><unit meter="1"/></asset><library_geometries>
<geometry id="g"><mesh><source id="s"><float_array>0 0 0 1 0 0 0 1 0 0 0 1</float_array>
</source><vertices id="v"><input semantic="POSITION" source="#s"/></vertices>
<polylist count="2"><input semantic="VERTEX" source="#v" offset="0"/><vcount>4 3</vcount>
<p>0 2 1 3 1 2 3</p></polylist></mesh></geometry></library_geometries>
<library_visual_scenes><visual_scene><node><rotate>0 0 1 90</rotate><scale>1 1 1</scale>
<instance_geometry url="#g"/></node></visual_scene></library_visual_scenes></COLLADA>"""
_CORNERS = "000 010 100", "000 100 001", "000 001 010", "100 010 001"
_VERTICES = "".join(
    f"vertex {' '.join(corner)}\n" for face in _CORNERS for corner in face.split()
)
_STL = f"solid a\n{_VERTICES}endsolid a\n".encode()
_TREE, _MESH = ET.fromstring(_ROBOT), ET.fromstring(_COLLADA)
_TYPES = (
    "revolute continuous prismatic fixed floating planar spherical world base".split()
)


class Kind:
    """Law: `load_urdf` returns a robot, or raises `ValueError` or `FileNotFoundError`."""

    REFUSALS = (ValueError, FileNotFoundError)
    WRITES = ()

    def __init__(self, folder):
        self.folder = folder
        load_urdf(_ROBOT, {"m.stl": _STL, "m.dae": _COLLADA})

    def attempt(self, rng: Random):
        assets = {"m.stl": _STL, "m.dae": _COLLADA.encode()}
        text = _ROBOT
        if rng.random() < 0.7:
            text = _changed(rng, _TREE)
        if rng.random() < 0.4:
            assets["m.dae"] = _changed(rng, _MESH).encode(errors="replace")
        if rng.random() < 0.2:
            name = rng.choice(sorted(assets))
            whole = rng.random() < 0.2
            canary = self.folder / "canary"
            assets[name] = foreign(rng, canary) if whole else damaged(rng, assets[name])
        flags = "floating ground repair_inertia fuse_links visuals".split()
        sys = load_urdf(
            text,
            assets,
            **{name: rng.random() < 0.4 for name in flags},
            self_collisions=rng.random() < 0.8,
            actuators=rng.choice((None, Motors(), Servos(10.0, {"*": 1.0}))),
        )
        assert isinstance(sys, eqsim.System)


def _changed(rng: Random, tree: ET.Element) -> str:
    tree = copy.deepcopy(tree)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        elements = list(tree.iter())
        parents = {child: parent for parent in elements for child in parent}
        one, action = rng.choice(elements), rng.random()
        if action < 0.5 and one.attrib:
            name = rng.choice(sorted(one.attrib))
            one.set(name, _value(rng, one.attrib[name]))
        elif action < 0.6 and one.attrib:
            del one.attrib[rng.choice(sorted(one.attrib))]
        elif action < 0.7 and one in parents:
            parents[one].remove(one)
        elif action < 0.8 and one in parents:
            parents[one].append(copy.deepcopy(one))
        elif action < 0.9:
            one.append(copy.deepcopy(rng.choice(elements)))
        elif action < 0.93:
            inner = one
            for _ in range(rng.choice((5, 50, 150))):
                inner = ET.SubElement(inner, one.tag)
        else:
            one.text = "".join(c for c in word(rng)[:50] if c.isprintable())
    return ET.tostring(tree, "unicode")


def _value(rng: Random, value: str) -> str:
    action = rng.random()
    if action < 0.3:
        return str(number(rng))
    if action < 0.5:
        return "".join(c for c in word(rng)[:50] if c.isprintable())
    if action < 0.75:
        return rng.choice(_TYPES)
    words = value.split() or ["0"]
    words[rng.randrange(len(words))] = str(number(rng))
    return " ".join(words)
