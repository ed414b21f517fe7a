"""Robots with every kind of actuator, as MJCF, and their activations in MuJoCo."""

import numpy as np

from eqsim.io.mjcf._read_actuators import mujoco_activations


_LIMB = """
<body pos="0 0 1"><freejoint name="free"/><geom type="box" size=".1 .2 .1"/>
  <site name="hip" pos=".1 0 .1" quat="1 .2 .3 .1"/>
  <body pos=".2 0 0"><joint name="hinge" axis="0 1 0" {hinge}/>
    <geom type="capsule" fromto="0 0 0 .3 0 0" size=".03"/>
    <site name="knee" pos=".1 0 .1" quat="1 -.2 .3 .5"/>
    <body pos=".3 0 0"><joint name="ball" type="ball" {ball}/>
      <geom type="capsule" fromto="0 0 0 .3 0 0" size=".03"/>
      <site name="toe" pos=".1 .2 .1" quat=".3 -.2 .3 .5"/></body></body>
  <body pos="-.2 0 0"><joint name="slide" type="slide" axis="1 1 0" {slide}/>
    <geom type="capsule" fromto="0 0 0 -.3 0 0" size=".03"/>
    <site name="tail" pos=".1 .1 .1" quat="1 -.2 .3 -.5"/></body>
</body>
"""
_ROBOT = """
<mujoco><option timestep=".004" integrator="{integrator}"{groups}>
<flag contact="disable" actuation="{actuation}"/></option>
<extension><plugin plugin="mujoco.pid"/></extension>
<worldbody><site name="world" pos=".1 .2 .3" quat=".3 .4 .5 .6"/>{limb}</worldbody>
{tendon}<actuator>{actuators}</actuator></mujoco>
"""
_TENDON = """
<tendon><fixed name="fixed"><joint joint="hinge" coef="2"/>
  <joint joint="slide" coef="-1"/></fixed>
<spatial name="string"><site site="world"/><site site="hip"/><site site="toe"/></spatial>
<fixed name="weak" actuatorfrcrange="-.3 .2"><joint joint="hinge" coef="1"/></fixed>
</tendon>
"""
_AFFINE = 'biastype="affine" biasprm=".1 .3 -.2"'
_MOTOR = (
    'motorconst=".5" resistance="2" cogging=".1 6 .3" '
    'lugre="20 .1 .2 .4 .1" thermal="2 5 1.5 .004 25 20"'
)


def discrete_pid(joint, words="", **settings):
    """A servo of the plugin `mujoco.pid`."""
    states = ("ki" in settings) + ("slewmax" in settings) + ("dyntype" in words)
    config = [f'<config key="{k}" value="{x}"/>' for k, x in settings.items()]
    return (
        f'<plugin plugin="mujoco.pid" joint="{joint}" actdim="{states}" {words}>'
        f"{''.join(config)}</plugin>"
    )


FILES = {
    "joints": (
        f'<motor joint="free" gear="1 2 3 4 5 6"/>'
        f'<motor jointinparent="free" gear="1 2 3 4 5 6"/>'
        f'<position joint="ball" gear="1 2 3" kp="3" kv=".1"/>'
        f'<intvelocity jointinparent="ball" gear=".1 -.2 .3" kp="9" actrange="-9 9"/>'
        f'<general joint="hinge" gear="2" gaintype="affine" gainprm="1 .2 .3" '
        f'{_AFFINE} damping=".1 .2 .3" armature=".2"/>'
        f'<position joint="slide" kp="5" timeconst=".1" damping=".3"/>'
    ),
    "sites": (
        f'<general site="hip" gear="1 2 3 4 5 6"/>'
        f'<general site="toe" refsite="knee" gear="1 2 3 0 0 0" {_AFFINE}/>'
        f'<position site="toe" refsite="tail" gear="0 0 0 1 2 3" kp="2"/>'
        f'<intvelocity site="tail" refsite="world" gear="0 0 0 1 -2 1" kp="2" '
        f'actrange="-20 20"/>'
        f'<general site="toe" refsite="world" gear="1 2 3 1 -2 1" {_AFFINE}/>'
        f'<orientation site="toe" refsite="tail" kp="3" kv=".2" forcerange="0 2"/>'
        f'<orientation joint="ball" kp="3" kv=".2" input="quat"/>'
    ),
    "cranks": (
        f'<general cranksite="toe" slidersite="hip" cranklength="2.5" gear="1.5" '
        f"{_AFFINE}/>"
        f'<general cranksite="toe" slidersite="hip" cranklength=".01" {_AFFINE}/>'
    ),
    "tendons": (
        f'<general tendon="fixed" gear="2" {_AFFINE}/>'
        f'<general tendon="string" gear="-1.5" {_AFFINE} dyntype="filterexact" '
        f'dynprm=".1" actearly="true"/>'
        f'<muscle tendon="string" lengthrange=".5 2"/>'
        f'<position tendon="fixed" kp="2" damping=".1 .2 .3"/>'
        f'<motor tendon="weak" gear="2"/><motor tendon="weak" gear="-1"/>'
    ),
    "muscles": (
        '<muscle joint="hinge" lengthrange="-1 1"/>'
        '<muscle joint="slide" lengthrange="-.4 .3" force="20" tausmooth=".4" '
        'vmax=".7" fvmax="1.4" lmax="1.8"/>'
        '<general joint="hinge" gaintype="muscle" gainprm=".5 1.2 9 1 .4 1.5 2 1 1.2" '
        'biastype="muscle" biasprm=".6 1.1 7 1 .4 1.7 2 1 1.2" lengthrange="-1 1"/>'
    ),
    "dc_motors": (
        f'<dcmotor joint="hinge" motorconst=".5" resistance="2"/>'
        f'<dcmotor joint="slide" {_MOTOR} inductance=".01 0" input="voltage"/>'
        f'<dcmotor joint="hinge" {_MOTOR} input="pos vel ff voltage" '
        f'controller="2 .5 .1 20 .1 4" saturation="1 0 20"/>'
        f'<dcmotor joint="slide" {_MOTOR} input="none"/>'
    ),
    "pids": (
        '<pid joint="hinge" kp="3" kv=".2" ki="2" imax=".1" slewmax="2"/>'
        '<pid joint="ball" gear="1 2 1" kp="3" kv=".2" ki="2" slewmax="5"/>'
        '<pid joint="slide" kp="3" input="vel ff" velrange="-1 1"/>'
    ),
    "discrete_pids": (
        discrete_pid("hinge", 'ctrlrange="-.4 .9"', kp=3, ki=20, kd=0.2, imax=0.3)
        + discrete_pid("hinge", 'forcerange="-.5 .4"', kp=3, ki=-2, slewmax=2)
        + discrete_pid(
            "slide",
            'dyntype="integrator" actearly="true" actrange="-.4 .5"',
            **{"kp": 2, "ki": 9, "kd": 0.1, "imax": 0.2, "slewmax": 3},
        )
        + discrete_pid("slide", 'dyntype="filterexact" dynprm=".1"', kp=2, slewmax=1)
        + discrete_pid("ball", 'gear="1 2 1"', kd=0.1)
        + '<pid joint="slide" kp="3" ki="1" slewmax="2"/>'
    ),
    "passive": '<motor joint="hinge" gear="9"/><motor joint="slide" gear="5"/>',
    "groups": (
        f'<motor joint="hinge" group="1"/><dcmotor joint="slide" {_MOTOR} group="1"/>'
        f'<general joint="slide" group="2" {_AFFINE} dyntype="integrator"/>'
    ),
}
_PASSIVE = {
    "hinge": 'stiffness="3 1 .2" damping=".03 .02 .01" actuatorfrcrange="-2 1"',
    "ball": 'stiffness=".2 .1 .05" damping=".01 .02 .003"',
    "slide": 'actuatorgravcomp="true" actuatorfrcrange="-1 1" springref=".2"',
}
ADHESION = """
<mujoco><option timestep=".004"/>
<worldbody><geom type="plane" size="1 1 1" margin=".01"/>
  <body name="foot" pos="0 0 .1"><freejoint/><geom size=".1"/>
    <geom size=".1" pos=".3 0 .005"/>
    <body name="hand" pos=".5 0 0"><joint/><geom size=".1"/></body></body></worldbody>
<actuator><adhesion body="foot" ctrlrange="0 1" gain="5"/>
  <adhesion body="hand" ctrlrange="0 1" gain="20"/>
  <adhesion body="world" ctrlrange="0 1" gain="2"/></actuator></mujoco>
"""


def text(name, integrator, off=""):
    """A robot by the name of its actuators.

    **Arguments:** `off`: the groups that are switched off, or "all".
    """
    attributes = dict.fromkeys(_PASSIVE, "") | (_PASSIVE if name == "passive" else {})
    limb = _LIMB.format(**attributes)
    if name == "passive":
        limb = limb.replace("<body pos", '<body gravcomp=".7" pos')
    if name == "muscles":
        limb = limb.replace('<freejoint name="free"/>', "").replace(
            '<joint name="ball" type="ball" />', ""
        )
    return _ROBOT.format(
        integrator=integrator,
        groups=f' actuatorgroupdisable="{off}"' if off.isdigit() else "",
        actuation="disable" if off == "all" else "enable",
        limb=limb,
        tendon=_TENDON if name == "tendons" else "",
        actuators=FILES[name],
    )


def set_activations(data, sys, act):
    """Set the activations of MuJoCo, and a time after the start if servos have started."""
    places = mujoco_activations(sys.actuators)
    data.act[:] = np.asarray(act)[places]
    data.time = float(np.any(np.delete(np.asarray(act), places) > 0))
