"""A quadruped, and a humanoid in a vertical plane, made for tests."""

import functools as ft
import pathlib
import tempfile

import eqsim_locomotion as loco


SCENE = """
<mujoco>
  <compiler autolimits="true" angle="radian"/>
  <default><joint damping="0.5" armature="0.01"/><geom condim="3"/></default>
  <worldbody>
    <geom name="floor" type="plane" size="0 0 0.05" {floor}/>
    <body name="{root}" pos="0 0 {height}">
      <freejoint/>
      <geom type="box" {box}/>
      {limbs}
    </body>
  </worldbody>
  <actuator>{servos}</actuator>
  <keyframe><key name="home" qpos="0 0 {height} 1 0 0 0 {pose}"/></keyframe>
</mujoco>"""
LEG = """
<body name="{side}_hip" pos="{x} {y} 0">
  <joint name="{side}_abduction" axis="1 0 0" range="-0.8 0.8"/>
  <geom type="capsule" fromto="0 0 0 0 0 -0.2" size="0.02" mass="0.5"/>
  <body name="{side}_shank" pos="0 0 -0.2">
    <joint name="{side}_knee" axis="0 {sign} 0" range="-1.5 1.5"/>
    <geom type="capsule" fromto="0 0 0 0 0 -0.15" size="0.015" mass="0.2"/>
    <geom name="{side}" type="sphere" pos="0 0 -0.2" size="0.02" mass="0.1"/>
    <site name="{side}_sole" pos="0 0 -0.22"/>
  </body>
</body>"""
SIDES = {"FL": (0.2, 0.1), "FR": (0.2, -0.1), "RL": (-0.2, 0.1), "RR": (-0.2, -0.1)}
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


def _file(**parts) -> str:
    """The path of a file with a scene."""
    path = pathlib.Path(tempfile.mkdtemp()) / "robot.xml"
    path.write_text(SCENE.format(**parts))
    return str(path)


@ft.cache
def quadruped_file() -> str:
    """The path of a file: the knees of both sides turn in opposite directions."""
    limbs = (
        LEG.format(side=side, x=x, y=y, sign=1 if y > 0 else -1)
        for side, (x, y) in SIDES.items()
    )
    servos = (
        f'<position name="{s}_{j}" joint="{s}_{j}" kp="30" kv="1" forcerange="-20 20"/>'
        if j == "abduction"
        else f'<motor name="{s}_{j}" joint="{s}_{j}" ctrlrange="-10 10" gear="1"/>'
        for s in SIDES
        for j in ("abduction", "knee")
    )
    return _file(
        root="trunk",
        floor="",
        height=0.42,
        box='size="0.2 0.08 0.04" mass="4"',
        limbs="".join(limbs),
        servos="".join(servos),
        pose="0 0 " * 4,
    )


def quadruped(**changes) -> loco.Robot:
    """The description of the quadruped."""
    first = loco.Robot(
        name="quadruped",
        file=quadruped_file(),
        root="trunk",
        feet=tuple(SIDES),
        stiffness=40.0,
        damping={"knee": 1.5, "": 1.0},
        action_scale={"abduction": 0.2, "knee": 0.4},
    )
    return first._replace(**changes)


@ft.cache
def _humanoid_file() -> str:
    sides = {"left": 1.0, "right": -1.0}
    limbs = (
        LIMBS.format(side=side, y=0.1 * sign, wide=0.2 * sign)
        for side, sign in sides.items()
    )
    servos = (
        f'<position joint="{s}_{j}" kp="100" kv="3" forcerange="-60 60"/>'
        for s in sides
        for j in PARTS
    )
    return _file(
        root="torso",
        floor='friction="0.7"',
        height=0.65,
        box='size="0.08 0.15 0.2" pos="0 0 0.1" mass="5"',
        limbs="".join(limbs),
        servos="".join(servos),
        pose="0 " * 8,
    )


def humanoid() -> loco.Robot:
    """The description of the humanoid."""
    return loco.Robot(
        name="humanoid",
        file=_humanoid_file(),
        root="torso",
        feet=("left_sole", "right_sole"),
        action_scale=0.3,
    )
