"""Distance sensors of boxes and hulls beside MuJoCo C."""

import equinox as eqx
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from solids import APART, assets
from trajectories import converged

from eqsim import Generalized, load_mjcf
from eqsim.io import write_mjcf


SHAPES = {
    "plane": 'type="plane" size="1 1 1"',
    "capsule": 'type="capsule" size=".05 .2"',
    "box": 'type="box" size=".1 .2 .15"',
    "other": 'type="box" size=".2 .1 .05"',
    "corner": 'type="mesh" mesh="corner"',
    "tent": 'type="mesh" mesh="tent"',
}
PAIRS = (
    *(("box", "other"), ("plane", "corner"), ("capsule", "tent")),
    *(("box", "corner"), ("corner", "tent")),
)
TEXT = """
<mujoco>{assets}<option gravity="0 0 0"/><worldbody>
  <body name="a"><freejoint/><geom name="one" {one}/><geom size=".01" pos="9 9 9"/></body>
  <body name="b"><freejoint/><geom name="two" {two}/></body>
</worldbody><sensor>
  <distance geom1="one" geom2="two" cutoff="3"/>
  <normal geom1="one" geom2="two" cutoff="3"/>
  <fromto geom1="two" geom2="one" cutoff="3"/>
  <distance body1="b" body2="a" cutoff=".2"/>
</sensor></mujoco>"""


def robot(first, second):
    text = TEXT.format(assets=assets(), one=SHAPES[first], two=SHAPES[second])
    if first == "plane":
        text = text.replace('<body name="a"><freejoint/>', '<body name="a">')
    return load_mjcf(text), converged(mujoco.MjModel.from_xml_string(text))


def draw(model, count):
    """Shapes around each other: apart and in penetration."""
    rng = np.random.default_rng(1)
    for _ in range(count):
        data = mujoco.MjData(model)
        mujoco.mj_integratePos(model, data.qpos, 0.3 * rng.normal(size=model.nv), 1.0)
        for joint in range(model.njnt):
            start = model.jnt_qposadr[joint] + 3
            quat = rng.normal(size=4)
            data.qpos[start : start + 4] = quat / np.linalg.norm(quat)
        mujoco.mj_forward(model, data)
        yield data


@eqx.filter_jit
def measured(sys, q):
    pipeline = Generalized()
    return jnp.concatenate(
        list(pipeline.sensors(sys, pipeline.init(sys, q), jnp.zeros(0)).values())
    )


@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
@pytest.mark.quick_cases("plane-corner")
def test_distances(pair):
    sys, model = robot(*pair)
    assert sys.nsensor == model.nsensor == 4
    signs = set()
    for data in draw(model, 12):
        found, target = np.asarray(measured(sys, data.qpos)), data.sensordata
        signs.add(float(np.sign(target[0])))
        np.testing.assert_allclose(found, target, atol=2e-6)
    assert signs == {-1.0, 1.0}


def test_meshes_without_a_hull_are_left_out():
    text = TEXT.format(
        assets=assets(), one=SHAPES["box"], two=SHAPES["tent"] + " " + APART
    )
    sys = load_mjcf(text)
    assert not sys.nsensor
    assert any("without a convex hull" in note for note in sys.notes)


def test_hulls_are_written():
    sys, _ = robot("box", "corner")
    assert load_mjcf(write_mjcf(sys)).nsensor == 4
