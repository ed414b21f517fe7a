"""Static structure of tendon paths."""

import dataclasses
import functools as ft

from ..model import GeomKind, JointKind, System, Tree, tree, WrapKind
from ..model._tendons import Path


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
