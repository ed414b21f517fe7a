"""Robots with sensors, and what MuJoCo C measures."""

import functools as ft

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from trajectories import converged

from eqsim import Generalized, load_mjcf, State


# Two trees, a link without joints, shapes of every kind, limits, tendons, actuators.
ROBOT = """
<mujoco>
  <option timestep=".004" magnetic=".3 .2 -.5" cone="{cone}"/>
  <worldbody>
    <geom name="floor" type="plane" size="1 1 1" contype="3" conaffinity="3"/>
    <geom name="egg" type="ellipsoid" size=".1 .2 .3" pos=".4 .3 .8" contype="0"
      conaffinity="0"/>
    <site name="fixed" pos=".1 .2 .3" euler="10 20 30"/>
    <body name="base" pos="0 0 .3" euler="10 20 5"><freejoint name="root"/>
      <geom name="box" type="box" size=".2 .1 .08" contype="2" conaffinity="0"/>
      <site name="imu" pos=".05 .02 .1" euler="30 -20 10"/>
      <body name="plate" pos=".2 .1 -.1" euler="0 30 10">
        <geom name="ball" size=".15" condim="6"/>
        <site name="pad" size=".1" pos=".05 0 -.1"/>
        <body name="arm" pos=".25 0 0" euler="0 0 20">
          <joint name="shoulder" type="ball" limited="true" range="0 20" damping=".1"/>
          <geom name="cap" type="capsule" size=".05 .15" condim="4"/>
          <site name="elbow" pos="0 .05 .1" euler="5 5 5"/>
          <body name="fore" pos=".1 0 .2">
            <joint name="turn" axis="0 1 1" limited="true" range="-20 30" stiffness="1"/>
            <joint name="slide" type="slide" axis="1 0 0" limited="true" range="-.1 .05"
              margin=".02"/>
            <geom name="tin" type="cylinder" size=".04 .1" contype="2" conaffinity="0"/>
            <site name="tip" pos=".01 .02 .03" type="box" size=".1 .1 .2"/>
          </body>
        </body>
      </body>
    </body>
    <body name="pole" pos="1 0 1"><joint name="swing" axis="1 0 0"/>
      <geom name="bob" size=".1" pos="0 0 -.3"/><site name="pivot"/></body>
  </worldbody>
  <tendon>
    <fixed name="sum"><joint joint="turn" coef="2"/><joint joint="slide" coef="-1"/></fixed>
    <spatial name="cord" stiffness="30" springlength=".5" limited="true" range="0 .9">
      <site site="imu"/><site site="pivot"/></spatial>
  </tendon>
  <actuator>
    <motor name="motor" joint="turn" gear="2"/><position name="servo" joint="slide" kp="20"/>
    <motor name="twist" joint="shoulder" gear="1 2 3"/><motor name="pull" tendon="cord"/>
  </actuator>
  <sensor>{sensors}</sensor>
</mujoco>"""

# Links that are held together, on both sides and to the world; a link that cannot move.
COUPLED = """
<mujoco>
  <default><geom contype="0" conaffinity="0"/></default>
  <worldbody>
    <body name="stand" pos=".2 .1 .5" euler="10 20 0">
      <geom size=".1" mass="2" pos=".1 .05 0"/><site name="mount" euler="10 0 5"/>
      <body name="a" pos=".1 0 0" euler="0 20 30"><joint name="j" axis="0 1 0"/>
        <geom type="box" size=".1 .2 .05"/><site name="a" pos="0 .1 0" euler="20 0 0"/>
        <body name="b" pos=".3 0 0" euler="0 0 20"><joint name="k"/>
          <geom type="box" size=".1 .02 .05" pos=".1 0 0"/>
          <site name="b" pos="0 .1 .02" euler="20 0 50"/></body></body></body>
    <body name="c" pos="1 0 .3" euler="10 0 40"><freejoint/>
      <geom type="box" size=".1 .2 .05"/><site name="c" pos="0 .1 0" euler="20 0 0"/>
      <body name="d" pos=".2 0 0" euler="0 30 20"><geom size=".1"/><site name="d"/>
        <body name="e" pos="0 .1 0"><joint type="ball"/><geom size=".05"/>
          <site name="e"/></body></body></body>
    <body name="f" pos="1 1 .4"><joint type="ball"/><geom size=".1" pos="0 .1 0"/>
      <site name="f" pos=".1 .1 .1" euler="20 30 0"/></body>
  </worldbody>
  <equality>
    <connect body1="b" body2="c" anchor=".1 .2 .1"/>
    <weld body1="f" body2="e" torquescale=".3" solref=".05 1"/>
    <weld site1="a" site2="c" torquescale="2"/>
    <connect site1="mount" site2="d"/>
    <joint joint1="j" joint2="k" polycoef=".1 .5 0 0 0"/>
  </equality>
  <sensor>{sensors}</sensor>
</mujoco>"""

# Tendons with everything that pulls, around shapes and over pulleys.
STRUNG = """
<mujoco>
  <default><geom contype="0" conaffinity="0"/></default>
  <worldbody>
    <site name="hook" pos=".3 .2 2"/><geom name="peg" size=".2" pos=".5 0 1.5"/>
    <body pos="0 0 1"><joint name="j" axis="0 1 .2"/><geom size=".1" pos=".3 0 0"/>
      <site name="a" pos=".2 .1 0" euler="10 20 0"/>
      <geom name="drum" type="cylinder" size=".1 .2" pos=".5 .1 0" euler="80 10 0"/>
      <body pos="1 0 0"><joint axis="0 1 0"/><joint axis="1 0 0" type="slide"/>
        <geom size=".1"/><site name="b" pos=".1 0 .3"/><site name="c" pos=".1 .2 -.3"/>
      </body></body>
    <body pos="1 1 1"><freejoint/><geom size=".1"/><site name="d" pos=".1 .1 0"/></body>
  </worldbody>
  <tendon>
    <spatial name="t" stiffness="30 2" springlength=".5" damping="2 .3" limited="true"
      range="0 1.5" frictionloss="2">
      <site site="hook"/><geom geom="peg"/><site site="b"/><pulley divisor="2"/>
      <site site="a"/><geom geom="drum"/><site site="c"/><site site="d"/></spatial>
    <spatial name="u" frictionloss="3" damping="1"><site site="a"/><site site="d"/>
      <geom geom="drum" sidesite="b"/><site site="c"/></spatial>
    <spatial name="v" limited="true" range="20 30"><site site="c"/><site site="hook"/>
    </spatial>
  </tendon>
  <equality><tendon tendon1="t" tendon2="v" polycoef=".1 .5 .2 0 0"/></equality>
  <actuator><motor tendon="v" gear="2"/><position tendon="v" kp="20" gear="3"/></actuator>
  <sensor>{sensors}</sensor>
</mujoco>"""

FRAMES = ("framepos", "framequat", "framexaxis", "frameyaxis", "framezaxis")
RATES = ("framelinvel", "frameangvel")
ACCELERATIONS = ("framelinacc", "frameangacc")
OBJECTS = (
    ("body", "fore"),
    ("xbody", "arm"),
    ("geom", "ball"),
    ("site", "tip"),
    ("site", "fixed"),
    ("xbody", "pole"),
    ("xbody", "world"),
    ("geom", "floor"),
)


def rows(kinds, attribute, objects):
    """One sensor of each kind at each object."""
    return [f'<{kind} {attribute}="{name}"/>' for kind in kinds for name in objects]


def frame_rows():
    """Frames of all sorts of objects, in the world and against all sorts of others."""
    out = []
    for kind, name in OBJECTS:
        own = f'objtype="{kind}" objname="{name}"'
        out += [f"<{each} {own}/>" for each in (*FRAMES, *RATES, *ACCELERATIONS)]
        for other, reference in OBJECTS[:4]:
            pair = f'{own} reftype="{other}" refname="{reference}"'
            out += [f"<{each} {pair}/>" for each in (FRAMES[0], *RATES, *FRAMES[1:3])]
    return out


def joint_rows():
    """Joints, tendons, actuators."""
    joints = ("jointpos", "jointvel", "jointactuatorfrc")
    limits = ("jointlimitpos", "jointlimitvel", "jointlimitfrc")
    tendons = ("tendonpos", "tendonvel", "tendonactuatorfrc")
    ends = ("tendonlimitpos", "tendonlimitvel", "tendonlimitfrc")
    actuators = ("actuatorpos", "actuatorvel", "actuatorfrc")
    return [
        *rows((*joints, *limits), "joint", ("turn", "slide")),
        *rows(("ballquat", "ballangvel", *limits), "joint", ("shoulder",)),
        *rows(tendons, "tendon", ("sum", "cord")),
        *rows(ends, "tendon", ("cord",)),
        *rows(actuators, "actuator", ("motor", "servo", "twist", "pull")),
    ]


def site_rows():
    """Sites of links that move and of links that do not."""
    inertial = ("accelerometer", "velocimeter", "gyro", "magnetometer")
    forces = ("force", "torque", "touch")
    moving = ("imu", "pad", "elbow", "tip", "pivot")
    every = "dist dir origin point normal depth"
    return [
        *rows(inertial, "site", (*moving, "fixed")),
        *rows(forces, "site", moving),
        *(f'<rangefinder site="{site}" data="{every}"/>' for site in moving),
        '<rangefinder site="fixed"/>',
        '<rangefinder site="tip" data="normal"/>',
        '<insidesite site="tip" objtype="xbody" objname="fore"/>',
        '<insidesite site="pad" objtype="site" objname="imu"/>',
    ]


def contact_rows():
    """Every sort of match and reduction."""
    matches = ("", 'body1="base"', 'body2="plate"', 'subtree1="base"')
    matches += ('subtree2="plate" body1="world"', 'geom1="floor" body2="base"')
    matches += ('site="tip"', 'site="tip" body2="world"', 'body1="arm" geom2="cap"')
    every = "found force torque dist pos normal tangent"
    out = []
    for match in matches:
        for reduce in ("none", "mindist", "maxforce", "netforce"):
            data = every if reduce == "netforce" else f"{every} linvel angvel"
            out.append(f'<contact {match} reduce="{reduce}" num="3" data="{data}"/>')
    return out


def global_rows():
    """Subtrees, distances, energies, time."""
    subtrees = ("subtreecom", "subtreelinvel", "subtreeangmom")
    return [
        *rows(subtrees, "body", ("world", "base", "arm", "pole")),
        '<distance geom1="floor" geom2="tin" cutoff="2"/>',
        '<normal geom1="cap" geom2="ball" cutoff="2"/>',
        '<fromto geom1="cap" body2="pole" cutoff="2"/>',
        '<fromto body1="base" geom2="floor" cutoff="2"/>',
        '<distance body1="base" geom2="floor" cutoff=".01"/>',
        "<e_potential/><e_kinetic/><clock/>",
    ]


@ft.cache
def robot(sensors, cone="pyramidal"):
    """`ROBOT` with some sensors, here and in MuJoCo."""
    text = ROBOT.format(sensors="".join(sensors), cone=cone)
    return load_mjcf(text), converged(mujoco.MjModel.from_xml_string(text))


def measured(data):
    """What eqsim reads of a `mujoco.MjData`: state, controls, external forces, time."""
    names = ("qpos", "qvel", "act")
    state = State(*(jnp.asarray(getattr(data, name)) for name in names))
    outside = np.concatenate(
        [data.xfrc_applied[1:, 3:], data.xfrc_applied[1:, :3]], axis=1
    )
    return state, jnp.asarray(data.ctrl), jnp.asarray(outside), jnp.asarray(data.time)


def errors(sys, model, states, pipeline=Generalized()):
    """The largest error of each sensor, relative where values exceed 1."""
    sensors = jax.jit(lambda *args: pipeline.sensors(sys, *args))
    worst = dict.fromkeys(sys.sensors.names, 0.0)
    for data in states:
        mujoco.mj_forward(model, data)
        found, start = sensors(*measured(data)), 0
        for index, name in enumerate(sys.sensors.names):
            size = model.sensor_dim[index]
            expected = data.sensordata[start : start + size]
            start += size
            assert found[name].shape == expected.shape, name
            error = np.max(np.abs(found[name] - expected), initial=0.0)
            largest = max(1.0, np.max(np.abs(expected), initial=0.0))
            worst[name] = max(worst[name], float(error / largest))
        assert start == model.nsensordata
    return worst


def states(model, count, low=0.1, seed=0):
    """States of `ROBOT` in which some shapes touch, with external forces."""
    rng, out = np.random.default_rng(seed), []
    for _ in range(count):
        data = mujoco.MjData(model)
        mujoco.mj_integratePos(model, data.qpos, 0.5 * rng.normal(size=model.nv), 1.0)
        data.qpos[2] = low + 0.15 * rng.random()
        data.qvel[:] = rng.normal(size=model.nv)
        data.ctrl[:] = rng.normal(size=model.nu)
        data.xfrc_applied[1:] = rng.normal(size=(model.nbody - 1, 6))
        data.time = 1.5
        out.append(data)
    return out
