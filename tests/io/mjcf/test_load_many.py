"""Loading of large robots: results, and work that grows with the size of the robot."""

import dataclasses
import sys as python

import assets
import equinox as eqx
import jax
import mujoco
import numpy as np
import pytest

from eqsim.io import load_mjcf
from eqsim.model import candidate_pairs


FIXED = (
    '<geom name="floor" type="plane" size="1 1 1"/><site name="origin"/>'
    '<body name="fixed" pos="0 0 1"><geom size=".1"/></body>'
)
CUBE = "-1 -1 -1  1 -1 -1  -1 1 -1  1 1 -1  -1 -1 1  1 -1 1  -1 1 1  1 1 1"
BALL = '<body name="b{k}" pos="{k} 0 0"><freejoint/>{inside}</body>'
SPHERE = '<geom name="g{k}" size=".1"/>'


def scene(count, body=BALL, inside=SPHERE, asset="", **sections):
    """Return MJCF text in which every part is repeated with the numbers from 0."""
    repeat = lambda text: "".join(
        text.format(k=k, inside=inside.format(k=k)) for k in range(count)
    )
    rest = "".join(f"<{x}>{repeat(text)}</{x}>" for x, text in sections.items())
    assets = f"<asset>{repeat(asset)}</asset>"
    return (
        f"<mujoco>{assets}<worldbody>{FIXED}{repeat(body)}</worldbody>{rest}</mujoco>"
    )


SITE = SPHERE + '<site name="s{k}"/>'
SLIDES = (
    '<body name="b{k}"><joint name="j{k}" type="slide" axis="1 0 0"/>'
    '<joint type="slide" axis="0 1 0"/>{inside}</body>'
)
PARTS = {
    "free bodies": {},
    "slides": {"body": SLIDES},
    "boxes, colors": {
        "inside": '<geom type="box" size=".1 .1 .1" material="m{k}"/>',
        "asset": '<texture name="t{k}" type="2d" builtin="flat" width="2" height="2"/>'
        '<material name="m{k}" texture="t{k}"/>',
    },
    "meshes": {
        "asset": f'<mesh name="m{{k}}" vertex="{CUBE}"/>',
        "inside": '<geom name="g{k}" type="mesh" mesh="m{k}"/>',
    },
    "sensors": {
        "inside": SITE,
        "sensor": '<touch site="s{k}"/><framepos objtype="geom" objname="g{k}"/>'
        '<rangefinder site="s{k}"/><contact geom1="g{k}"/>'
        '<distance geom1="g{k}" geom2="floor"/>',
    },
    "actuators, tendons": {
        "body": SLIDES,
        "inside": SITE,
        "tendon": '<spatial name="t{k}"><site site="s{k}"/><site site="origin"/>'
        "</spatial>",
        "actuator": '<motor joint="j{k}"/><position tendon="t{k}"/>',
    },
    "pairs, excludes, welds": {
        "contact": '<pair geom1="g{k}" geom2="floor"/>'
        '<exclude body1="b{k}" body2="fixed"/>',
        "equality": '<weld body1="b{k}" body2="fixed"/>',
    },
}


@pytest.mark.slow  # `test_work_is_linear` counts the work.
def test_one_hundred_humanoids():
    """Copies have the numbers of the original, and touch each other. The compiled model
    gives the same robot."""
    one, count = load_mjcf(assets.path("humanoid")), 100
    text = f"""<mujoco><asset><model name="m" file="{assets.path("humanoid")}"/></asset>
      <worldbody><replicate count="{count}" offset="3 0 0"><frame>
      <attach model="m" body="torso" prefix="_"/></frame></replicate></worldbody></mujoco>"""
    many = load_mjcf(text)
    assert many.nv == count * one.nv and many.nactuator == count * one.nactuator
    for each, alone in (
        (many.links.mass, one.links.mass),
        (many.links.inertia, one.links.inertia),
        (many.joints.armature, one.joints.armature),
    ):
        assert np.array_equal(each, np.tile(alone, (count,) + (1,) * (alone.ndim - 1)))
    # The floor of the file is not attached.
    floor = one.geoms.links.index(-1)
    inside = [pair for pair in candidate_pairs(one) if floor not in pair[:2]]
    solid = sum(map(bool, one.geoms.contype)) - 1
    between = solid**2 * count * (count - 1) // 2
    assert len(candidate_pairs(many)) == count * len(inside) + between
    compiled = load_mjcf(mujoco.MjModel.from_xml_string(text))
    # Warnings of the compiler are notes.
    assert eqx.tree_equal(dataclasses.replace(compiled, notes=many.notes), many)


def instructions(function):
    """Return how many instructions of Python a call executes."""
    count = 0

    def trace(frame, event, _):
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    before = python.gettrace()
    python.settrace(trace)
    try:
        function()
    finally:
        python.settrace(before)
    return count


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.quick_cases("slides", "meshes")
def test_work_is_linear(part):
    """Twice as many elements take twice as many instructions."""
    models = [
        mujoco.MjModel.from_xml_string(scene(count, **PARTS[part]))
        for count in (40, 80, 160)
    ]
    load_mjcf(models[0])
    few, more, most = (instructions(lambda: load_mjcf(m)) for m in models)
    assert most - more < 2.3 * (more - few)


def test_nothing_is_compiled(caplog):
    """Neither does JAX compile anything for a new number of elements."""
    with jax.log_compiles():
        for count in (3, 7):
            for part in PARTS.values():
                load_mjcf(scene(count, **part))
        assert not caplog.records
        jax.jit(lambda x: x + 1.2345)(np.zeros(7))
    assert caplog.records


def test_mean_colors_of_shared_textures():
    """Materials of one texture have its mean color, times their own."""
    text = """<mujoco><asset>
      <texture name="t" type="2d" builtin="checker" width="4" height="6" rgb1="1 .2 0"
        rgb2="0 .6 1"/>
      <material name="a" texture="t"/><material name="b" texture="t" rgba="1 .5 0 .7"/>
      </asset><worldbody>
      <geom size="1" material="a"/><geom size="1" material="b"/>
      <geom size="1" rgba="0 .25 1 1" material="a"/>
      </worldbody></mujoco>"""
    model = mujoco.MjModel.from_xml_string(text)
    size = 4 * 6 * 3
    mean = model.tex_data[:size].reshape(-1, 3).mean(axis=0) / 255.0
    expected = [[*mean, 1], [*(mean * [1, 0.5, 0]), 0.7], [0, 0.25, 1, 1]]
    assert np.allclose(load_mjcf(text).geoms.colors, expected, atol=1e-6)
