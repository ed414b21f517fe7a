"""Robots for timings of constraints: feet on the ground, and a linkage with tendons."""

from _models import model_file


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


SCENES = {"ant": ant, "quadruped": quadruped, "linkage": linkage}
