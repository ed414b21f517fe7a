"""Small robots for tests of the viewer."""

import eqsim


POINT = """
<mujoco>
  <compiler angle="radian"/>
  <option timestep="0.01"/>
  <worldbody>
    <geom name="floor" type="plane" size="0 0 1"/>
    <body name="ball" pos="0 0 1">
      <joint name="lift" type="slide" axis="0 0 1" range="-1.5 3"/>
      <geom name="ball" type="sphere" size="0.1" mass="1" rgba="1 0 0 1"/>
    </body>
  </worldbody>
  <actuator><motor name="motor" joint="lift" ctrlrange="-20 20"/></actuator>
  <keyframe><key name="high" qpos="2" ctrl="3"/></keyframe>
</mujoco>"""

SHAPES = """
<mujoco>
  <asset>
    <mesh name="tetra" vertex="0 0 0  1 0 0  0 1 0  0 0 1"/>
    <hfield name="hill" nrow="2" ncol="3" size="1 1 1 0.1" elevation="0 1 0 0 1 0"/>
    <texture name="half" type="2d" builtin="flat" rgb1="0.5 0.5 0.5" width="4" height="4"/>
    <material name="gray" texture="half" rgba="1 0.5 0 1"/>
    <material name="blue" rgba="0 0 1 0.5"/>
  </asset>
  <worldbody>
    <geom name="hill" type="hfield" hfield="hill" pos="9 0 0"/>
    <geom name="wall" type="plane" size="0.2 0.3 1" pos="0 5 0"/>
    <body name="body" pos="0 0 3">
      <freejoint/>
      <geom name="sphere" type="sphere" size="0.3" material="gray"/>
      <geom name="capsule" type="capsule" size="0.1 0.4" pos="1 0 0" euler="30 20 10"/>
      <geom name="ellipsoid" type="ellipsoid" size="0.1 0.2 0.3" pos="2 0 0"/>
      <geom name="cylinder" type="cylinder" size="0.1 0.4" pos="3 0 0" group="3"/>
      <geom name="box" type="box" size="0.1 0.2 0.3" pos="4 0 0" material="blue"/>
      <geom name="mesh" type="mesh" mesh="tetra" pos="5 0 0"/>
      <geom name="hidden" type="sphere" size="0.3" rgba="1 1 1 0"/>
    </body>
  </worldbody>
</mujoco>"""


def point():
    """A ball on a vertical rail above a floor, with a motor."""
    return eqsim.load_mjcf(POINT)


def shapes():
    """A robot with a shape of each kind, far from one another."""
    return eqsim.load_mjcf(SHAPES)
