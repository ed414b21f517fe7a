"""A small robot with four legs, made for tests."""

import functools as ft
import pathlib
import tempfile

import eqsim_locomotion as loco


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


def scene() -> str:
    """The MJCF text: the knees of both sides turn in opposite directions."""
    legs = "".join(
        LEG.format(side=side, x=x, y=y, sign=1 if y > 0 else -1)
        for side, (x, y) in SIDES.items()
    )
    motors = "".join(
        f'<position name="{s}_{j}" joint="{s}_{j}" kp="30" kv="1" forcerange="-20 20"/>'
        if j == "abduction"
        else f'<motor name="{s}_{j}" joint="{s}_{j}" ctrlrange="-10 10" gear="1"/>'
        for s in SIDES
        for j in ("abduction", "knee")
    )
    return f"""
<mujoco>
  <compiler autolimits="true" angle="radian"/>
  <default><joint damping="0.5" armature="0.01"/><geom condim="3"/></default>
  <worldbody>
    <geom name="floor" type="plane" size="0 0 0.05"/>
    <body name="trunk" pos="0 0 0.42">
      <freejoint/>
      <geom type="box" size="0.2 0.08 0.04" mass="4"/>
      {legs}
    </body>
  </worldbody>
  <actuator>{motors}</actuator>
  <keyframe><key name="home" qpos="0 0 0.42 1 0 0 0 {"0 0 " * 4}"/></keyframe>
</mujoco>"""


@ft.cache
def file() -> str:
    """The path of a file with the scene."""
    path = pathlib.Path(tempfile.mkdtemp()) / "quadruped.xml"
    path.write_text(scene())
    return str(path)


def robot(**changes) -> loco.Robot:
    """The description of the robot."""
    first = loco.Robot(
        name="quadruped",
        file=file(),
        root="trunk",
        feet=tuple(SIDES),
        stiffness=40.0,
        damping={"knee": 1.5, "": 1.0},
        action_scale={"abduction": 0.2, "knee": 0.4},
    )
    return first._replace(**changes)
