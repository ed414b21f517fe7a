"""Small MJCF models that together use most elements and attributes."""

MODELS = (
    """<mujoco model="arm">
  <compiler angle="degree" autolimits="true"/>
  <option timestep="0.004" integrator="implicitfast" cone="elliptic" impratio="2" gravity="0 0 -9.8"
    density="1.2" viscosity="1e-5" wind="0 1 0" solver="Newton" iterations="50" tolerance="1e-8"/>
  <default>
    <joint damping="0.1" armature="0.01" frictionloss="0.02"/>
    <geom friction="0.9 0.01 0.001" condim="4" solref="0.02 1" solimp="0.9 0.95 0.001 0.5 2"/>
    <default class="tip"><geom rgba="1 0 0 1" margin="0.002" gap="0.001" priority="1"/></default>
  </default>
  <worldbody>
    <geom name="floor" type="plane" size="2 2 0.1" contype="1" conaffinity="1"/>
    <site name="origin" pos="0 0 1"/>
    <body name="upper" pos="0 0 1" childclass="tip">
      <joint name="shoulder" type="hinge" axis="0 1 0" range="-90 90" stiffness="2" springref="3"/>
      <geom name="upper" type="capsule" fromto="0 0 0 0 0 -0.3" size="0.04" density="800"/>
      <body name="lower" pos="0 0 -0.3" euler="0 10 0">
        <joint name="elbow" axis="0 1 0" limited="true" range="-100 20" ref="5" margin="0.1"/>
        <geom name="lower" type="box" size="0.03 0.03 0.1" pos="0 0 -0.1" mass="0.4"/>
        <site name="hand" pos="0 0 -0.2" size="0.01" type="sphere"/>
      </body>
    </body>
  </worldbody>
  <contact><exclude body1="upper" body2="lower"/>
    <pair geom1="floor" geom2="lower" condim="3" friction="1 1 0.1 0.1 0.1"/></contact>
  <actuator>
    <motor name="m" joint="shoulder" gear="20" ctrllimited="true" ctrlrange="-1 1"/>
    <position name="p" joint="elbow" kp="30" kv="1" forcerange="-5 5"/>
    <velocity joint="elbow" kv="0.1"/>
    <general joint="shoulder" dyntype="filter" dynprm="0.1" gainprm="2" biastype="affine"
      biasprm="0 -1 -0.1"/>
  </actuator>
  <sensor>
    <jointpos joint="elbow"/><jointvel joint="shoulder"/><framepos objtype="site" objname="hand"/>
    <actuatorfrc actuator="m"/><touch site="hand"/><accelerometer site="hand" noise="0.1"/>
    <gyro site="hand"/><rangefinder site="origin" cutoff="3"/>
    <framequat objtype="body" objname="lower" reftype="site" refname="origin"/>
  </sensor>
  <keyframe><key name="home" time="1" qpos="0.1 0.2" qvel="0 0" ctrl="0 0 0 0"
    act="0.3"/></keyframe>
</mujoco>""",
    """<mujoco>
  <option><flag contact="enable" eulerdamp="disable" energy="enable"/></option>
  <worldbody>
    <light pos="0 0 3"/><camera name="c" pos="0 -2 1" xyaxes="1 0 0 0 0 1"/>
    <geom type="plane" size="0 0 1"/>
    <body name="a" pos="0 0 1" gravcomp="0.5"><freejoint name="root"/>
      <inertial pos="0 0 0" mass="1" diaginertia="0.1 0.1 0.1"/>
      <geom type="sphere" size="0.1"/></body>
    <body name="b" pos="1 0 1" quat="1 0 0.1 0"><joint name="ball" type="ball" range="0 1"
      limited="true"/>
      <inertial pos="0 0 0.1" mass="1" fullinertia="0.1 0.2 0.15 0.01 0 0"/>
      <geom type="ellipsoid" size="0.1 0.2 0.1" fluidshape="ellipsoid"/></body>
    <body name="c" pos="2 0 1" axisangle="0 0 1 30"><joint name="slide" type="slide" axis="1 0 0"/>
      <geom type="cylinder" size="0.1 0.2"/></body>
    <body name="mocap" mocap="true" pos="0 0 2"><geom type="box" size="0.1 0.1 0.1" contype="0"
      conaffinity="0"/></body>
    <frame pos="0 0 3" euler="0 0 90"><body name="d"><joint type="hinge"/><geom
      size="0.05"/></body></frame>
    <replicate count="2" offset="0.3 0 0"><body pos="0 3 1"><joint type="slide"/><geom
      size="0.05"/></body></replicate>
  </worldbody>
  <equality>
    <connect body1="a" body2="b" anchor="0 0 0.2"/>
    <weld body1="c" body2="mocap" relpose="0 0 0 1 0 0 0" torquescale="2"/>
    <joint joint1="slide" polycoef="0 1 0 0 0" solref="0.03 1"/>
  </equality>
</mujoco>""",
    """<mujoco>
  <worldbody>
    <site name="s0" pos="0 0 2"/><site name="s3" pos="0.5 0 2"/>
    <body pos="0 0 1"><joint name="x" type="slide" axis="0 0 1"/><joint name="y" type="hinge"
      axis="0 1 0"/>
      <geom name="wrap" type="sphere" size="0.1"/><geom name="rod" type="cylinder" size="0.05 0.2"/>
      <site name="s1" pos="0 0 0.2"/><site name="s2" pos="0.2 0 0"/><site name="inside"
        pos="0 0.01 0"/>
    </body>
  </worldbody>
  <tendon>
    <spatial name="string" limited="true" range="0 1.5" stiffness="3" damping="0.1"
      springlength="0.2 0.4"
      frictionloss="0.1" width="0.01">
      <site site="s0"/><geom geom="wrap" sidesite="inside"/><site site="s1"/>
      <pulley divisor="2"/><site site="s3"/><site site="s2"/></spatial>
    <fixed name="linear" armature="0.01" damping="0.1"><joint joint="x" coef="1"/><joint
      joint="y" coef="-0.5"/></fixed>
  </tendon>
  <equality><tendon tendon1="string" tendon2="linear" polycoef="0.1 1 0 0 0"/></equality>
  <actuator>
    <muscle name="muscle" tendon="string" ctrllimited="true" ctrlrange="0 1" lengthrange="0.1 2"
      timeconst="0.01 0.04" force="100"/>
    <cylinder tendon="linear" timeconst="0.1" area="0.01" bias="0 -1 0"/>
    <damper joint="x" kv="2" ctrlrange="0 1"/>
    <intvelocity joint="y" kp="5" actrange="-1 1"/>
    <position site="s1" refsite="s0" gear="0 0 1 0 0 0" kp="10"/>
    <motor cranksite="s1" slidersite="s0" cranklength="0.5"/>
  </actuator>
  <sensor><tendonpos tendon="string"/><tendonvel tendon="linear"/><subtreecom body="world"/><clock/>
    <distance geom1="wrap" geom2="rod" cutoff="1"/></sensor>
</mujoco>""",
    """<mujoco>
  <asset>
    <mesh name="tet" vertex="0 0 0 1 0 0 0 1 0 0 0 1" scale="0.2 0.2 0.2" inertia="convex"/>
    <mesh name="file" file="cube.obj"/>
    <hfield name="hill" nrow="3" ncol="3" size="1 1 0.3 0.1" elevation="0 0 0 0 1 0 0 0 0"/>
    <material name="m" rgba="0.5 0.5 0.5 1" specular="0.3"/>
    <texture name="t" type="2d" builtin="checker" width="8" height="8" rgb1="0 0 0" rgb2="1 1 1"/>
  </asset>
  <worldbody>
    <geom type="hfield" hfield="hill" material="m"/>
    <body pos="0 0 1"><freejoint/><geom type="mesh" mesh="tet" condim="1"/></body>
    <body pos="0 1 1"><freejoint/><geom type="mesh" mesh="file"/></body>
  </worldbody>
  <include file="part.xml"/>
</mujoco>""",
    """<mujoco><size memory="1M" nkey="2" nuser_body="1"/>
  <statistic extent="1" center="0 0 0"/><visual><global fovy="30"/></visual>
  <compiler inertiafromgeom="true" boundmass="0.01" boundinertia="1e-4" settotalmass="3" 
    balanceinertia="true" discardvisual="true" eulerseq="xyz"/>
  <custom><numeric name="n" data="1 2"/><text name="t" data="x"/></custom>
  <worldbody><body><joint/><geom size="0.1"/><body><geom size="0.1"
    pos="1 0 0"/></body></body></worldbody>
  <extension/></mujoco>""",
)
ASSETS = {
    "cube.obj": (
        b"v 0 0 0\nv 1 0 0\nv 0 1 0\nv 0 0 1\nv 1 1 1\n"
        b"f 1 2 3\nf 1 2 4\nf 2 3 4\nf 1 3 5\n"
    ),
    "part.xml": (
        b'<mujoco><worldbody><geom name="extra" size="0.1" pos="0 0 -3"/>'
        b"</worldbody></mujoco>"
    ),
}
