r"""Paths of tendons, their lengths and their Jacobian.

A spatial tendon is a shortest path, so only its straight parts contribute to the rate
of its length: with the direction $n$ of a part from point $a$ to point $b$, $\dot\ell =
\sum n \cdot (\dot b - \dot a)$, where points on a shape are fixed to the shape.

Source: MuJoCo documentation, *Computation*, "Actuation model"; `mj_tendon`.
"""

import dataclasses
import functools as ft
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._batching import batch_last
from ..model import check_state, GeomKind, JointKind, System, Tree, tree, WrapKind
from ..model.arrays import accumulate, concatenate, per_row, take
from ..model.parts import Path
from ..spatial import Force, safe_sqrt, Vec3
from ..spatial.rotations import zero_length
from ..spatial.vectors import force_at
from ._wrapping import wrap
from .coordinates import move_coordinates
from .frames import attached_frames, carriers
from .link_motion import (
    dof_axes,
    Frames,
    frames,
    Kinematics,
    kinematics,
    Pose,
    take_poses,
)


# Structure of the paths.


@dataclasses.dataclass(frozen=True)
class JointTerms:
    """Terms of fixed tendons: tendon, entry of `Tendons.coef`, coordinate and degree of
    freedom of each term."""

    tendons: tuple[int, ...] = ()
    coefs: tuple[int, ...] = ()
    coordinates: tuple[int, ...] = ()
    dofs: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True)
class Lines:
    """Lines of spatial tendons: parts from site to site, with or without a shape
    between.

    - `kind`: kind of the shapes, None if there are none.
    - `has_side`: true if there are side sites.
    - `tendons`, `pulleys`: tendon, and entry of `Tendons.divisor` (-1: no pulley).
    - `starts`, `ends`, `sides`: row in `PathPlan.sites` (`sides` only if `has_side`).
    - `geoms`: row in `PathPlan.geoms`, only if there is a shape.
    """

    kind: GeomKind | None
    has_side: bool
    tendons: tuple[int, ...]
    pulleys: tuple[int, ...]
    starts: tuple[int, ...]
    ends: tuple[int, ...]
    geoms: tuple[int, ...]
    sides: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Wrenches:
    """Actions of straight parts of spatial tendons on nodes.

    A part acts on the subtree of a node if exactly one of its ends moves with the node.

    - `parts`, `nodes`, `signs`: part and node of each such pair, and 1 if the end of the
        part moves, -1 if its start moves.
    - `rows`: row of each pair in the sums, which have one row for each tendon and node.
    - `num_rows`: number of these sums.
    - `row`, `tendon`, `dof`: sum and place of each entry of the Jacobian.
    """

    parts: tuple[int, ...] = ()
    nodes: tuple[int, ...] = ()
    signs: tuple[float, ...] = ()
    rows: tuple[int, ...] = ()
    num_rows: int = 0
    row: tuple[int, ...] = ()
    tendon: tuple[int, ...] = ()
    dof: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True)
class PathPlan:
    """Static structure of the tendons of a system.

    - `terms`: terms of fixed tendons.
    - `sites`, `geoms`: sites and geoms in spatial tendons.
    - `lines`: parts of spatial tendons, grouped by the kind of shape between the sites.
    - `wrenches`: actions of all straight parts on the nodes. The parts are ordered by
        the groups in `lines`; a group with shapes has first the parts without wrapping,
        then those before the shapes, then those after them.
    """

    terms: JointTerms
    sites: tuple[int, ...]
    geoms: tuple[int, ...]
    lines: tuple[Lines, ...]
    wrenches: Wrenches


class _Line:
    """One part of a spatial tendon from site to site."""

    def __init__(self, tendon: int, pulley: int, start: int, end: int, geom, side: int):
        self.tendon, self.pulley = tendon, pulley
        self.start, self.end, self.geom, self.side = start, end, geom, side


def path_plan(sys: System, chosen: tuple[bool, ...] | None = None) -> PathPlan:
    """Return the structure of a system's tendons, or of those that are `chosen`; the
    same object for systems of the same structure."""
    tendons, joints = sys.tendons, sys.joints
    if chosen is None:
        chosen = (True,) * sys.ntendon
    return _path_plan(
        tree(sys),
        tendons.paths,
        chosen,
        joints.kinds,
        joints.q_starts,
        joints.v_starts,
        sys.sites.links,
        sys.geoms.links,
        sys.geoms.kinds,
    )


def tendon_dofs(sys: System) -> tuple[tuple[int, ...], ...]:
    """Return the degrees of freedom on which each tendon can act."""
    plan = path_plan(sys)
    dofs: list[set[int]] = [set() for _ in range(sys.ntendon)]
    acts = (
        (plan.terms.tendons, plan.terms.dofs),
        (plan.wrenches.tendon, plan.wrenches.dof),
    )
    for tendons, own in acts:
        for tendon, dof in zip(tendons, own, strict=True):
            dofs[tendon].add(dof)
    return tuple(tuple(sorted(own)) for own in dofs)


@ft.lru_cache(maxsize=256)
def _path_plan(
    tree: Tree,
    paths: tuple[Path, ...],
    chosen: tuple[bool, ...],
    joint_kinds: tuple[JointKind, ...],
    q_starts: tuple[int, ...],
    v_starts: tuple[int, ...],
    site_links: tuple[int, ...],
    geom_links: tuple[int, ...],
    geom_kinds: tuple[GeomKind, ...],
) -> PathPlan:
    terms, found = _read(paths, chosen)
    sites = sorted({k for x in found for k in (x.start, x.end, x.side) if k >= 0})
    geoms = sorted({x.geom for x in found if x.geom >= 0})
    kind = lambda x: geom_kinds[x.geom] if x.geom >= 0 else None
    group = lambda x: (-1 if x.geom < 0 else geom_kinds[x.geom].value, x.side >= 0)
    groups = [
        [x for x in found if group(x) == key] for key in sorted({*map(group, found)})
    ]
    node = lambda link: -1 if link < 0 else tree.link_nodes[link]
    ends, owners = [], []
    for lines in groups:
        pairs = [(node(site_links[x.start]), node(site_links[x.end])) for x in lines]
        own = [x.tendon for x in lines]
        ends, owners = ends + pairs, owners + own
        if lines[0].geom >= 0:
            middle = [node(geom_links[x.geom]) for x in lines]
            ends += [(a, m) for (a, _), m in zip(pairs, middle)]
            ends += [(m, b) for (_, b), m in zip(pairs, middle)]
            owners += own + own
    return PathPlan(
        JointTerms(
            tuple(tendon for tendon, _, _ in terms),
            tuple(coef for _, coef, _ in terms),
            tuple(q_starts[joint] for _, _, joint in terms),
            tuple(v_starts[joint] for _, _, joint in terms),
        ),
        tuple(sites),
        tuple(geoms),
        tuple(_lines(lines, kind(lines[0]), sites, geoms) for lines in groups),
        _wrenches(tree, tuple(ends), tuple(owners)),
    )


def _read(paths: tuple[Path, ...], chosen: tuple[bool, ...]):
    """Return the terms of fixed tendons (tendon, coefficient, joint), and the lines of
    spatial ones."""
    terms, lines, coef, pulley = [], [], 0, 0
    for tendon, path in enumerate(paths):
        divisor = -1
        for k, point in enumerate(path):
            if point.kind is WrapKind.JOINT:
                terms.append((tendon, coef, point.target))
                coef += 1
            if point.kind is WrapKind.PULLEY:
                divisor, pulley = pulley, pulley + 1
            if point.kind is not WrapKind.SITE or k + 1 == len(path):
                continue
            after = path[k + 1]
            if after.kind is WrapKind.SITE:
                end, geom, side = after.target, -1, -1
            elif after.kind is WrapKind.GEOM:
                end, geom, side = path[k + 2].target, after.target, after.side_site
            else:
                continue
            lines.append(_Line(tendon, divisor, point.target, end, geom, side))
    keep = lambda tendon: chosen[tendon]
    return [x for x in terms if keep(x[0])], [x for x in lines if keep(x.tendon)]


def _lines(lines: list[_Line], kind, sites: list[int], geoms: list[int]) -> Lines:
    row = {site: k for k, site in enumerate(sites)}
    has_side = lines[0].side >= 0
    return Lines(
        kind,
        has_side,
        tuple(x.tendon for x in lines),
        tuple(x.pulley for x in lines),
        tuple(row[x.start] for x in lines),
        tuple(row[x.end] for x in lines),
        tuple(geoms.index(x.geom) for x in lines if kind is not None),
        tuple(row[x.side] for x in lines if has_side),
    )


def _wrenches(tree: Tree, ends, owners: tuple[int, ...]) -> Wrenches:
    """Return the action of straight parts, given the nodes at both ends and the
    tendons."""
    dofs: dict[int, list[int]] = {}
    for node, first in enumerate(tree.dofs):
        count = 6 if node < tree.num_free else 1
        dofs[node] = [first + k for k in range(count)]
    moving = lambda node: _ancestors(tree, node)
    rows: dict[tuple[int, int], int] = {}
    pairs = []
    for part, ((start, end), tendon) in enumerate(zip(ends, owners, strict=True)):
        for node in sorted(moving(start) ^ moving(end)):
            sign = 1.0 if node in moving(end) else -1.0
            row = rows.setdefault((tendon, node), len(rows))
            pairs.append((part, node, sign, row))
    entries = [
        (row, tendon, dof) for (tendon, node), row in rows.items() for dof in dofs[node]
    ]
    return Wrenches(
        parts=tuple(part for part, _, _, _ in pairs),
        nodes=tuple(node for _, node, _, _ in pairs),
        signs=tuple(sign for _, _, sign, _ in pairs),
        rows=tuple(row for _, _, _, row in pairs),
        num_rows=len(rows),
        row=tuple(row for row, _, _ in entries),
        tendon=tuple(tendon for _, tendon, _ in entries),
        dof=tuple(dof for _, _, dof in entries),
    )


@ft.lru_cache(maxsize=4096)
def _ancestors(tree: Tree, node: int) -> frozenset[int]:
    """Return the nodes that move a node, itself included; none for the world (-1)."""
    found = []
    while node >= 0:
        found.append(node)
        node = tree.parents[node]
    return frozenset(found)


# Lengths and Jacobians.


class TendonFrames(NamedTuple):
    """Constant quantities of tendons, independent of the state.

    - `sites`, `geoms`: frames of the sites and shapes of spatial tendons, in the nodes
        that carry them; one row for each of `PathPlan.sites` and `PathPlan.geoms`.
    - `radius`: radii of these shapes, m.
    - `share`: inverse divisors of all pulleys.
    """

    sites: Pose
    geoms: Pose
    radius: Any
    share: Any


class TendonKinematics(NamedTuple):
    r"""Lengths of the tendons `(ntendon, *batch)`, and their Jacobian
    $\partial\dot\ell / \partial\dot q$ `(ntendon, nv, *batch)`."""

    length: Any
    jac: Any


class _Parts(NamedTuple):
    """Straight parts of tendons: a point and the direction of each, scaled by its
    pulley."""

    point: Vec3
    direction: Vec3


def tendon_lengths(sys: System, q: Float[Array, " nq"]) -> Float[Array, " ntendon"]:
    r"""Compute the lengths $\ell(q)$ of all tendons, m (or in the unit of the joints).

    **Arguments:**

    - `sys`: the robot.
    - `q`: coordinates.

    **Returns:** lengths in the order of `sys.tendons.names` (MuJoCo: `ten_length`).
    """
    check_state(sys, q)
    if not sys.ntendon:
        return jnp.zeros(0, q.dtype)
    return _tendon_lengths(sys, q)


def tendon_jacobian(sys: System, q: Float[Array, " nq"]) -> Float[Array, "ntendon nv"]:
    r"""Compute the matrix $J = \partial\dot\ell / \partial\dot q$ of all tendons.

    $J^T$ maps tensions to joint forces.

    **Arguments:**

    - `sys`: the robot.
    - `q`: coordinates.

    **Returns:** one row per tendon (MuJoCo: `ten_J`).
    """
    check_state(sys, q)
    if not sys.ntendon:
        return jnp.zeros((0, sys.nv), q.dtype)
    return _tendon_jacobian(sys, q)


def tendon_velocities(
    sys: System, q: Float[Array, " nq"], qd: Float[Array, " nv"]
) -> Float[Array, " ntendon"]:
    r"""Compute the rates of the lengths, $\dot\ell = J \dot q$.

    **Arguments:**

    - `sys`: the robot.
    - `q`, `qd`: coordinates and velocities.

    **Returns:** rates in the order of `sys.tendons.names` (MuJoCo: `ten_velocity`), m/s.
    """
    check_state(sys, q, qd)
    if not sys.ntendon:
        return jnp.zeros(0, q.dtype)
    return _tendon_velocities(sys, q, qd)


def tendon_frames(sys: System, fixed: Frames) -> TendonFrames:
    """Compute the constant quantities of the tendons of a system."""
    plan, sites, geoms = path_plan(sys), sys.sites, sys.geoms
    return TendonFrames(
        _attached(fixed, sites, plan.sites),
        _attached(fixed, geoms, plan.geoms),
        take(geoms.size, plan.geoms)[:, 0],
        1.0 / sys.tendons.divisor,
    )


def _attached(fixed: Frames, parts, chosen) -> Pose:
    pos, quat = take((parts.pos, parts.quat), chosen)
    return attached_frames(fixed, [parts.links[k] for k in chosen], pos, quat)


def tendon_kinematics(
    sys: System,
    tree: Tree,
    local: TendonFrames,
    kin: Kinematics,
    q,
    chosen: tuple[bool, ...] | None = None,
) -> TendonKinematics:
    """Compute lengths and Jacobian of all tendons, or of those that are `chosen`; other
    rows are zero.

    **Arguments:** `local`: see `tendon_frames`. `q (nq, *batch)`.
    """
    plan, count = path_plan(sys, chosen), sys.ntendon
    terms = plan.terms
    coef = take(sys.tendons.coef, terms.coefs)
    lengths, owners = [coef * take(q, terms.coordinates)], [terms.tendons]
    entries, places = [coef], [_flat(terms.tendons, terms.dofs, sys.nv)]
    if plan.lines:
        parts, shares, tendons = _parts(sys, tree, plan, local, kin)
        lengths.append(shares)
        owners.append(tendons)
        entries.append(_entries(tree, plan, kin, parts))
        spatial = plan.wrenches
        places.append(_flat(spatial.tendon, spatial.dof, sys.nv))
    jac = accumulate(concatenate(entries), sum(places, ()), count * sys.nv)
    length = accumulate(concatenate(lengths), sum(owners, ()), count)
    return TendonKinematics(length, jac.reshape(count, sys.nv, *jac.shape[1:]))


def _flat(tendons, dofs, nv: int) -> tuple[int, ...]:
    return tuple(t * nv + dof for t, dof in zip(tendons, dofs, strict=True))


def _parts(sys: System, tree: Tree, plan: PathPlan, local: TendonFrames, kin):
    """Compute the straight parts of spatial tendons, and lengths with the tendon of
    each."""
    every = path_plan(sys)
    row = lambda chosen, among: [among.index(k) for k in chosen]
    at_sites = carriers(tree, [sys.sites.links[k] for k in plan.sites])
    at_geoms = carriers(tree, [sys.geoms.links[k] for k in plan.geoms])
    offset = take(local.sites.pos, row(plan.sites, every.sites))
    points = take_poses(kin.pose, at_sites).point(offset)
    frame, radius = take((local.geoms, local.radius), row(plan.geoms, every.geoms))
    geoms = take_poses(kin.pose, at_geoms) @ frame
    one = jnp.ones((1, *(1 for _ in points.x.shape[1:])), points.x.dtype)
    share, last = concatenate([local.share, one]), local.share.shape[0]
    parts, lengths, tendons = [], [], ()
    for lines in plan.lines:
        own = take(share, [k if k >= 0 else last for k in lines.pulleys])
        found, length = _line_parts(lines, points, geoms, radius)
        parts += [_Parts(x.point, x.direction * own) for x in found]
        lengths.append(length * own)
        tendons += lines.tendons
    return concatenate(parts), concatenate(lengths), tendons


def _line_parts(lines: Lines, points: Vec3, geoms: Pose, radius):
    """Compute the straight parts of one group of lines, and the length of each line."""
    start, end = take(points, lines.starts), take(points, lines.ends)
    if lines.kind is None:
        direction, length = _direction(start, end)
        return [_Parts(start, direction)], length
    side = take(points, lines.sides) if lines.has_side else None
    shape, size = take((geoms, radius), lines.geoms)
    around = wrap(lines.kind, start, end, shape, size, side)
    on = around.is_wrapped
    straight, length = _direction(start, end)
    before, length0 = _direction(start, around.first)
    behind, length1 = _direction(around.last, end)
    only = lambda mask, v: Vec3(*(jnp.where(mask, x, 0.0) for x in v))
    # The Jacobian of a line between sites of one link that wraps around nothing is
    # exactly zero, as in MuJoCo. Canceling forces on the shape would leave rounding
    # errors, which are multiplied by the weight of a row, up to 1e15.
    parts = [
        _Parts(start, only(~on, straight)),
        _Parts(around.first, only(on, before)),
        _Parts(around.last, only(on, behind)),
    ]
    return parts, jnp.where(on, length0 + around.arc + length1, length)


def _direction(start: Vec3, end: Vec3) -> tuple[Vec3, Any]:
    """Return unit vectors from point to point, and distances. Between coincident
    points, the vector is the x axis of the world, as in MuJoCo."""
    d = end - start
    square = d.dot(d)
    apart = square > zero_length(square.dtype) ** 2
    scale = 1.0 / jnp.sqrt(jnp.where(apart, square, 1.0))
    unit = Vec3(*(jnp.where(apart, x * scale, e) for x, e in zip(d, (1.0, 0.0, 0.0))))
    return unit, safe_sqrt(square)


class TendonPulls(NamedTuple):
    """Straight parts of spatial tendons, in world axes.

    - `tendons`, `starts`, `ends`: tendon of each part, and links at its ends; -1 is the
        world.
    - `point`: a point on the part.
    - `direction`: unit vector from start to end, scaled by the pulley. A positive
        tension acts along it on the end, and against it on the start.
    """

    tendons: tuple[int, ...]
    starts: tuple[int, ...]
    ends: tuple[int, ...]
    point: Vec3
    direction: Vec3


def tendon_pulls(
    sys: System,
    tree: Tree,
    local: TendonFrames,
    kin: Kinematics,
    chosen: tuple[bool, ...],
) -> TendonPulls | None:
    """Compute the lines along which the `chosen` spatial tendons pull links; None if
    there are none."""
    plan = path_plan(sys, chosen)
    if not plan.lines:
        return None
    tendons, starts, ends = (), (), ()
    for lines in plan.lines:
        one, two = (
            tuple(sys.sites.links[plan.sites[k]] for k in side)
            for side in (lines.starts, lines.ends)
        )
        middle = tuple(sys.geoms.links[plan.geoms[k]] for k in lines.geoms)
        wraps = lines.kind is not None
        tendons += 3 * lines.tendons if wraps else lines.tendons
        starts += one + one + middle if wraps else one
        ends += two + middle + two if wraps else two
    parts, _, _ = _parts(sys, tree, plan, local, kin)
    return TendonPulls(tendons, starts, ends, parts.point, parts.direction)


def _entries(tree: Tree, plan: PathPlan, kin: Kinematics, parts: _Parts):
    """Compute the entries of the Jacobian of spatial tendons."""
    acts = plan.wrenches
    part = take(parts, acts.parts)
    arm = part.point - take(kin.origin, acts.nodes)
    signs = per_row(acts.signs, arm.x)
    pull = force_at(arm, part.direction * signs)
    total: Force = accumulate(pull, acts.rows, acts.num_rows)
    return take(dof_axes(tree, kin), acts.dof).dot(take(total, acts.row))


def jacobian_rate(
    sys: System, tree: Tree, fixed: Frames, q, qd, chosen: tuple[bool, ...]
):
    r"""Compute $\dot J \dot q$ of the `chosen` tendons, `(ntendon, *batch)`: the second
    derivative of their lengths for $\ddot q = 0$. Other rows are zero."""
    local = tendon_frames(sys, fixed)

    def rates(time):
        moved = move_coordinates(sys.joints.kinds, q, time[None] * qd)
        kin = kinematics(sys, tree, fixed, moved)
        jac = tendon_kinematics(sys, tree, local, kin, moved, chosen).jac
        return jnp.sum(jac * qd[None], axis=1)

    time = jnp.zeros(qd.shape[1:], qd.dtype)
    return jax.jvp(rates, (time,), (jnp.ones_like(time),))[1]


def _at(sys: System, q) -> TendonKinematics:
    nodes = tree(sys)
    fixed = frames(sys, nodes)
    kin = kinematics(sys, nodes, fixed, q)
    return tendon_kinematics(sys, nodes, tendon_frames(sys, fixed), kin, q)


@batch_last
def _tendon_lengths(sys: System, q):
    return _at(sys, q).length


@batch_last
def _tendon_jacobian(sys: System, q):
    return _at(sys, q).jac


@batch_last
def _tendon_velocities(sys: System, q, qd):
    return jnp.sum(_at(sys, q).jac * qd[None], axis=1)
