r"""Transmissions: lengths of actuators, and their moments $\partial\ell/\partial q$.

Rows of the moment matrix that belong to joints have as many entries as the joint has
degrees of freedom, at static places; they are kept as a list of entries. All other rows
are dense: their moment is the sum of forces that act on points of links, and an entry is the
power of these forces at unit velocity of one degree of freedom.

Source: MuJoCo documentation, *Computation*, "Actuation model"; `mj_transmission`.
"""

import functools as ft
from typing import Any, NamedTuple

import jax.numpy as jnp

from ..kinematics.frames import attached_frames, carriers
from ..kinematics.link_motion import (
    dof_axes,
    dof_order,
    Frames,
    Kinematics,
    Pose,
    take_poses,
)
from ..kinematics.tendon_paths import tendon_frames, tendon_kinematics, TendonFrames
from ..model import Actuators, JointKind, Joints, System, Transmission, Tree
from ..model.actuator_parameters import ActuatorStructure, on_joint
from ..model.arrays import accumulate, concatenate, put, take
from ..spatial import Force, logarithm, quaternion_matrix, safe_sqrt, Vec3
from ..spatial.rotations import matrix_quaternion, normalize4
from ..spatial.vectors import force_at
from .actuator_slots import addresses


# Joints.


class JointEnds(NamedTuple):
    """Static facts: which actuator forces act on which degrees of freedom of joints.

    - `single`, `single_q`: forces on hinges and slides, and their coordinates.
    - `multiple`: actuators on balls and free joints: actuator, kind of the joint, first
        coordinate.
    - `outputs`, `dofs`: the two ends of each entry of the moment matrix, first of
        `single`, then of `multiple`.
    - `others`: forces of actuators on other things than joints.
    """

    single: tuple[int, ...]
    single_q: tuple[int, ...]
    multiple: tuple[tuple[int, JointKind, int], ...]
    outputs: tuple[int, ...]
    dofs: tuple[int, ...]
    others: tuple[int, ...]


class Moments(NamedTuple):
    """The moment matrix.

    - `ends`: places of its entries.
    - `entries`: entries of rows of joints.
    - `rows`: rows of `ends.others`, `(n, nv, *batch)`; None if there are none.
    """

    ends: JointEnds
    entries: Any
    rows: Any

    def rates(self, qd, nout: int):
        r"""Compute the velocities of the actuators, $\dot\ell$: `(nout, *batch)`."""
        ends = self.ends
        products = take(qd, ends.dofs) * self.entries
        rates = accumulate(products, ends.outputs, nout)
        if self.rows is None:
            return rates
        return rates + put(jnp.sum(self.rows * qd[None], axis=1), ends.others, nout)

    def dense(self, nv: int):
        """Return the matrix, `(nout, nv, *batch)`."""
        ends, nout = self.ends, self.num_outputs
        places = [out * nv + dof for out, dof in zip(ends.outputs, ends.dofs)]
        flat = accumulate(self.entries, places, nout * nv)
        matrix = flat.reshape(nout, nv, *flat.shape[1:])
        return (
            matrix if self.rows is None else matrix + put(self.rows, ends.others, nout)
        )

    @property
    def num_outputs(self) -> int:
        """Number of rows."""
        return len({*self.ends.outputs, *self.ends.others})

    def joint_forces(self, force, nv: int):
        """Compute joint forces from forces of actuators: `(nv, *batch)`."""
        ends = self.ends
        tau = accumulate(take(force, ends.outputs) * self.entries, ends.dofs, nv)
        if self.rows is None:
            return tau
        return tau + jnp.sum(self.rows * take(force, ends.others)[:, None], axis=0)


class OtherRows(NamedTuple):
    """Moments and lengths of actuators on other things than joints, in the order of
    `JointEnds.others`: `(n, nv, *batch)` and `(n, *batch)`."""

    moments: Any
    lengths: Any


def joint_ends(actuators: Actuators, joints: Joints) -> JointEnds:
    """Return which actuator forces act on which degrees of freedom."""
    return _joint_ends(
        joints.kinds,
        joints.q_starts,
        joints.v_starts,
        actuators.transmissions,
        actuators.targets,
        actuators.out_starts,
    )


@ft.lru_cache(maxsize=256)
def _joint_ends(kinds, q_starts, v_starts, transmissions, targets, outs) -> JointEnds:
    single, single_q, multiple, others = [], [], [], []
    lone, rest = [], []
    for k, (kind, (joint, second)) in enumerate(zip(transmissions, targets)):
        out, three = outs[k], kind is Transmission.ORIENTATION
        if not on_joint(kind, second):
            others += range(out, out + (3 if three else 1))
        elif kinds[joint].nv == 1:
            single.append(out)
            single_q.append(q_starts[joint])
            lone.append((out, v_starts[joint]))
        else:
            multiple.append((k, kinds[joint], q_starts[joint]))
            first = v_starts[joint]
            rest += [
                (out + i if three else out, first + i) for i in range(kinds[joint].nv)
            ]
    entries = lone + rest
    return JointEnds(
        tuple(single),
        tuple(single_q),
        tuple(multiple),
        tuple(out for out, _ in entries),
        tuple(dof for _, dof in entries),
        tuple(others),
    )


def transmission(sys: System, q, others: OtherRows | None):
    """Compute the moment matrix, and the lengths of the actuators `(nout, *batch)`.

    **Arguments:**

    - `others`: rows of actuators on other things than joints, if there are any.
    """
    actuators = sys.actuators
    ends = joint_ends(actuators, sys.joints)
    gear = take(actuators.gear, ends.single)[:, 0]
    moments, lengths = [gear], [gear * take(q, ends.single_q)]
    order = [*ends.single]
    for k, kind, start in ends.multiple:
        moment, length = _rotary_moments(actuators, k, kind, q, start)
        moments += moment
        lengths += length
        order += range(actuators.out_starts[k], actuators.out_starts[k] + len(length))
    rows = None
    if ends.others:
        assert others is not None, "rows of other transmissions are computed before"
        rows = others.moments
        lengths.append(others.lengths)
        order += ends.others
    length = put(concatenate(lengths), order, sys.nout)
    return Moments(ends, concatenate(moments), rows), length


def _rotary_moments(actuators: Actuators, k: int, kind: JointKind, q, start: int):
    """Compute moments and lengths of an actuator on a ball or free joint."""
    num_linear, out = kind.nv - 3, actuators.out_starts[k]
    first = start + num_linear
    quat = normalize4([q[first + i][None] for i in range(4)])
    if actuators.transmissions[k] is Transmission.ORIENTATION:
        return 3 * [jnp.ones_like(quat[0])], [*logarithm(quat)]
    gear = [actuators.gear[out, i][None] for i in range(kind.nv)]
    axis = Vec3(*gear[num_linear:])
    if actuators.transmissions[k] is Transmission.JOINT_IN_PARENT:
        axis = quaternion_matrix(quat).T @ axis
    # MuJoCo: a free joint has no length.
    free = kind is JointKind.FREE
    length = jnp.zeros_like(quat[0]) if free else logarithm(quat).dot(axis)
    return [*gear[:num_linear], *axis], [length]


# Sites, tendons, slider-cranks and contacts.


class TransmissionFrames(NamedTuple):
    """Constant parts of transmissions.

    - `sites`: frames of the sites of actuators in the nodes that carry them, in the order
        of `actuator_sites`; None if there are none.
    - `tendons`: None if no actuator acts on a tendon.
    """

    sites: Pose | None
    tendons: TendonFrames | None


class Touching(NamedTuple):
    """Contact points, for actuators that act through the contacts of a link.

    - `links`: links of the two shapes of each point, -1 for the world.
    - `nodes`: the nodes that carry them, -1 for the world.
    - `pos`: position in the world, `(npoint, *batch)`.
    - `normal`: direction from the first shape to the second.
    - `active`: true if the shapes touch.
    """

    links: tuple[tuple[int, int], ...]
    nodes: tuple[tuple[int, int], ...]
    pos: Vec3
    normal: Vec3
    active: Any


class Pulls(NamedTuple):
    """Forces of one row of the moment matrix.

    - `nodes`: the nodes that they act on, -1 for the world.
    - `forces`: about the origins of the trees of these nodes, `(1, *batch)` each.
    - `relative`: true if degrees of freedom that move all these nodes do not count.
    """

    nodes: tuple[int, ...]
    forces: tuple[Force, ...]
    relative: bool


def _others(structure: ActuatorStructure) -> list[int]:
    pairs = zip(structure.transmissions, structure.targets)
    return [k for k, (kind, ids) in enumerate(pairs) if not on_joint(kind, ids[1])]


@ft.lru_cache(maxsize=256)
def actuator_sites(structure: ActuatorStructure) -> tuple[int, ...]:
    """Return the sites that actuators act on or refer to."""
    kinds = (Transmission.SITE, Transmission.SLIDER_CRANK, Transmission.ORIENTATION)
    sites = {
        site
        for k in _others(structure)
        if structure.transmissions[k] in kinds
        for site in structure.targets[k]
        if site >= 0
    }
    return tuple(sorted(sites))


def transmission_frames(sys: System, fixed: Frames) -> TransmissionFrames | None:
    """Compute what is constant about transmissions; None if all act on joints."""
    structure = sys.actuators.structure
    if not _others(structure):
        return None
    chosen, sites = actuator_sites(structure), None
    if chosen:
        pos, quat = take((sys.sites.pos, sys.sites.quat), chosen)
        links = [sys.sites.links[k] for k in chosen]
        sites = attached_frames(fixed, links, pos, quat)
    tendons = Transmission.TENDON in structure.transmissions
    return TransmissionFrames(sites, tendon_frames(sys, fixed) if tendons else None)


class _Scene(NamedTuple):
    """Poses of sites in the world, and the nodes that carry them."""

    sys: System
    kin: Kinematics
    nodes: dict[int, int]
    poses: dict[int, Pose]


def other_rows(
    sys: System,
    tree: Tree,
    local: TransmissionFrames | None,
    kin: Kinematics,
    q,
    touching: Touching | None,
) -> OtherRows | None:
    """Compute moments and lengths of actuators on other things than joints; None if
    there are none.

    **Arguments:**

    - `local`: see `transmission_frames`.
    - `touching`: contact points; None if there are none.
    """
    structure = sys.actuators.structure
    if local is None:
        return None
    scene = _scene(sys, tree, local, kin)
    outs, tendons = addresses(structure).out, _tendons(sys, tree, local, kin, q)
    moments, lengths = [], []
    for k in _others(structure):
        kind, (target, _) = structure.transmissions[k], structure.targets[k]
        gear = [sys.actuators.gear[outs[k], i][None] for i in range(6)]
        if kind is Transmission.TENDON:
            assert tendons is not None, "there are tendons"
            moments.append(tendons.jac[target][None] * gear[0][None])
            lengths.append(tendons.length[target][None] * gear[0])
            continue
        if kind is Transmission.BODY:
            found = [_contact_pulls(sys, kin, target, touching, q)]
        else:
            found = _PULLS[kind](scene, k, gear)
        for pulls, length in found:
            moments.append(_row(tree, kin, pulls, q))
            lengths.append(length)
    return OtherRows(concatenate(moments), concatenate(lengths))


def _tendons(sys: System, tree: Tree, local: TransmissionFrames, kin, q):
    structure = sys.actuators.structure
    if local.tendons is None:
        return None
    pulled = {
        target
        for kind, (target, _) in zip(structure.transmissions, structure.targets)
        if kind is Transmission.TENDON
    }
    chosen = tuple(t in pulled for t in range(sys.ntendon))
    return tendon_kinematics(sys, tree, local.tendons, kin, q, chosen)


def _scene(sys: System, tree: Tree, local, kin: Kinematics) -> _Scene:
    chosen = actuator_sites(sys.actuators.structure)
    if not chosen:
        return _Scene(sys, kin, {}, {})
    links = [sys.sites.links[k] for k in chosen]
    nodes = carriers(tree, links)
    carried = take_poses(kin.pose, nodes)
    poses = carried @ local.sites
    rows = range(len(chosen))
    return _Scene(
        sys,
        kin,
        dict(zip(chosen, nodes)),
        {site: take(poses, [i]) for site, i in zip(chosen, rows)},
    )


def _row(tree: Tree, kin: Kinematics, pulls: Pulls, q):
    """Compute one row of the moment matrix, `(1, nv, *batch)`."""
    dof_nodes = dof_order(tree).nodes
    moved = [
        {
            dof
            for dof, own in enumerate(dof_nodes)
            if node >= 0 and tree.ancestors[node, own]
        }
        for node in pulls.nodes
    ]
    shared = set.intersection(*moved) if pulls.relative and len(moved) > 1 else set()
    pairs = [(i, dof) for i, dofs in enumerate(moved) for dof in sorted(dofs - shared)]
    size = len(dof_nodes)
    if not pairs:
        return jnp.zeros_like(q[:1], shape=(1, size, *q.shape[1:]))
    axes = take(dof_axes(tree, kin), [dof for _, dof in pairs])
    force = take(concatenate([*pulls.forces]), [i for i, _ in pairs])
    return accumulate(axes.dot(force), [dof for _, dof in pairs], size)[None]


def _pull(kin: Kinematics, node: int, point: Vec3, force: Vec3, torque=None) -> Force:
    """Return a force at a point, and a torque, about the origin of a node's tree."""
    arm = point - take(kin.origin, [node]) if node >= 0 else point
    pull = force_at(arm, force)
    return pull if torque is None else Force(pull.ang + torque, pull.lin)


def _site_pulls(scene: _Scene, k: int, gear):
    """Return a force and a torque in the axes of the site, or of the reference site."""
    site, ref = scene.sys.actuators.targets[k]
    pose, kin = scene.poses[site], scene.kin
    linear, angular = Vec3(*gear[:3]), Vec3(*gear[3:])
    if ref < 0:
        force, torque = pose.rot @ linear, pose.rot @ angular
        pull = _pull(kin, scene.nodes[site], pose.pos, force, torque)
        zero = jnp.zeros_like(pose.pos.x)
        return [(Pulls((scene.nodes[site],), (pull,), False), zero)]
    base = scene.poses[ref]
    force, torque = base.rot @ linear, base.rot @ angular
    length = (base.rot.T @ (pose.pos - base.pos)).dot(linear)
    length = length + _relative_rotation(scene, site, ref).dot(angular)
    return [(_between(scene, site, ref, force, torque), length)]


def _between(scene: _Scene, site: int, ref: int, force: Vec3, torque: Vec3) -> Pulls:
    """Return a force and a torque on a site, and the opposite ones on the reference
    site."""
    nodes = scene.nodes[site], scene.nodes[ref]
    points = scene.poses[site].pos, scene.poses[ref].pos
    return Pulls(
        nodes,
        (
            _pull(scene.kin, nodes[0], points[0], force, torque),
            _pull(scene.kin, nodes[1], points[1], -force, -torque),
        ),
        True,
    )


def _relative_rotation(scene: _Scene, site: int, ref: int) -> Vec3:
    """Return the rotation vector from the reference site to the site, in either's
    axes."""
    rotation = scene.poses[ref].rot.T @ scene.poses[site].rot
    return logarithm(matrix_quaternion(rotation))


def _orientation_pulls(scene: _Scene, k: int, gear):
    """Return torques about the three axes of the site, relative to the reference site."""
    del gear
    site, ref = scene.sys.actuators.targets[k]
    pose = scene.poses[site]
    zero = jnp.zeros_like(pose.pos.x)
    none = Vec3(zero, zero, zero)
    lengths = _relative_rotation(scene, site, ref)
    return [
        (_between(scene, site, ref, none, axis), length)
        for axis, length in zip(pose.rot.columns, lengths)
    ]


def _crank_pulls(scene: _Scene, k: int, gear):
    r"""A rod of length $r$ from the crank at $v$ to a slider on the axis $a$:
    $\ell = a^T v - \sqrt{(a^T v)^2 + r^2 - v^T v}$. Where the rod does not reach the
    axis, $\ell = a^T v$."""
    crank, slider = scene.sys.actuators.targets[k]
    length = scene.sys.actuators.crank_length
    assert length is not None, "there are slider-cranks"
    rod = length[k][None]
    axis, pivot = scene.poses[slider].rot.columns[2], scene.poses[slider].pos
    vector = scene.poses[crank].pos - pivot
    along = axis.dot(vector)
    square = along * along + rod * rod - vector.dot(vector)
    reaches = square > 0.0
    root = safe_sqrt(square)
    inverse = jnp.where(reaches, 1.0 / jnp.where(reaches, root, 1.0), 0.0)
    share = 1.0 - along * inverse
    by_vector = ((axis * share) + (vector * inverse)) * gear[0]
    by_axis = (vector * share) * gear[0]
    nodes = scene.nodes[crank], scene.nodes[slider]
    torque = axis.cross(by_axis)
    pulls = (
        _pull(scene.kin, nodes[0], scene.poses[crank].pos, by_vector),
        _pull(scene.kin, nodes[1], pivot, -by_vector, torque),
    )
    return [(Pulls(nodes, pulls, False), gear[0] * (along - root))]


_PULLS = {
    Transmission.SITE: _site_pulls,
    Transmission.SLIDER_CRANK: _crank_pulls,
    Transmission.ORIENTATION: _orientation_pulls,
}


def _contact_pulls(sys: System, kin: Kinematics, link: int, touching, q):
    """Return the mean normal of the contacts of a link, which pulls the shapes
    together."""
    zero = jnp.zeros_like(q[:1])
    if touching is None:
        return Pulls((-1,), (), False), zero
    rows = [i for i, links in enumerate(touching.links) if link in links]
    if not rows:
        return Pulls((-1,), (), False), zero
    pos, normal, active = take((touching.pos, touching.normal, touching.active), rows)
    weight = jnp.where(active, jnp.ones_like(pos.x), 0.0)
    count = jnp.sum(weight, axis=0, keepdims=True)
    force = normal * (weight / jnp.maximum(count, 1.0))
    nodes, pulls = [], []
    for i, row in enumerate(rows):
        for node, push in zip(touching.nodes[row], (force, -force)):
            nodes.append(node)
            pulls.append(_pull(kin, node, take(pos, [i]), take(push, [i])))
    return Pulls(tuple(nodes), tuple(pulls), False), zero
