"""A small humanoid in a vertical plane, made for tests."""

import functools as ft
import pathlib
import tempfile

import eqsim_locomotion as loco


LIMBS = """
<body name="{side}_thigh" pos="0 {y} -0.1">
  <joint name="{side}_hip_pitch" axis="0 1 0" range="-1.5 1.5"/>
  <geom type="capsule" fromto="0 0 0 0 0 -0.25" size="0.03" mass="1"
   contype="0" conaffinity="0"/>
  <body name="{side}_knee" pos="0 0 -0.25">
    <joint name="{side}_knee" axis="0 1 0" range="-0.1 2"/>
    <geom type="capsule" fromto="0 0 0 0 0 -0.25" size="0.03" mass="1"
     contype="0" conaffinity="0"/>
    <body name="{side}_foot" pos="0 0 -0.25">
      <joint name="{side}_ankle_pitch" axis="0 1 0" range="-1 1"/>
      <geom name="{side}_sole" type="box" pos="0.03 0 -0.03" size="0.1 0.05 0.02"
       mass="0.3"/>
    </body>
  </body>
</body>
<body name="{side}_arm" pos="0 {wide} 0.2">
  <joint name="{side}_shoulder_pitch" axis="0 1 0" range="-3 3"/>
  <geom type="capsule" fromto="0 0 0 0 0 -0.3" size="0.02" mass="0.5"
   contype="0" conaffinity="0"/>
</body>"""
PARTS = ("hip_pitch", "knee", "ankle_pitch", "shoulder_pitch")
SIDES = {"left": 1.0, "right": -1.0}


def scene() -> str:
    """The MJCF text."""
    limbs = "".join(
        LIMBS.format(side=side, y=0.1 * sign, wide=0.2 * sign)
        for side, sign in SIDES.items()
    )
    servos = "".join(
        f'<position joint="{s}_{j}" kp="100" kv="3" forcerange="-60 60"/>'
        for s in SIDES
        for j in PARTS
    )
    return f"""
<mujoco>
  <compiler autolimits="true" angle="radian"/>
  <default><joint damping="0.5" armature="0.01"/><geom condim="3"/></default>
  <worldbody>
    <geom name="floor" type="plane" size="0 0 0.05" friction="0.7"/>
    <body name="torso" pos="0 0 0.65">
      <freejoint/>
      <geom type="box" size="0.08 0.15 0.2" pos="0 0 0.1" mass="5"/>
      {limbs}
    </body>
  </worldbody>
  <actuator>{servos}</actuator>
  <keyframe><key name="home" qpos="0 0 0.65 1 0 0 0 {"0 " * 8}"/></keyframe>
</mujoco>"""


@ft.cache
def file() -> str:
    """The path of a file with the scene."""
    path = pathlib.Path(tempfile.mkdtemp()) / "humanoid.xml"
    path.write_text(scene())
    return str(path)


def robot(**changes) -> loco.Robot:
    """The description of the robot."""
    first = loco.Robot(
        name="humanoid",
        file=file(),
        root="torso",
        feet=("left_sole", "right_sole"),
        action_scale=0.3,
    )
    return first._replace(**changes)
