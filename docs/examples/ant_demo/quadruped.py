"""A quadruped of the kind in MuJoCo Menagerie, and a search for its gait.

Twelve position servos with force limits, reflected rotor inertia and dry friction, elliptic
friction cones, an IMU and a keyframe. The gait is a trot: diagonal legs move together, and
each foot follows a straight line on the ground and a half sine in the air. The
cross-entropy method finds its five parameters.
"""

import time
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

import eqsim


LINK = 0.21
"""Length of thigh and calf, m."""
SKIP, DURATION = 5, 5.0
"""Time steps per control step; duration of a walk, s."""
NAMES = ("step length, m", "frequency, Hz", "lift, m", "height, m", "offset, m")
LOW, HIGH = (0.02, 1.0, 0.02, 0.22, -0.04), (0.20, 4.0, 0.10, 0.34, 0.04)
"""Parameters of a gait and their range. The height is that of the hips above the ground,
the offset that of the feet in front of the hips."""
_LEGS = {"FR": (1, -1), "FL": (1, 1), "RR": (-1, -1), "RL": (-1, 1)}
_JOINTS = ("abduction", "hip", "knee")


def _leg(name: str, front: int, left: int) -> str:
    return f"""
    <body pos="{0.19 * front} {0.05 * left} 0">
      <joint name="{name}_abduction" class="abduction"/>
      <geom class="motor" pos="0 {0.02 * left} 0" zaxis="1 0 0"/>
      <body pos="0 {0.08 * left} 0">
        <joint name="{name}_hip" class="hip"/>
        <geom class="motor" zaxis="0 1 0"/>
        <geom class="limb" size=".022" fromto="0 0 0 0 0 -{LINK}"/>
        <body pos="0 0 -{LINK}">
          <joint name="{name}_knee" class="knee"/>
          <geom class="limb" size=".014" fromto="0 0 0 0 0 -{LINK}" mass=".15"/>
          <geom class="foot" pos="0 0 -{LINK}"/>
        </body>
      </body>
    </body>"""


_SERVOS = "".join(
    f'<position name="{leg}_{joint}" joint="{leg}_{joint}" inheritrange="1"/>'
    for leg in _LEGS
    for joint in _JOINTS
)
_STAND = "0 .9 -1.8 " * 4
MODEL = f"""
<mujoco model="quadruped">
  <compiler angle="radian"/>
  <option timestep="0.004" integrator="implicitfast" cone="elliptic" impratio="10"/>
  <default>
    <geom contype="0" conaffinity="0"/>
    <joint damping=".5" armature=".01" frictionloss=".1"/>
    <position kp="60" forcerange="-24 24"/>
    <default class="abduction"><joint axis="1 0 0" range="-.86 .86"/></default>
    <default class="hip"><joint axis="0 1 0" range="-.7 4.5"/></default>
    <default class="knee"><joint axis="0 1 0" range="-2.8 -.9"/></default>
    <default class="motor"><geom type="cylinder" size=".045 .025" mass=".5"/></default>
    <default class="limb"><geom type="capsule" mass=".4"/></default>
    <default class="foot">
      <geom type="sphere" size=".024" mass=".06" contype="1" conaffinity="1"
        friction=".8" solimp=".015 1 .03"/>
    </default>
  </default>
  <worldbody>
    <geom type="plane" size="20 20 .1" contype="1" conaffinity="1"/>
    <body name="trunk" pos="0 0 .3">
      <freejoint/>
      <geom type="box" size=".2 .06 .05" mass="5.5"/>
      <geom type="box" size=".04 .05 .035" pos=".23 0 .02" mass=".3"/>
      <site name="imu"/>
      {"".join(_leg(name, *place) for name, place in _LEGS.items())}
    </body>
  </worldbody>
  <actuator>{_SERVOS}</actuator>
  <sensor><gyro site="imu"/><accelerometer site="imu"/></sensor>
  <keyframe><key name="home" qpos="0 0 .3 1 0 0 0 {_STAND}" ctrl="{_STAND}"/></keyframe>
</mujoco>"""


class Walk(NamedTuple):
    """Result of a search.

    - `gait`: parameters of the best gait, in the order of `NAMES`.
    - `q`: coordinates of its walk, one row per control step.
    - `dt`: duration of a control step, s.
    - `speeds`: mean speed of each gait of each round, m/s; 0 for a robot that fell.
    - `steps_per_second`: time steps of all robots per second, in the last round.
    """

    gait: np.ndarray
    q: np.ndarray
    dt: float
    speeds: np.ndarray
    steps_per_second: float


def targets(gait, moment):
    """Compute the twelve target angles of the servos at a moment, by inverse kinematics."""
    length, frequency, lift, height, offset = gait
    ramp = jnp.clip(moment / 0.5, 0.0, 1.0)
    phase = (frequency * moment + jnp.array([0.0, 0.5, 0.5, 0.0])) % 1.0
    stance, share = phase < 0.5, 2.0 * (phase % 0.5)
    along = jnp.where(stance, 0.5 - share, share - 0.5)
    x = along * length * ramp + offset
    up = jnp.where(stance, 0.0, jnp.sin(jnp.pi * share)) * lift * ramp
    z = up - height
    reach = jnp.clip(jnp.hypot(x, z), 0.1, 1.96 * LINK)
    knee = jnp.arccos(reach**2 / (2.0 * LINK**2) - 1.0)
    hip = jnp.arctan2(-x, -z) + 0.5 * knee
    return jnp.stack([jnp.zeros(4), hip, -knee], axis=1).reshape(-1)


def walk(sys: eqsim.System, gait, steps: int):
    """Simulate a gait, and return the coordinates after each control step."""
    pipeline = eqsim.Generalized()

    def control(state, number):
        u = targets(gait, number * SKIP * sys.dt)
        inner = lambda state, _: (pipeline.step(sys, state, u), None)
        state = eqsim.scan(inner, state, length=SKIP)[0]
        return state, state.q

    start = pipeline.init_keyframe(sys, "home")
    return eqsim.scan(control, start, jnp.arange(steps))[1]


def search(count: int, rounds: int, say: Callable[[str], None]) -> Walk:
    """Find a fast gait by the cross-entropy method.

    **Arguments:**

    - `count`: number of gaits per round, simulated in one program.
    - `rounds`: number of rounds.
    - `say`: function that shows the progress.
    """
    with jax.enable_x64(False):
        sys = eqsim.load_mjcf(MODEL)
        dt = SKIP * float(sys.dt)
        steps, key = round(DURATION / dt), jr.key(0)
        low, high = jnp.array(LOW), jnp.array(HIGH)
        each = lambda sys, gait: walk(sys, gait, steps)
        run = eqx.filter_jit(eqx.filter_vmap(each, in_axes=(None, 0)))
        run = run.lower(sys, jnp.tile(low, (count, 1))).compile()
        gaits = jr.uniform(key, (count, 5), minval=low, maxval=high)
        speeds, rate = [], 0.0
        for number in range(rounds):
            say(f"Round {number + 1} of {rounds}: {count:,} gaits in one program")
            q, rate = _timed(run, sys, gaits)
            value, speed = _value(q)
            speeds.append(speed)
            elite = np.argsort(-value)[: max(2, count // 20)]
            best = gaits[elite[0]], q[elite[0]]
            noise = jr.normal(jr.fold_in(key, number), gaits.shape)
            chosen = gaits[elite]
            gaits = jnp.clip(chosen.mean(0) + chosen.std(0) * noise, low, high)
            gaits = gaits.at[0].set(best[0])
    return Walk(np.asarray(best[0]), best[1], dt, np.stack(speeds), rate)


def _timed(run, sys, gaits):
    """Return coordinates and time steps per second."""
    begin = time.perf_counter()
    q = np.asarray(run(sys, gaits))
    return q, q.shape[0] * q.shape[1] * SKIP / (time.perf_counter() - begin)


def _value(q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the objective and the mean speed of each walk: speed along x, minus drift to
    the side and tilt. A fall counts as zero."""
    up = 1.0 - 2.0 * (q[..., 4] ** 2 + q[..., 5] ** 2)
    safe = np.all((up > 0.8) & (q[..., 2] > 0.15), axis=1)
    speed = np.where(safe, q[:, -1, 0] / DURATION, 0.0)
    drift = np.abs(q[:, -1, 1]) / DURATION
    tilt = np.mean(1.0 - up, axis=1)
    return np.where(safe, speed - drift - 10.0 * tilt, -np.inf), speed
