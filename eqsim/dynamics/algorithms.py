"""Public algorithms of rigid-body dynamics, on arrays of one robot.

The articulated-body algorithm (`aba`), the composite-rigid-body algorithm (`crba`), the
recursive Newton-Euler algorithm (`rnea`), energy and momentum, inertias about the center of
mass, and joint forces of springs, dampers and actuators. Each is a few lines on the
recursions of `articulated`, `joint_space` and `passive`.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._batching import batch_last
from .._errors import check_shape
from ..kinematics.frames import center, tree_centers
from ..kinematics.link_motion import (
    ascend,
    descend,
    dof_axes,
    frames,
    joint_motion,
    kinematics,
    link_motions,
    link_poses,
    quaternions,
    velocities,
)
from ..model import check_state, State, System, Transmission, tree
from ..spatial import quaternion_matrix, Vec3
from ..spatial.rotations import normalize4
from ..spatial.vectors import congruence, diagonal, rigid_inertia, vec3
from .actuation import actuation_at, actuator_compensation, gravity_compensation
from .articulated import factor, project, solve
from .joint_space import joint_space_matrix
from .passive import (
    armature,
    compensation_forces,
    damping,
    external_forces,
    fluid_forces,
    inertial_forces,
    Rigid,
    rigid,
    spring_energy,
    spring_forces,
)
from .tendon_forces import (
    apply_updates,
    armature_jacobian,
    armature_updates,
    has_tendon_armature,
    passive_tendons_at,
    tendon_bias,
    tendon_energy,
    tendon_forces,
    tendon_inertia,
    tendon_inertia_times,
)


# The articulated-body algorithm: forward dynamics in O(n), without constraints.


def aba(
    sys: System,
    q: Float[Array, " nq"],
    qd: Float[Array, " nv"],
    tau: Float[Array, " nv"],
    external: Float[Array, "nlink 6"] | None = None,
) -> Float[Array, " nv"]:
    r"""Compute joint accelerations from joint forces (articulated-body algorithm).

    Solves $M(q)\,\ddot q + c(q, \dot q) + g(q) = \tau + J^T f_\mathrm{ext}$, and so is
    the inverse of `rnea`. Inertia includes the armature of joints and tendons. Passive forces
    and actuators must be in `tau`, for instance by `passive_forces` and
    `actuator_forces`; contacts, limits and dry friction do not enter (see
    `Generalized.acceleration`).

    **Arguments:**

    - `sys`: the robot.
    - `q`, `qd`: coordinates and velocities.
    - `tau`: joint forces, N m and N, in the order of `qd`.
    - `external`: torque (N m) and force (N) on each link at its center of mass, in
        world axes.

    **Returns:** joint accelerations, rad/s$^2$ and m/s$^2$.

    ??? cite "Reference"
        Featherstone, *Rigid Body Dynamics Algorithms*, 2008, section 7.3.
    """
    check_state(sys, q, qd)
    check_shape("tau", tau, {"nv": sys.nv})
    if external is not None:
        check_shape("external", external, {"nlink": sys.nlink, "components": 6})
    return _aba(sys, q, qd, tau, external)


@batch_last
def _aba(sys, q, qd, tau, external):
    body = rigid(sys, q)
    speed = velocities(sys, body.nodes, body.kin, qd)
    force = -inertial_forces(body.inertia, speed)
    if external is not None:
        force = force + external_forces(sys, *body[:3], external)
    factored = factor(body.nodes, body.kin, body.inertia, armature(sys))
    if not has_tendon_armature(sys):
        return solve(body.nodes, body.kin, factored, tau, force)[0]
    jac = armature_jacobian(sys, body.nodes, body.fixed, body.kin, q)
    tau = tau - tendon_bias(sys, body.nodes, body.fixed, jac, q, qd)
    invert = lambda b: solve(body.nodes, body.kin, factored, b, None)
    updates = armature_updates(sys, jac, invert)
    return apply_updates(updates, *solve(body.nodes, body.kin, factored, tau, force))[0]


# The composite-rigid-body algorithm: the joint-space inertia matrix.


def crba(sys: System, q: Float[Array, " nq"]) -> Float[Array, "nv nv"]:
    r"""Compute the joint-space inertia matrix, armature of joints and tendons included.

    $M_{ij} = S_i^T I^c_i S_j$ where $j$ moves $i$, with the inertia $I^c_i$ of the
    subtree of $i$; symmetric; zero where neither moves the other. Kinetic energy is
    $\tfrac12 \dot q^T M \dot q$.

    **Arguments:**

    - `sys`: the robot.
    - `q`: coordinates.

    **Returns:** $M$, in kg m$^2$, kg m and kg (MuJoCo: `mj_fullM`).

    ??? cite "Reference"
        Featherstone, *Rigid Body Dynamics Algorithms*, 2008, section 6.2.
    """
    check_state(sys, q)
    return _crba(sys, q)


@batch_last
def _crba(sys, q):
    body = rigid(sys, q)
    axes = dof_axes(body.nodes, body.kin)
    inertia = body.inertia.articulated()
    matrix = joint_space_matrix(body.nodes, axes, inertia, armature(sys))
    if has_tendon_armature(sys):
        jac = armature_jacobian(sys, body.nodes, body.fixed, body.kin, q)
        matrix = matrix + tendon_inertia(sys, jac)
    return matrix


# The recursive Newton-Euler algorithm: inverse dynamics in O(n).
#
# Outward, velocities and accelerations; inward, forces:
# $f_i = I_i a_i + v_i \times^* I_i v_i + \sum_{j \in \mathrm{children}} f_j$ and
# $\tau_i = S_i^T f_i$.
#
# Featherstone, *Rigid Body Dynamics Algorithms*, 2008, section 5.3.


def rnea(
    sys: System,
    q: Float[Array, " nq"],
    qd: Float[Array, " nv"],
    qdd: Float[Array, " nv"],
    external: Float[Array, "nlink 6"] | None = None,
) -> Float[Array, " nv"]:
    r"""Compute joint forces from accelerations (recursive Newton-Euler algorithm).

    $\tau = M(q)\,\ddot q + c(q, \dot q) + g(q) - J^T f_\mathrm{ext}$

    Inertia includes the armature of joints and tendons. Passive forces (springs, damping,
    gravity compensation, fluid drag), actuators and contacts are not subtracted: they
    are part of `tau`.

    **Arguments:**

    - `sys`: the robot.
    - `q`, `qd`, `qdd`: coordinates, velocities, accelerations.
    - `external`: torque (N m) and force (N) on each link at its center of mass, in
        world axes.

    **Returns:** joint forces, N m and N, in the order of `qd`.

    ??? cite "Reference"
        Featherstone, *Rigid Body Dynamics Algorithms*, 2008, section 5.3.
    """
    check_state(sys, q, qd)
    check_shape("qdd", qdd, {"nv": sys.nv})
    if external is not None:
        check_shape("external", external, {"nlink": sys.nlink, "components": 6})
    return _rnea(sys, q, qd, qdd, external)


def bias_forces(
    sys: System, q: Float[Array, " nq"], qd: Float[Array, " nv"]
) -> Float[Array, " nv"]:
    r"""Compute Coriolis, centrifugal and gravitational forces, $c(q, \dot q) + g(q)$.

    **Arguments:**

    - `sys`: the robot.
    - `q`, `qd`: coordinates and velocities.

    **Returns:** the joint forces at which $\ddot q$ is zero (MuJoCo: `qfrc_bias`), N m and
    N.

    ??? cite "Reference"
        Featherstone, *Rigid Body Dynamics Algorithms*, 2008, section 6.1.
    """
    check_state(sys, q, qd)
    return _bias_forces(sys, q, qd)


def gravity_forces(sys: System, q: Float[Array, " nq"]) -> Float[Array, " nv"]:
    r"""Compute the joint forces $g(q)$ that hold the robot still against gravity.

    **Arguments:**

    - `sys`: the robot.
    - `q`: coordinates.

    **Returns:** joint forces, N m and N: the gradient of the gravitational part of
    `potential_energy` along the degrees of freedom.
    """
    check_state(sys, q)
    return _gravity_forces(sys, q)


@batch_last
def _bias_forces(sys, q, qd):
    body = rigid(sys, q)
    speed = velocities(sys, body.nodes, body.kin, qd)
    force = ascend(body.nodes, inertial_forces(body.inertia, speed))
    return project(body.nodes, body.kin, force) + _tendon_forces(sys, body, q, qd, None)


@batch_last
def _gravity_forces(sys, q):
    still = jnp.zeros((sys.nv, *(1 for _ in q.shape[1:])), q.dtype)
    body = rigid(sys, q)
    speed = velocities(sys, body.nodes, body.kin, still)
    force = ascend(body.nodes, inertial_forces(body.inertia, speed))
    return project(body.nodes, body.kin, force)


@batch_last
def _rnea(sys, q, qd, qdd, external):
    body = rigid(sys, q)
    speed = velocities(sys, body.nodes, body.kin, qd)
    motion = descend(body.nodes, joint_motion(body.nodes, body.kin, qdd))
    force = inertial_forces(body.inertia, speed) + (body.inertia @ motion)
    if external is not None:
        force = force - external_forces(sys, *body[:3], external)
    force = ascend(body.nodes, force)
    tau = project(body.nodes, body.kin, force) + armature(sys) * qdd
    return tau + _tendon_forces(sys, body, q, qd, qdd)


def _tendon_forces(sys, body: Rigid, q, qd, qdd):
    """Compute the inertial forces of tendons with armature; zero if there are none."""
    if not has_tendon_armature(sys):
        return 0.0
    jac = armature_jacobian(sys, body.nodes, body.fixed, body.kin, q)
    tau = tendon_bias(sys, body.nodes, body.fixed, jac, q, qd)
    return tau if qdd is None else tau + tendon_inertia_times(sys, jac, qdd)


# Kinetic and potential energy, and momentum.


def kinetic_energy(
    sys: System, q: Float[Array, " nq"], qd: Float[Array, " nv"]
) -> Float[Array, ""]:
    r"""Compute the kinetic energy, J.

    $T = \tfrac12 \sum_i v_i^T I_i v_i + \tfrac12 \dot q^T A \dot q
    = \tfrac12 \dot q^T M(q)\,\dot q$, where $A$ is the armature of joints and tendons.

    **Arguments:**

    - `sys`: the robot.
    - `q`, `qd`: coordinates and velocities.

    **Returns:** the energy (MuJoCo: `energy[1]`).
    """
    check_state(sys, q, qd)
    return _kinetic_energy(sys, q, qd)


def potential_energy(sys: System, q: Float[Array, " nq"]) -> Float[Array, ""]:
    r"""Compute the potential energy of gravity and of the springs of joints and tendons,
    J.

    $V = -\sum_i m_i\, g \cdot c_i
    + \tfrac12 \sum_j k_j\, |q_j \ominus q_{\mathrm{spring},j}|^2 + V_\mathrm{tendons}$

    Gravity compensation is counted as a force, not as energy, as in MuJoCo.

    **Arguments:**

    - `sys`: the robot.
    - `q`: coordinates.

    **Returns:** the energy, zero with all mass at the origin of the world (MuJoCo:
    `energy[0]`).
    """
    check_state(sys, q)
    return _potential_energy(sys, q)


def kinetic_energy_of(sys: System, q, qd):
    """Compute the kinetic energy, `(*batch)`; batch axes last."""
    body = rigid(sys, q)
    velocity = descend(body.nodes, joint_motion(body.nodes, body.kin, qd))
    total = jnp.sum(velocity.dot(body.inertia @ velocity), axis=0)
    total = total + jnp.sum(armature(sys) * qd * qd, axis=0)
    if has_tendon_armature(sys):
        jac = armature_jacobian(sys, body.nodes, body.fixed, body.kin, q)
        total = total + jnp.sum(qd * tendon_inertia_times(sys, jac, qd), axis=0)
    return 0.5 * total


def potential_energy_of(sys: System, q):
    """Compute the potential energy, `(*batch)`; batch axes last."""
    nodes = tree(sys)
    fixed = frames(sys, nodes)
    pose = link_poses(nodes, fixed, kinematics(sys, nodes, fixed, q))
    gravity = Vec3(*(sys.gravity[k][None] for k in range(3)))
    center = pose.point(vec3(sys.links.com))
    weight = -jnp.sum(sys.links.mass * center.dot(gravity), axis=0)
    total = weight + spring_energy(sys, q)
    tendons = passive_tendons_at(sys, q)
    if tendons is not None:
        constants, now = tendons
        total = total + tendon_energy(sys, constants, now.length)
    return total


_kinetic_energy = batch_last(kinetic_energy_of)
_potential_energy = batch_last(potential_energy_of)


def momentum(
    sys: System, q: Float[Array, " nq"], qd: Float[Array, " nv"]
) -> Float[Array, "6"]:
    r"""Compute angular momentum about the center of mass, and linear momentum.

    $L = \sum_i \left( R_i I_i R_i^T \omega_i + m_i\,(c_i - c) \times v_i \right),
    \qquad p = \sum_i m_i v_i$

    Links that cannot move, and armature, have none. Both are conserved if the root of
    every tree is a free joint without armature and no external force acts.

    **Arguments:**

    - `sys`: the robot.
    - `q`, `qd`: coordinates and velocities.

    **Returns:** angular (kg m$^2$/s), then linear (kg m/s), in world axes (MuJoCo:
    `subtree_angmom`, and mass times `subtree_linvel`, of the world).

    ??? cite "Reference"
        Orin, Goswami, Lee, *Centroidal dynamics of a humanoid robot*, 2013.
    """
    check_state(sys, q, qd)
    return _momentum(sys, q, qd)


@batch_last
def _momentum(sys, q, qd):
    body = rigid(sys, q)
    velocity = descend(body.nodes, joint_motion(body.nodes, body.kin, qd))
    each = body.inertia @ velocity
    arm = body.kin.origin - center(sys, body.nodes, body.fixed, body.kin)
    ang = each.ang + arm.cross(each.lin)
    return jnp.stack([jnp.sum(x, axis=0) for x in (*ang, *each.lin)])


# Inertias and velocities of links about the center of mass of their tree.


def centered_inertias(sys: System, q: Float[Array, " nq"]) -> Float[Array, "nlink 10"]:
    r"""Compute link inertias in world axes, about the center of mass of their tree.

    With $c_i$ the center of mass of link $i$ and $c$ that of the subtree of its root
    link, $I = R_i I_i R_i^T + m_i\,(|d|^2 1 - d d^T)$ and $h = m_i d$, $d = c_i - c$.

    **Arguments:**

    - `sys`: the robot.
    - `q`: coordinates.

    **Returns:** per link $I_{xx}, I_{yy}, I_{zz}, I_{xy}, I_{xz}, I_{yz}$ (kg m$^2$), $h$
    (kg m) and $m$ (kg) (MuJoCo: `cinert` without the world).
    """
    check_state(sys, q)
    return _centered_inertias(sys, q)


def centered_velocities(
    sys: System, q: Float[Array, " nq"], qd: Float[Array, " nv"]
) -> Float[Array, "nlink 6"]:
    r"""Compute link velocities in world axes, at the center of mass of their tree.

    **Arguments:**

    - `sys`: the robot.
    - `q`, `qd`: coordinates and velocities.

    **Returns:** per link the angular velocity $\omega_i$ (rad/s), and the velocity $v_i +
    \omega_i \times (c - p_i)$ (m/s) of the point of the link at the center of mass $c$ of
    the subtree of its root link (MuJoCo: `cvel` without the world).
    """
    check_state(sys, q, qd)
    return _centered_velocities(sys, q, qd)


@batch_last
def _centered_inertias(sys: System, q):
    nodes, links = tree(sys), sys.links
    fixed = frames(sys, nodes)
    kin = kinematics(sys, nodes, fixed, q)
    pose = link_poses(nodes, fixed, kin)
    axes = pose.rot @ quaternion_matrix(normalize4(quaternions(links.inertia_quat)))
    moments = diagonal(*(links.inertia[:, k] for k in range(3)))
    arm = pose.point(vec3(links.com)) - tree_centers(sys, nodes, fixed, kin)
    mass = links.mass + jnp.zeros_like(arm.x)
    total = rigid_inertia(mass, arm, congruence(axes, moments))
    return jnp.stack([*total.ang, *total.moment, total.mass], axis=1)


@batch_last
def _centered_velocities(sys: System, q, qd):
    nodes = tree(sys)
    fixed = frames(sys, nodes)
    kin = kinematics(sys, nodes, fixed, q)
    motion, origin = link_motions(nodes, kin, qd)
    lin = motion.at(tree_centers(sys, nodes, fixed, kin) - origin)
    return jnp.stack([*motion.ang, *lin], axis=1)


# Passive forces and actuator forces, as joint forces.


def passive_forces(
    sys: System, q: Float[Array, " nq"], qd: Float[Array, " nv"]
) -> Float[Array, " nv"]:
    r"""Compute passive forces: springs and damping of joints and tendons, gravity
    compensation, fluid drag.

    $\tau = -k\,(q \ominus q_\mathrm{spring}) - d\,\dot q + J_t^T f_\mathrm{tendons}
    + J^T (f_\mathrm{compensation} + f_\mathrm{fluid})$

    with polynomials in the place of $k$ and $d$ if the joints have them. Gravity
    compensation by actuators, dry friction and limits do not enter.

    **Arguments:**

    - `sys`: the robot.
    - `q`, `qd`: coordinates and velocities.

    **Returns:** joint forces (MuJoCo: `qfrc_passive`), N m and N.

    ??? cite "Reference"
        MuJoCo documentation, *Computation*, "Passive forces".
    """
    check_state(sys, q, qd)
    return _passive_forces(sys, q, qd)


def actuator_forces(
    sys: System, state: State, ctrl: Float[Array, " nu"]
) -> Float[Array, " nv"]:
    r"""Compute the joint forces of all actuators.

    $\tau = G(q)^T f$, with the moment matrix $G$, and $f$ as defined in `Actuators`, plus
    gravity compensation by actuators, within the force ranges of the joints.

    **Arguments:**

    - `sys`: the robot.
    - `state`: coordinates, velocities and activations.
    - `ctrl`: input of the actuators.

    **Returns:** joint forces (MuJoCo: `qfrc_actuator`), N m and N.

    ??? cite "Reference"
        MuJoCo documentation, *Computation*, "Actuation model".
    """
    return _actuator_forces(*_arguments(sys, state, ctrl))


class ActuatorStates(eqx.Module):
    """Lengths (m or rad, times gear), velocities and forces of actuators; three numbers
    for an actuator on an orientation, one for any other."""

    length: Float[Array, " nout"]
    velocity: Float[Array, " nout"]
    force: Float[Array, " nout"]


def actuator_states(
    sys: System, state: State, ctrl: Float[Array, " nu"]
) -> ActuatorStates:
    """Compute lengths, velocities and forces of the actuators themselves.

    **Arguments:** as of `actuator_forces`.

    **Returns:** MuJoCo's `actuator_length`, `actuator_velocity` and `actuator_force`.
    """
    return ActuatorStates(*_actuator_states(*_arguments(sys, state, ctrl)))


def _arguments(sys: System, state: State, ctrl):
    check_state(sys, state.q, state.qd, ctrl)
    check_shape("act", state.act, {"na": sys.na})
    on_links = [
        name
        for name, kind in zip(sys.actuators.names, sys.actuators.transmissions)
        if kind is Transmission.BODY
    ]
    if on_links:
        raise ValueError(
            f"Actuator {on_links[0]!r} acts through the contacts of a link, which this "
            "function does not know. Take the actuator forces from the pipeline."
        )
    return sys, state.q, state.qd, state.act, ctrl


@batch_last
def _passive_forces(sys, q, qd):
    body = rigid(sys, q)
    nodes, fixed, kin, _ = body
    force = compensation_forces(sys, nodes, fixed, kin)
    if sys.has_fluid:
        velocity = descend(nodes, joint_motion(nodes, kin, qd))
        force = force + fluid_forces(sys, nodes, fixed, kin, velocity)
    carried = project(nodes, kin, ascend(nodes, force))
    lift = gravity_compensation(sys, nodes, fixed, kin)
    if lift is not None:
        carried = carried - actuator_compensation(sys, lift)
    tau = carried + spring_forces(sys, q) + damping(sys).force(qd)
    tendons = passive_tendons_at(sys, q)
    return tau if tendons is None else tau + tendon_forces(sys, *tendons, qd)


@batch_last
def _actuator_forces(sys, q, qd, act, ctrl):
    return actuation_at(sys, q, qd, act, ctrl).tau


@batch_last
def _actuator_states(sys, q, qd, act, ctrl):
    now = actuation_at(sys, q, qd, act, ctrl)
    return now.length, now.velocity, now.force
