"""The double pendulum as MJCF, with the friction of the plant."""

import math

from _double_pendulum import KINDS, TORQUE_LIMIT


def mjcf(
    p: dict[str, float],
    kind: str,
    dt: float,
    *,
    rate: bool = False,
    dry: bool = True,
) -> str:
    """Write the robot with one motor.

    Dry friction is that of the plant at high speed, `pi / 2 * cf`.

    **Arguments:**

    - `p`: parameters, as returned by `parameters`.
    - `kind`: `acrobot` or `pendubot`.
    - `dt`: time step, s.
    - `rate`: true to make the torque a state, and its rate the control.
    - `dry`: false to leave out dry friction, for feedback gains.
    """
    p = realizable(p)
    links, joints = [], []
    for k in "12":
        m, r = p[f"m{k}"], p[f"r{k}"]
        about_center = p[f"I{k}"] - m * r**2
        links.append(
            f'<inertial pos="0 0 {-r}" mass="{m}" '
            f'diaginertia="{about_center} {about_center} 1e-5"/>'
        )
        loss = 0.5 * math.pi * p[f"cf{k}"] if dry else 0.0
        joints.append(
            f'axis="0 -1 0" damping="{p[f"b{k}"]}" frictionloss="{loss}" '
            f'armature="{p["gr"] ** 2 * p["Ir"]}"'
        )
    joint = ("shoulder", "elbow")[KINDS[kind]]
    motor = f'<motor joint="{joint}" ctrlrange="{-TORQUE_LIMIT} {TORQUE_LIMIT}"/>'
    if rate:
        motor = f'<general joint="{joint}" dyntype="integrator"/>'
    return f"""
<mujoco>
  <option timestep="{dt}" integrator="RK4" gravity="0 0 {-p["g"]}"/>
  <worldbody>
    <body><joint name="shoulder" {joints[0]}/>{links[0]}
      <body pos="0 0 {-p["l1"]}"><joint name="elbow" {joints[1]}/>{links[1]}</body>
    </body>
  </worldbody>
  <actuator>{motor}</actuator>
</mujoco>"""


def realizable(p: dict[str, float]) -> dict[str, float]:
    """Return masses and centers of mass with the same equations of motion, such that no
    link has a negative inertia about its center.

    The motion depends only on `I1 + m2 l1^2`, `I2`, `m2 r2` and `m1 r1 + m2 l1`. The
    lower mass is increased until both links are realizable.

    **Raises:** `ValueError` if no lower mass makes them so.
    """
    inertia, moment = p["I1"] + p["m2"] * p["l1"] ** 2, p["m2"] * p["r2"]
    weight = p["m1"] * p["r1"] + p["m2"] * p["l1"]
    m2 = max(p["m2"], 1.001 * moment**2 / p["I2"])
    I1, moment1 = inertia - m2 * p["l1"] ** 2, weight - m2 * p["l1"]
    m1 = max(p["m1"], 1.001 * moment1**2 / I1) if I1 > 0.0 else 0.0
    if m1 == 0.0:
        raise ValueError(
            f"No masses have the equations of motion of {p}: the inertia of the upper "
            f"link would be {I1:.3g}. Check I1, I2, m2, r2 and l1."
        )
    found = {"m2": m2, "r2": moment / m2, "I1": I1, "m1": m1, "r1": moment1 / m1}
    return p | found
