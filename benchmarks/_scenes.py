"""Robots as MJCF, for timings of contacts and constraints: feet on the ground, a linkage with
tendons, and an arm, a quadruped and a hand with convex hulls."""

import numpy as np
from _robots import model_file


def ant() -> str:
    """Return Gymnasium's ant with Euler."""
    text = model_file("ant").read_text()
    return text.replace('integrator="RK4"', 'integrator="Euler"')


def quadruped() -> str:
    """Return a trunk on four legs with three joints each; feet and trunk touch the
    ground."""
    legs, drives = "", ""
    for k, (x, y) in enumerate(((1, 1), (1, -1), (-1, 1), (-1, -1))):
        legs += (
            f'<body pos="{0.19 * x} {0.05 * y} 0"><joint name="hip{k}" axis="1 0 0"/>'
            f'<geom size=".04" pos="0 {0.08 * y} 0" mass=".7" contype="0" '
            f'conaffinity="0"/><body pos="0 {0.095 * y} 0">'
            f'<joint name="thigh{k}" axis="0 1 0"/>'
            '<geom type="capsule" size=".02" fromto="0 0 0 0 0 -.2" mass="1.1" '
            'contype="0" conaffinity="0"/><body pos="0 0 -.213">'
            f'<joint name="calf{k}" axis="0 1 0"/>'
            '<geom size=".022" pos="0 0 -.213" mass=".2"/></body></body></body>'
        )
        for joint, at in (("hip", 0.0), ("thigh", 0.9), ("calf", -1.8)):
            limits = f"{at - 0.15} {at + 0.15}"
            drives += f'<position joint="{joint}{k}" kp="120" ctrlrange="{limits}"/>'
    key = " ".join(["0 0 .29 1 0 0 0"] + ["0 .9 -1.8"] * 4)
    return f"""<mujoco>
  <compiler angle="radian"/><option timestep="0.002"/>
  <default><joint damping="1" armature="0.05"/><geom friction="0.8"/></default>
  <worldbody>
    <geom type="plane" size="5 5 .1"/>
    <body pos="0 0 .3"><freejoint/>
      <geom type="box" size=".19 .05 .06" mass="6"/>{legs}
    </body>
  </worldbody>
  <actuator>{drives}</actuator>
  <keyframe><key qpos="{key}"/></keyframe>
</mujoco>"""


def linkage() -> str:
    """Return two fingers driven by spatial tendons around pulleys, coupled by a fixed
    tendon, each closed to a four-bar linkage by `connect`."""
    fingers, sites, ends = "", "", ""
    for k, side in enumerate((-1, 1)):
        y = 0.05 * side
        fingers += f"""
    <site name="base{k}" pos="-.02 {y} 0"/>
    <site name="turn{k}" pos=".02 {y + 0.02} .12"/>
    <body name="link{k}" pos="0 {y} 0"><joint name="near{k}" axis="0 1 0" range="-1 1.2"/>
      <geom type="capsule" size=".01" fromto="0 0 0 0 0 .1" mass=".1"/>
      <geom name="wheel{k}" type="cylinder" size=".012 .01" pos="0 0 .1"
        zaxis="0 1 0" mass=".01"/>
      <site name="middle{k}" pos="-.02 0 .08"/>
      <body pos="0 0 .1"><joint name="far{k}" axis="0 1 0" range="-1 1.2"/>
        <geom type="capsule" size=".009" fromto="0 0 0 0 0 .08" mass=".05"/>
        <site name="tip{k}" pos="-.015 0 .06"/>
      </body>
    </body>
    <body pos=".03 {y} 0"><joint name="bar{k}" axis="0 1 0"/>
      <geom type="capsule" size=".006" fromto="0 0 0 0 0 .1" mass=".03"/>
      <body name="cross{k}" pos="0 0 .1"><joint axis="0 1 0"/>
        <geom type="capsule" size=".006" fromto="0 0 0 -.03 0 0" mass=".02"/>
      </body>
    </body>"""
        sites += f"""
    <spatial name="pull{k}" stiffness="20" damping=".5" range="0 .25">
      <site site="base{k}"/><site site="middle{k}"/>
      <geom geom="wheel{k}"/><site site="tip{k}"/>
    </spatial>"""
        ends += f'<connect body1="cross{k}" body2="link{k}" anchor="-.03 0 0"/>'
    return f"""<mujoco>
  <compiler angle="radian"/><option timestep="0.002"/>
  <default>
    <joint damping=".02" armature=".001"/><geom contype="0" conaffinity="0"/>
  </default>
  <worldbody>{fingers}
  </worldbody>
  <tendon>{sites}
    <fixed name="both" frictionloss=".01">
      <joint joint="near0" coef="1"/><joint joint="near1" coef="-1"/>
    </fixed>
  </tendon>
  <equality>{ends}<tendon tendon1="both" polycoef="0 1 0 0 0"/></equality>
  <actuator>
    <general tendon="pull0" gainprm="20" ctrlrange="-1 0"/>
    <general tendon="pull1" gainprm="20" ctrlrange="-1 0"/>
    <position joint="far0" kp="1" ctrlrange="-.3 .6"/>
    <position joint="far1" kp="1" ctrlrange="-.3 .6"/>
  </actuator>
</mujoco>"""


def hull(name: str, count: int, size, seed: int) -> str:
    """Return a mesh of `count` points near an ellipsoid, most of which are on its
    hull."""
    points = np.random.default_rng(seed).normal(size=(count, 3))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    text = " ".join(f"{x:.4f}" for x in (points * size).ravel())
    return f'<mesh name="{name}" maxhullvert="-1" vertex="{text}"/>'


def _file(assets: str, world: str, actuators: str, more="", damping=1.0, armature=0.05):
    return f"""<mujoco>
  <compiler angle="radian"/>
  <option timestep="0.002" integrator="Euler"/>
  <default>
    <joint damping="{damping}" armature="{armature}"/><geom friction="0.8"/>
  </default>
  <asset>{assets}</asset>
  <worldbody>{world}</worldbody>
  <actuator>{actuators}</actuator>{more}
</mujoco>"""


_AXES = ("0 0 1", "0 1 0", "0 0 1", "0 1 0", "0 0 1", "0 1 0", "0 0 1")
_REACH = (0.0, 0.9, 0.0, 1.3, 0.0, 0.9, 0.0)


def arm(vertices: int = 100) -> str:
    """Return an arm with seven links and two fingers, all hulls, above a floor with a
    box."""
    assets, inner = hull("palm", vertices, (0.04, 0.1, 0.04), 7), ""
    for k in reversed(range(7)):
        assets += hull(f"link{k}", vertices, (0.06, 0.06, 0.11), k)
        if k == 6:
            inner = _gripper()
        gap = 0.06 if k == 0 else 0.2
        inner = (
            f'<body name="link{k}" pos="0 0 {gap}">'
            f'<joint name="joint{k}" axis="{_AXES[k]}" range="-2.8 2.8"/>'
            f'<geom type="mesh" mesh="link{k}" pos="0 0 .1" mass="2"/>{inner}</body>'
        )
    world = (
        '<geom type="plane" size="3 3 .1"/>'
        f'<body name="base" pos="0 0 .05">{inner}</body>'
        '<body name="cube" pos=".5 0 .05"><freejoint/>'
        '<geom type="box" size=".05 .05 .05" mass=".5"/></body>'
    )
    drives = "".join(
        f'<position joint="joint{k}" kp="200" ctrlrange="{at - 0.4} {at + 0.4}"/>'
        for k, at in enumerate(_REACH)
    )
    drives += '<position joint="left" kp="100" ctrlrange="0 .04"/>'
    return _file(assets, world, drives)


def _gripper() -> str:
    finger = lambda name, side: (
        f'<body name="{name}" pos="0 {0.02 * side} .06">'
        f'<joint name="{name}" type="slide" axis="0 {side} 0" range="0 .04"/>'
        '<geom type="box" size=".01 .008 .03" pos="0 0 .03" mass=".05"/></body>'
    )
    return (
        '<body name="palm" pos="0 0 .24"><geom type="mesh" mesh="palm" mass=".5"/>'
        f"{finger('left', 1)}{finger('right', -1)}</body>"
    )


def hull_quadruped(vertices: int = 60) -> str:
    """Return a quadruped: a trunk of a box, an ellipsoid and a hull, legs of boxes and
    capsules, spheres as feet."""
    assets = hull("head", vertices, (0.06, 0.06, 0.06), 1)
    legs, drives = "", ""
    for k, (x, y) in enumerate(((1, 1), (1, -1), (-1, 1), (-1, -1))):
        legs += (
            f'<body name="hip{k}" pos="{0.19 * x} {0.047 * y} 0">'
            f'<joint name="hip{k}" axis="1 0 0" range="-1 1"/>'
            f'<geom type="capsule" size=".04 .02" pos="0 {0.08 * y} 0" '
            'zaxis="0 1 0" mass=".7"/>'
            f'<body name="thigh{k}" pos="0 {0.095 * y} 0">'
            f'<joint name="thigh{k}" axis="0 1 0" range="-1.5 3.4"/>'
            '<geom type="box" size=".1 .012 .017" pos="0 0 -.107" zaxis="1 0 0" '
            'mass="1.1"/>'
            f'<body name="calf{k}" pos="0 0 -.213">'
            f'<joint name="calf{k}" axis="0 1 0" range="-2.7 -.8"/>'
            '<geom type="capsule" size=".012" fromto="0 0 -.03 0 0 -.19" mass=".15"/>'
            '<geom type="sphere" size=".022" pos="0 0 -.213" mass=".04"/>'
            "</body></body></body>"
        )
        for joint, at in (("hip", 0.0), ("thigh", 0.9), ("calf", -1.8)):
            drives += (
                f'<position joint="{joint}{k}" kp="120" '
                f'ctrlrange="{at - 0.15} {at + 0.15}"/>'
            )
    world = (
        '<geom type="plane" size="5 5 .1"/>'
        '<body name="trunk" pos="0 0 .3"><freejoint/>'
        '<geom type="box" size=".188 .0465 .057" mass="6"/>'
        '<geom type="ellipsoid" size=".06 .05 .045" pos=".285 0 .01" mass=".3"/>'
        f'<geom type="mesh" mesh="head" pos=".32 0 -.05" mass=".1"/>{legs}</body>'
    )
    key = " ".join(["0 0 .29 1 0 0 0"] + ["0 .9 -1.8"] * 4)
    more = f'<keyframe><key qpos="{key}"/></keyframe>'
    return _file(assets, world, drives, more)


def hand(vertices: int = 60) -> str:
    """Return a hand, palm up: four fingers of boxes, capsules and hulls, whose tips
    carry a cube."""
    assets = hull("palm", vertices, (0.06, 0.06, 0.02), 1)
    fingers, drives = "", ""
    for k in range(4):
        assets += hull(f"tip{k}", vertices, (0.012, 0.012, 0.018), k + 2)
        x, y = ((0.05, -0.045), (0.05, 0.0), (0.05, 0.045), (-0.05, 0.0))[k]
        turn = 3.1416 if x < 0 else 0
        fingers += (
            f'<body name="base{k}" pos="{x} {y} .02" euler="0 0 {turn}">'
            f'<joint name="side{k}" axis="1 0 0" range="-.3 .3"/>'
            '<geom type="box" size=".012 .012 .018" pos="0 0 .02" mass=".04"/>'
            f'<body name="first{k}" pos="0 0 .04">'
            f'<joint name="first{k}" axis="0 -1 0" range="-.2 1.6"/>'
            '<geom type="box" size=".01 .012 .016" pos="0 0 .02" mass=".03"/>'
            f'<body name="second{k}" pos="0 0 .04">'
            f'<joint name="second{k}" axis="0 -1 0" range="0 1.6"/>'
            '<geom type="capsule" size=".01" fromto="0 0 .005 0 0 .025" mass=".03"/>'
            f'<body name="third{k}" pos="0 0 .035">'
            f'<joint name="third{k}" axis="0 -1 0" range="0 1.6"/>'
            f'<geom type="mesh" mesh="tip{k}" pos="0 0 .015" mass=".02"/>'
            "</body></body></body></body>"
        )
        for joint in ("side", "first", "second", "third"):
            low, high = (-0.2, 0.2) if joint == "side" else (0.2, 0.9)
            drives += f'<position joint="{joint}{k}" kp="2" ctrlrange="{low} {high}"/>'
    world = (
        '<geom type="plane" size="1 1 .1" pos="0 0 -.2"/>'
        '<body name="palm"><geom type="mesh" mesh="palm" mass=".3"/>'
        f"{fingers}</body>"
        '<body name="cube" pos="0 0 .06"><freejoint/>'
        '<geom type="box" size=".03 .03 .03" mass=".1"/></body>'
    )
    return _file(assets, world, drives, damping=0.05, armature=0.002)


SCENES = {
    "ant": ant,
    "quadruped": quadruped,
    "linkage": linkage,
    "arm": arm,
    "hull_quadruped": hull_quadruped,
    "hand": hand,
}
