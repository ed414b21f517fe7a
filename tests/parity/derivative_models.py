"""Small robots for the derivative matrix, one for each family of features, and their states:
coordinates and velocities by name, and the scale of controls if it is not one."""

import re

import mujoco
import numpy as np

from eqsim.model.pairs import touching_kinds


# Spheres with every contact dimension on a floor that has none of its own; the last one
# by an explicit pair. Wide impedances separate kinks.
CONTACTS = """
<mujoco>
  <option timestep=".004" cone="{}" impratio="1.5"/>
  <default><geom solimp=".8 .95 .01 .5 2" mass=".5"/></default>
  <worldbody>
    <geom name="floor" type="plane" size="1 1 1" condim="1" friction=".5 .02 .01"
      solref=".03 .9" solmix="2"/>
    <body pos="0 0 .1"><freejoint/>
      <geom name="condim 1" size=".1" pos=".3 .2 0" condim="1"/>
      <geom name="condim 3" size=".1" pos="-.3 .2 0" condim="3" friction=".8"/>
      <geom name="condim 4" size=".1" pos=".3 -.2 0" condim="4" friction=".7 .03 .1"/>
      <geom name="condim 6" size=".1" pos="-.3 -.2 0" condim="6" friction=".7 .03 .02"/>
      <geom name="pair" size=".1" pos="0 0 .002" friction=".9"/>
    </body>
  </worldbody>
  <contact><pair geom1="floor" geom2="pair" condim="6" friction=".5 .4 .02 .01 .02"
    solref=".02 1.1" solreffriction=".03 1" margin=".002" solimp=".8 .95 .01 .5 2"/>
  </contact>
</mujoco>"""

# The same spheres and a moving floor that adhere, some beyond their margin.
ADHESION = (
    CONTACTS.replace(
        'solmix="2"/>',
        'solmix="2" surfacevel=".3 .2 .1 .2 .1 .5" adhesion="1.5" gap=".01"/>',
    )
    .replace('friction=".8"/>', 'friction=".8" adhesion="2" gap=".005"/>')
    .replace('friction=".7 .03 .1"/>', 'friction=".7 .03 .1" surfacevel=".2 0 0 .3"/>')
    .replace('margin=".002"', 'margin=".002" adhesion="3" gap=".012"')
)

# Balls that touch with every contact dimension, one by an explicit pair, and an arm whose
# joint and tendon have dry friction, without slip. Contacts of one body would share friction,
# and hold it against each other, with kinks where one of them starts to slip.
NOSLIP = """
<mujoco>
  <option timestep=".004" cone="{}" impratio="1.5" noslip_iterations="3"/>
  <default><geom solimp=".8 .95 .01 .5 2" mass=".5"/></default>
  <worldbody>
    <geom name="floor" type="plane" size="1 1 1" friction=".5 .02 .01" solref=".03 .9"
      solmix="2"/>
    <body pos="0 0 .1"><freejoint/><geom size=".1" condim="3" friction=".8"/>
      <body pos="0 0 .3"><joint name="hinge" axis="0 1 .1" frictionloss=".4"/>
        <geom size=".05" pos=".1 0 0" contype="0" conaffinity="0"/>
        <body pos=".2 0 0"><joint name="elbow" axis="1 1 0"/>
          <geom size=".05" pos="0 .1 0" contype="0" conaffinity="0"/></body></body></body>
    <body pos=".5 0 .1"><freejoint/><geom size=".1" condim="4" friction=".7 .03 .1"/></body>
    <body pos="0 .5 .1"><freejoint/><geom name="pair" size=".1"/></body>
  </worldbody>
  <contact><pair geom1="floor" geom2="pair" condim="6" friction=".5 .4 .02 .01 .02"
    solref=".02 1.1" solreffriction=".03 1" margin=".002" solimp=".8 .95 .01 .5 2"/>
  </contact>
  <tendon><fixed frictionloss=".1"><joint joint="hinge" coef="1"/>
    <joint joint="elbow" coef="-.5"/></fixed></tendon>
</mujoco>"""

_SHAPES = {
    "plane": 'size="1 1 1"',
    "hfield": 'hfield="hills"',
    "sphere": 'size=".12"',
    "capsule": 'size=".07 .2"',
    "ellipsoid": 'size=".1 .15 .2"',
    "cylinder": 'size=".15 .1"',
    "box": 'size=".1 .15 .2"',
    "mesh": 'mesh="rock"',
}
_MEETING = """
<mujoco>
  <option timestep=".004" ccd_tolerance="1e-12" ccd_iterations="200"/>
  <default><geom margin=".02" solimp=".8 .95 .01 .5 2" mass=".5"/></default>
  <asset>
    <mesh name="rock" vertex=".15 0 0  -.1 .12 0  0 -.13 .05  0 .02 .2  .1 .1 -.15
      -.08 -.06 -.17"/>
    <hfield name="hills" nrow="3" ncol="4" size=".5 .5 .1 .1"
      elevation="0 .3 .1 .5  .2 1 .6 .3  .1 .4 0 .2"/>
  </asset>
  <worldbody>
    <geom type="{}" {} euler="5 10 20" friction=".8"/>
    <body pos="0 0 1"><freejoint/><geom type="{}" {} condim="4"/></body>
  </worldbody>
</mujoco>"""


def shapes():
    """Return each pair of shapes that can touch, by name."""
    names = [(a.name.lower(), b.name.lower()) for a, b in touching_kinds()]
    return {
        f"{one}-{two}": _MEETING.format(one, _SHAPES[one], two, _SHAPES[two])
        for one, two in names
    }


# Limits, dry friction, springs and dampers of every kind of joint.
JOINTS = """
<mujoco>
  <option timestep=".004"/>
  <default><geom contype="0" conaffinity="0"/>
    <joint solimplimit=".8 .95 .4 .5 2" solreflimit=".03 .9" armature=".01"/></default>
  <worldbody>
    <body><joint name="ball" type="ball" limited="true" range="0 60" margin=".05"
        damping=".2 .1" stiffness="1 .3" frictionloss=".3"/>
      <geom type="capsule" size=".05 .1" pos=".02 0 -.2"/>
      <body pos="0 0 -.4"><joint name="hinge" axis="0 1 .1" limited="true"
          range="-30 30" ref=".1" springref="8" stiffness="2 .5 .2" damping=".3 .1 .02"
          frictionloss=".5" actuatorfrcrange="-1 1"/>
        <geom type="box" size=".1 .05 .07" pos=".1 0 .02"/>
        <body pos=".2 0 0"><joint name="slide" type="slide" axis="1 .1 .2" limited="true"
            range="-.1 .1" margin=".01" ref=".02" stiffness="9" damping="2 1"
            frictionloss=".4"/>
          <geom size=".05" pos="0 .03 0"/></body></body></body>
  </worldbody>
  <actuator><motor joint="hinge" gear="2"/><motor joint="slide"/>
    <motor joint="ball" gear="1 2 3"/></actuator>
</mujoco>"""

# Every equality constraint; a box hangs on a mocap link.
EQUALITY = """
<mujoco>
  <option timestep=".004"/>
  <default><geom contype="0" conaffinity="0"/>
    <equality solimp=".8 .95 .4 .5 2" solref=".05 .9"/></default>
  <worldbody>
    <body name="hand" mocap="true" pos="0 0 1" euler="10 0 5"><geom size=".02"/></body>
    <body name="box" pos=".05 0 .8"><freejoint/><geom type="box" size=".1 .05 .07"/>
      <site name="box" pos=".1 0 .05" euler="10 20 30"/></body>
    <body name="one" pos=".5 0 .8"><joint name="one" axis="0 1 .1"/>
      <geom type="capsule" size=".05" fromto="0 0 0 .3 0 0"/>
      <site name="one" pos="-.1 .1 0" euler="0 20 0"/>
      <body name="two" pos=".3 0 0"><joint name="two" axis="0 1 0"/>
        <joint name="slide" type="slide" axis="1 0 .2"/>
        <geom type="capsule" size=".05" fromto="0 0 0 .3 0 0"/>
        <site name="two" pos=".2 .1 0" euler="0 -20 10"/></body></body>
    <body name="ball" pos="1.2 .1 .8"><joint type="ball"/>
      <geom type="capsule" size=".05" fromto="0 0 0 .2 .1 .1"/>
      <site name="ball" pos=".1 0 .1" euler="50 0 10"/></body>
  </worldbody>
  <tendon>
    <fixed name="sum"><joint joint="one" coef="1"/><joint joint="two" coef="-.7"/></fixed>
    <spatial name="rope"><site site="one"/><site site="ball"/></spatial>
  </tendon>
  <equality>
    <weld name="weld to mocap" body1="hand" body2="box" torquescale=".7"/>
    <weld name="weld, relpose" body1="two" body2="ball" torquescale="1.7"
      relpose=".3 .1 .1 .9 .2 .3 .1" anchor=".1 .1 0"/>
    <weld name="weld of sites" site1="box" site2="one" torquescale=".5"/>
    <connect name="connect" body1="two" body2="ball" anchor=".2 0 .05"/>
    <connect name="connect of sites" site1="two" site2="ball"/>
    <joint name="joint" joint1="one" joint2="two" polycoef=".1 .5 .3 .2 .1"/>
    <joint name="joint alone" joint1="slide" polycoef=".02 0 0 0 0"/>
    <tendon name="tendon" tendon1="sum" tendon2="rope" polycoef=".1 .5 .2 .1 .3"/>
    <tendon name="tendon alone" tendon1="rope" polycoef=".1 0 0 0 0"/>
  </equality>
</mujoco>"""

# All ways around a shape, pulleys, all tendon forces, limits and dry friction.
TENDONS = """
<mujoco>
  <option timestep=".004"/>
  <default><geom contype="0" conaffinity="0"/>
    <tendon solimplimit=".8 .95 .4 .5 2" solreflimit=".03 .9"/></default>
  <worldbody>
    <site name="hook" pos="0 0 1"/><site name="side" pos=".2 0 .6"/>
    <site name="inside" pos=".02 0 .6"/>
    <geom name="ball" size=".1" pos="0 0 .6"/>
    <geom name="rod" type="cylinder" size=".08 .1" pos=".4 0 .5" euler="80 10 0"/>
    <body pos="0 0 .3"><joint name="hip" axis="1 0 .2"/>
      <geom type="capsule" size=".1 .2" pos=".1 0 0"/><site name="x" pos="0 .1 .05"/>
      <body pos="0 0 -.3"><joint name="hinge" axis="0 1 0" springref=".3" ref=".1"/>
        <geom name="pin" type="cylinder" size=".05 .1" euler="90 0 0"/>
        <site name="y" pos=".1 0 -.1"/>
        <body pos="0 0 -.3"><joint name="slide" type="slide" axis="1 1 0"/>
          <geom size=".1"/><site name="z" pos=".1 .05 0"/></body></body></body>
  </worldbody>
  <tendon>
    <fixed name="fixed" stiffness="3 1 2" damping="1 2 3" armature=".1" limited="true"
      range="-.4 .3" margin=".02" frictionloss="1" actuatorfrcrange="-.5 .5">
      <joint joint="hinge" coef="1"/><joint joint="slide" coef="-.5"/></fixed>
    <spatial name="straight" stiffness="20" damping=".5" limited="true" range="0 .7"
      frictionloss="2" armature=".05"><site site="hook"/><site site="x"/></spatial>
    <spatial name="pulleys" stiffness="10" springlength=".1 .9" damping=".3">
      <site site="hook"/><geom geom="ball"/><site site="x"/><pulley divisor="2"/>
      <site site="x"/><geom geom="pin"/><site site="z"/><pulley divisor="3"/>
      <site site="y"/><geom geom="rod" sidesite="side"/><site site="hook"/></spatial>
    <spatial name="side site" stiffness="5 2">
      <site site="hook"/><geom geom="ball" sidesite="side"/><site site="y"/></spatial>
    <spatial name="through the inside" stiffness="5" springlength="0">
      <site site="hook"/><geom geom="ball" sidesite="inside"/><site site="z"/></spatial>
  </tendon>
  <actuator><motor tendon="fixed" gear="2"/><motor tendon="straight"/></actuator>
</mujoco>"""

# Springs and dampers only, which all pipelines simulate.
TENDON_SPRINGS = """
<mujoco>
  <option timestep=".004"/>
  <default><geom contype="0" conaffinity="0"/></default>
  <worldbody>
    <site name="hook" pos="0 .1 .6"/><geom name="ball" size=".1" pos=".02 .2 .3"/>
    <body><joint name="hip" axis="1 0 .2" damping=".1"/>
      <geom type="capsule" size=".1 .1" pos="0 0 -.2"/><site name="x" pos="0 .3 .1"/>
      <body pos="0 0 -.4"><joint name="knee" axis="1 .2 0" damping=".1"/>
        <geom type="capsule" size=".05 .1" pos="0 0 -.2"/><site name="y" pos="0 .3 -.1"/>
      </body></body>
  </worldbody>
  <tendon>
    <fixed name="fixed" stiffness="3 1 2" damping="1 .2 .3"><joint joint="hip" coef="1"/>
      <joint joint="knee" coef="-.5"/></fixed>
    <spatial name="rope" stiffness="20" damping=".5" springlength="0 .2">
      <site site="hook"/><geom geom="ball"/><site site="x"/><pulley divisor="2"/>
      <site site="x"/><site site="y"/></spatial>
  </tendon>
</mujoco>"""

# One actuator on each kind of object. A foot sticks to the floor.
TRANSMISSIONS = """
<mujoco>
  <option timestep=".004"/>
  <default><geom contype="0" conaffinity="0"/>
    <general biastype="affine" biasprm=".1 .3 -.2" gaintype="affine"
      gainprm="1 .2 .1"/></default>
  <worldbody>
    <geom name="floor" type="plane" size="1 1 1" pos="0 0 -.1" contype="1"/>
    <site name="world" pos=".1 .2 .3" quat=".3 .4 .5 .6"/>
    <body><joint name="hip" axis="0 1 .1"/><geom type="box" size=".1 .2 .1"/>
      <site name="hip" pos=".1 0 .1" quat="1 .2 .3 .1"/>
      <body pos=".2 0 0"><joint name="ball" type="ball"/>
        <geom type="capsule" fromto="0 0 0 .3 0 0" size=".03"/>
        <site name="toe" pos=".1 .2 .1" quat=".3 -.2 .3 .5"/></body>
      <body name="foot" pos="-.2 0 0"><joint name="slide" type="slide" axis="0 0 1"/>
        <geom size=".1" conaffinity="1" margin=".01" friction=".5"
          solimp=".8 .95 .01 .5 2"/></body></body>
  </worldbody>
  <tendon><fixed name="sum" actuatorfrcrange="-2 2"><joint joint="hip" coef="2"/>
      <joint joint="slide" coef="-1"/></fixed>
    <spatial name="rope"><site site="world"/><site site="toe"/></spatial></tendon>
  <actuator>
    <general name="joint" joint="hip" gear="2" damping=".1 .2 .3" armature=".2"/>
    <general name="ball" joint="ball" gear="1 2 3"/>
    <general name="jointinparent" jointinparent="ball" gear="3 -2 1"/>
    <general name="fixed tendon" tendon="sum" gear="2" damping=".1 .2"/>
    <general name="spatial tendon" tendon="rope" gear="-1.5" armature=".1"/>
    <general name="site" site="hip" gear="1 2 3 4 5 6"/>
    <general name="site, refsite" site="toe" refsite="hip" gear="1 2 3 1 -2 1"/>
    <general name="slider-crank" cranksite="toe" slidersite="hip" cranklength=".7"
      gear="1.5"/>
    <adhesion name="body" body="foot" ctrlrange="0 1" gain="5"/>
    <orientation name="orientation" joint="ball" kp="3" kv=".2"/>
    <orientation name="orientation, refsite" site="toe" refsite="world" kp="3" kv=".2"
      forcerange="0 .3"/>
  </actuator>
</mujoco>"""

# Every law, with ranges of controls, activations and forces.
_MOTOR = 'motorconst=".5" resistance="2" cogging=".1 6 .3" lugre="20 .1 .2 .4 .1"'
LAWS = f"""
<mujoco>
  <option timestep=".004"/>
  <default><geom contype="0" conaffinity="0"/></default>
  <extension><plugin plugin="mujoco.pid"/></extension>
  <worldbody>
    <body><joint name="hinge" axis="0 1 .1" damping=".2"/>
      <geom type="capsule" fromto="0 0 0 .3 0 0" size=".05"/>
      <body pos=".3 0 0"><joint name="slide" type="slide" axis="1 .1 0" damping=".2"/>
        <geom size=".1" pos="0 .02 .05"/></body></body>
  </worldbody>
  <actuator>
    <plugin name="discrete pid" plugin="mujoco.pid" joint="hinge" actdim="1"
      ctrlrange="-.3 .3"><config key="kp" value="2"/><config key="kd" value=".1"/>
      <config key="ki" value="3"/><config key="imax" value=".5"/></plugin>
    <plugin name="discrete pid, filter" plugin="mujoco.pid" joint="slide" dyntype="filter"
      dynprm=".05" actdim="3" actearly="true"><config key="kp" value="2"/>
      <config key="kd" value=".1"/><config key="ki" value="2"/>
      <config key="imax" value=".3"/><config key="slewmax" value="20"/></plugin>
    <general name="affine" joint="hinge" gaintype="affine" gainprm="1 .2 .3"
      biastype="affine" biasprm=".1 .3 -.2" ctrlrange="-.4 .4" forcerange="-.5 .5"/>
    <general name="filter" joint="hinge" dyntype="filter" dynprm=".05" gainprm="2"
      biastype="affine" biasprm="0 -2 -.1" actrange="-.4 .4"/>
    <general name="filterexact" joint="slide" dyntype="filterexact" dynprm=".1"
      actearly="true"/>
    <general name="integrator" joint="slide" dyntype="integrator" actrange="-.5 .5"
      actearly="true" gainprm="3"/>
    <position name="position" joint="hinge" kp="4" dampratio="1" timeconst=".1"/>
    <muscle name="muscle" joint="hinge" lengthrange="-1 1"/>
    <muscle name="muscle, force" joint="slide" lengthrange="-.4 .3" force="20"
      tausmooth=".4" vmax=".7" fvmax="1.4" lmax="1.8"/>
    <dcmotor name="dcmotor" joint="hinge" {_MOTOR} thermal="2 5 1.5 .004 25 20"
      inductance=".01 0" input="pos vel ff voltage" controller="2 .5 .1 20 .1 4"
      saturation="1 0 400"/>
    <dcmotor name="dcmotor, voltage" joint="slide" {_MOTOR} input="voltage"/>
    <pid name="pid" joint="slide" kp="3" kv=".2" ki="2" imax=".1" slewmax="2"/>
  </actuator>
</mujoco>"""
# Laws that need no tendons, sites or bodies.
JOINT_ACTUATORS = f"""
<mujoco>
  <option timestep=".004"/>
  <default><geom contype="0" conaffinity="0"/></default>
  <worldbody>
    <body><joint name="hinge" axis="0 1 .1" damping=".2" actuatorfrcrange="-3 3"/>
      <geom type="capsule" fromto="0 0 0 .3 0 0" size=".05"/>
      <body pos=".3 0 0"><joint name="ball" type="ball" damping=".1"/>
        <geom type="box" size=".1 .05 .07" pos="0 .02 .05"/></body></body>
  </worldbody>
  <actuator>
    <general name="affine" joint="hinge" gaintype="affine" gainprm="1 .2 .3"
      biastype="affine" biasprm=".1 .3 -.2" ctrlrange="-.4 .4" forcerange="-.5 .5"/>
    <general name="jointinparent" jointinparent="ball" gear="3 -2 1"/>
    <general name="filterexact" joint="ball" dyntype="filterexact" dynprm=".1"
      actearly="true" gear="1 2 3"/>
    <muscle name="muscle" joint="hinge" lengthrange="-1 1" force="2"/>
    <dcmotor name="dcmotor" joint="hinge" {_MOTOR} input="voltage"/>
    <pid name="pid" joint="hinge" kp="3" kv=".2" ki="2" imax=".1" slewmax="2"/>
  </actuator>
</mujoco>"""

# Motors for models that are attached to them.
ATTACHED = """
<mujoco>
  <option timestep=".004" integrator="implicitfast"/>
  <default><geom contype="0" conaffinity="0"/></default>
  <worldbody>
    <body><joint name="first" axis="0 1 .1" damping=".2"/>
      <geom type="capsule" fromto="0 0 0 .3 0 0" size=".05"/>
      <body pos=".3 0 0"><joint name="second" axis="0 1 0" damping=".1"/>
        <geom type="box" size=".1 .05 .07" pos="0 .02 .05"/></body></body>
  </worldbody>
  <actuator>
    <motor name="one" joint="first"/><motor name="two" joint="second"/>
    <motor name="three" joint="first"/><motor name="four" joint="second"/>
    <motor name="five" joint="first" gear="2"/>
  </actuator>
</mujoco>"""

# A lone free body, and a chain with actuators and a tendon whose forces depend on
# velocities; ellipsoids in wind.
INTEGRATORS = """
<mujoco>
  <option timestep=".005" integrator="{}" density="60" viscosity=".3" wind=".3 -.2 .1"/>
  <default><geom contype="0" conaffinity="0" fluidshape="ellipsoid"/></default>
  <worldbody>
    <body><joint type="free" name="lone" damping=".4" armature=".1"/>
      <geom type="ellipsoid" size=".1 .2 .3" pos=".05 .1 .02" euler="20 30 40"/></body>
    <body pos="2 0 0"><joint type="ball" name="ball" damping=".1 .05"/>
      <geom type="cylinder" size=".1 .2" pos=".1 .1 0" euler="30 0 0"/>
      <body pos=".2 .3 .1"><joint type="slide" name="slide" axis="1 1 0"/>
        <joint axis="0 1 2" name="hinge" frictionloss=".2" limited="true" range="-20 20"
          solimplimit=".8 .95 .4 .5 2"/>
        <geom type="box" size=".1 .2 .1"/></body></body>
  </worldbody>
  <tendon><fixed name="sum" damping=".5 .2" armature=".05"><joint joint="slide" coef="1"/>
    <joint joint="hinge" coef="-2"/></fixed></tendon>
  <actuator>
    <velocity joint="lone" kv="3" gear="1 2 3 .1 .2 .3"/>
    <velocity jointinparent="ball" kv="1" gear="3 -2 1"/>
    <general joint="hinge" gaintype="affine" gainprm="1 1 -1"/>
    <general joint="slide" dyntype="filter" dynprm=".05" biastype="affine"
      gainprm="20" biasprm=".1 -20 -3" actearly="true"/>
  </actuator>
</mujoco>"""

# Inertia boxes and ellipsoids in a moving fluid.
MEDIUM = """
<mujoco>
  <option timestep=".004" density="60" viscosity=".3" wind=".3 -.2 .1"/>
  <default><geom contype="0" conaffinity="0"/></default>
  <worldbody>
    <body><freejoint/>
      <geom type="ellipsoid" size=".1 .2 .3" pos=".05 .1 .02" euler="20 30 40"
        fluidshape="ellipsoid" fluidcoef="1 .3 1.2 .7 .6"/>
      <body pos=".4 0 0"><joint type="ball"/>
        <geom type="box" size=".1 .15 .05" pos=".1 .1 0" euler="30 0 0"/>
        <body pos=".2 .3 .1"><joint axis="0 1 2"/>
          <geom type="capsule" size=".05 .2" fluidshape="ellipsoid"/></body>
      </body></body>
  </worldbody>
</mujoco>"""

# Every sensor, on a robot that floats, touches the floor and has limits and a tendon.
_SITE_SENSORS = (
    *("accelerometer", "velocimeter", "gyro", "magnetometer", "force", "torque"),
    *("touch", "rangefinder"),
)
_FRAME_SENSORS = (
    *("framepos", "framequat", "framexaxis", "frameyaxis", "framezaxis"),
    *("framelinvel", "frameangvel", "framelinacc", "frameangacc"),
)
_OTHER_SENSORS = """
<jointvel name="jointvel, cutoff" joint="turn" cutoff=".1"/>
<jointpos joint="turn"/><jointvel joint="turn"/><jointactuatorfrc joint="turn"/>
<jointlimitpos joint="turn"/><jointlimitvel joint="turn"/><jointlimitfrc joint="turn"/>
<ballquat joint="ball"/><ballangvel joint="ball"/>
<tendonpos tendon="rope"/><tendonvel tendon="rope"/><tendonactuatorfrc tendon="rope"/>
<tendonlimitpos tendon="rope"/><tendonlimitvel tendon="rope"/>
<tendonlimitfrc tendon="rope"/><actuatorpos actuator="pull"/>
<actuatorvel actuator="pull"/><actuatorfrc actuator="pull"/>
<contact body1="arm" num="1" data="force torque dist pos normal linvel angvel"/>
<insidesite site="pad" objtype="site" objname="tip"/>
<distance geom1="cap" geom2="bob" cutoff="5"/><normal geom1="cap" geom2="bob" cutoff="5"/>
<fromto geom1="cap" geom2="bob" cutoff="5"/>
<subtreecom body="base"/><subtreelinvel body="base"/><subtreeangmom body="base"/>
<e_potential/><e_kinetic/><clock/>
"""


def sensors() -> str:
    """Return a robot with a sensor of each kind, named by its kind."""
    rows = [f'<{kind} site="pad"/>' for kind in _SITE_SENSORS]
    frame = 'objtype="site" objname="tip"'
    rows += [f"<{kind} {frame}/>" for kind in _FRAME_SENSORS]
    relative = f'{frame} reftype="xbody" refname="base"'
    rows += [
        f'<{kind} name="{kind}, relative" {relative}/>'
        for kind in ("framepos", "framequat", "framelinvel", "frameangvel")
    ]
    text = "".join(rows) + _OTHER_SENSORS
    return _SENSED.format(re.sub(r"<(\w+)\b(?! name=)", r'<\1 name="\1"', text))


_SENSED = """
<mujoco>
  <option timestep=".004" magnetic=".3 .2 -.5"/>
  <default><geom contype="0" conaffinity="0" solimp=".8 .95 .01 .5 2"/>
    <joint solimplimit=".8 .95 .4 .5 2"/></default>
  <worldbody>
    <geom name="floor" type="plane" size="1 1 1" contype="1"/>
    <geom name="wall" type="box" size=".1 2 2" pos="1.5 0 1" euler="0 10 20"/>
    <site name="hook" pos=".3 .2 .9"/>
    <geom name="bob" size=".1" pos="-.6 .3 .8"/>
    <body name="base" pos="0 0 .4" euler="10 20 5"><freejoint/>
      <geom type="box" size=".2 .1 .08"/>
      <body name="arm" pos=".25 0 0" euler="0 80 20">
        <joint name="ball" type="ball" damping=".1"/>
        <geom name="cap" type="capsule" size=".05 .15" conaffinity="1" friction=".6"
          fromto="0 0 0 .35 0 0"/>
        <site name="pad" size=".1" pos=".35 0 0" euler="0 -60 0"/>
        <body name="fore" pos=".1 0 .2"><joint name="turn" axis="0 1 1" limited="true"
            range="-20 30" stiffness="1"/>
          <geom type="cylinder" size=".04 .1"/>
          <site name="tip" pos=".05 .02 .03" euler="5 5 5"/></body></body></body>
  </worldbody>
  <tendon><spatial name="rope" stiffness="30" springlength=".2" limited="true"
    range="0 .7"><site site="hook"/><site site="tip"/></spatial></tendon>
  <actuator><motor name="turn" joint="turn" gear="2"/>
    <general name="pull" tendon="rope" dyntype="filter" dynprm=".05"/></actuator>
  <sensor>{}</sensor>
</mujoco>"""


def _random(model, seed, scale, speed, inputs=1.0):
    """Draw a moving state around the reference."""
    rng, q = np.random.default_rng(seed), model.qpos0.copy()
    mujoco.mj_integratePos(model, q, scale * rng.normal(size=model.nv), 1.0)
    return q, speed * rng.normal(size=model.nv), inputs


def _settled(model, q, count=3000):
    """Return a state at rest."""
    data = mujoco.MjData(model)
    data.qpos[:] = q
    for _ in range(count):
        mujoco.mj_step(model, data)
        data.qvel[:] *= 0.98
    return data.qpos.copy()


def moving(model):
    """Return states of robots without contacts and limits."""
    return {
        "reference, at rest": _random(model, 0, 0.0, 0.0),
        "reference, moving": _random(model, 1, 0.0, 1.0),
        "elsewhere, at rest": _random(model, 2, 0.5, 0.0),
        "moving": _random(model, 3, 0.5, 1.0),
    }


def driven(model):
    """Return states of actuators, also with inputs beyond their ranges."""
    return moving(model) | {"beyond ranges": _random(model, 4, 0.3, 0.5, 8.0)}


def touching(model):
    """Return states of spheres above a floor: a contact begins at 0.1 m above it, and
    the contact of the explicit pair 2 mm above that."""
    hair, still = 2e-5, np.zeros(6)

    def at(height, qd=still):
        return np.array([0, 0, height, 1.0, 0, 0, 0]), np.array(qd, float)

    rest = _settled(model, at(0.1)[0])
    lower = rest - 0.001 * np.eye(7)[2]
    spin, falling = [0, 0, 0, 0, 0, 4.0], [0.3, 0.1, -0.5, 0.2, 0.1, -0.3]
    return {
        "free flight": at(0.5, falling),
        "at rest": (rest, still),
        "sticking": (lower, 1e-3 * np.array(falling)),
        "sliding": (lower, np.array([3.0, 2.0, 0, 0.2, 0.1, 0.3])),
        "spinning": (lower, np.array(spin)),
        "rolling": (rest, np.array([0, 0, 0, 0.3, -0.2, 0.0])),
        "just before contact": at(0.1 + hair, falling),
        "just after": at(0.1 - hair, falling),
        "near the apex": at(0.1 - 2e-4, [1e-3, 0, 0.13, 0, 0, 0]),
    }


def adhering(model):
    """Return states of the same spheres on a floor that pulls and moves: at rest relative
    to the world, carried along, sliding, and beyond the margin, but within the gap."""
    data = mujoco.MjData(model)
    data.qpos[2] = 0.1
    for _ in range(400):
        mujoco.mj_step(model, data)
    place = data.qpos.copy()
    qd, push = data.qvel.copy(), np.array([0.3, 0.1, -0.3, 0.2, 0.1, -0.3])
    higher = lambda height: place + height * np.eye(7)[2]
    return {
        "free flight": (higher(0.4), push),
        "at rest": (place, np.zeros(6)),
        "carried": (place, qd),
        "sliding": (higher(-0.001), np.array([3.0, 2.0, 0, 0.2, 0.1, 0.3])),
        "within the gap": (higher(0.0035), push),
        "pulled back": (higher(0.001), -0.3 * push),
    }


def held(model):
    """Return states of balls on a floor that friction holds or not, and of an arm on one."""
    starts = [model.jnt_qposadr[k] + 2 for k in np.flatnonzero(model.jnt_type == 0)]

    def at(height, scale, qd=(1.0, 0.5, -0.3, 0.2, 0.1, -0.3)):
        q, speeds = model.qpos0.copy(), np.tile([0.4, -0.7, *qd], 3)[2:]
        q[starts] = height
        return q, scale * speeds[: model.nv]

    return {
        "free flight": at(0.3, 1.0),
        "at rest": at(0.0985, 0.0),
        "sticking": at(0.0985, 1e-3),
        "sliding": at(0.0985, 1.0),
        "spinning": at(0.0985, 1.0, (0, 0, 0, 0, 0, 4.0)),
        "rolling": at(0.0985, 1.0, (0.2, 0.1, 0, -1.0, 2.0, 0)),
        "just after contact": at(0.1 - 5e-4, 1.0),
    }


def meeting(model):
    """Return states of a free shape near a fixed one."""
    speeds = np.random.default_rng(8).normal(size=6)
    return {
        "apart": (_placed(model, 0, 0.01), 0.3 * speeds),
        "touching": (_placed(model, 1, -0.001), 0.1 * speeds),
        "deep": (_placed(model, 2, -0.02), 0.3 * speeds),
    }


def _placed(model, seed, dist):
    """Place a randomly rotated free body on a random ray from above, at a given
    distance from the fixed shape."""
    rng, data = np.random.default_rng(seed), mujoco.MjData(model)
    turn, ray = rng.normal(size=4), 0.4 * rng.normal(size=3) + np.eye(3)[2]
    low, high = 0.0, 2.0
    for _ in range(40):
        middle = 0.5 * (low + high)
        data.qpos[:3], data.qpos[3:] = middle * ray, turn / np.linalg.norm(turn)
        mujoco.mj_forward(model, data)
        near = data.ncon > 0 and np.min(data.contact.dist) < dist
        low, high = (middle, high) if near else (low, middle)
    return data.qpos.copy()


def limits(model):
    """Return states of a ball joint, a hinge and a slide."""
    ball = lambda angle: [
        np.cos(angle / 2),
        0.6 * np.sin(angle / 2),
        0.8 * np.sin(angle / 2),
        0,
    ]
    at = lambda angle, hinge, slide: np.array([*ball(angle), hinge, slide])
    qd = np.array([0.3, 0.2, -0.4, 0.5, 0.3])
    beyond = at(1.2, 0.7, 0.14)
    return {
        "neutral": (model.qpos0.copy(), np.zeros(5), 0.1),
        "held by friction": (_settled(model, at(0.5, 0.2, 0.05)), 1e-4 * qd, 0.0),
        "moving": (at(0.5, 0.3, 0.05), qd),
        "limits": (beyond, qd),
        "lower limits, at rest": (at(1.3, -0.5, -0.1), np.zeros(5)),
        "within the margin": (at(1.02, 0.2, 0.115), -0.1 * qd),
        "beyond force ranges": (at(0.5, 0.3, 0.05), qd, 20.0),
    }


def coupled(model):
    """Return states for equality constraints."""
    small = _random(model, 5, 1e-3, 1e-3)
    return {
        "reference, at rest": _random(model, 0, 0.0, 0.0),
        "settled": (_settled(model, model.qpos0), np.zeros(model.nv)),
        "nearly satisfied": small,
        "violated": _random(model, 2, 0.2, 0.0),
        "violated, moving": _random(model, 3, 0.2, 1.0),
    }


def strung(model):
    """Return states for tendons."""
    return {
        "reference, at rest": _random(model, 0, 0.0, 0.0, 0.1),
        "held by friction": (_settled(model, model.qpos0), 1e-4 * np.ones(3), 0.0),
        "moving": _random(model, 3, 0.4, 1.0),
        "limits": (np.array([-0.9, 0.9, 0.2]), np.array([-0.1, 0.3, 0.2])),
        "other side": (np.array([0.9, -0.9, -0.3]), np.array([0.2, -0.3, 0.2])),
        "beyond force ranges": _random(model, 4, 0.3, 0.5, 20.0),
    }


def sensed(model):
    """Return states of a robot with sensors: in the air, on the floor, beyond
    limits."""
    q, qd, _ = _random(model, 7, 0.1, 0.5)
    hinge = lambda angle, height: (
        q * (1 - np.eye(12)[11] - np.eye(12)[2])
        + (angle * np.eye(12)[11] + height * np.eye(12)[2])
    )
    return {
        "in the air": (hinge(0.1, 0.8), qd),
        "on the floor": (hinge(0.6, 0.43), qd),
        "at rest": (hinge(-0.5, 0.43), 0.0 * qd),
    }
