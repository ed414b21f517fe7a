"""Forces of a pair of shapes that is near, from its shapes, the motion of its two links and
the parameters of its contacts. They do not depend on the robot, so their code is compiled
once for all robots, see `eqsim/_separate.py`."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
from jax import lax

from .._separate import separate
from ..collision._collide import (
    code_version,
    collide_in_place,
    Kinds,
    shared_hulls,
    shares_code,
)
from ..collision._near import apart, together
from ..collision._points import ContactPoints, Hulls, Shape
from ..kinematics._forward import Pose
from ..model import Cone
from ..spatial import Force, Motion, Vec3
from ._contact_parameters import (
    complete_parameters,
    ContactParameters,
    GeomParameters,
    mix_parameters,
    Mixed,
)
from ._contact_rows import contact_rows, contact_wrench, ContactLaw, ContactWrench


class PairLaw(eqx.Module):
    """Static facts about pairs.

    - `kinds`: kinds of their shapes.
    - `condim`, `cone`: see `ContactLaw`.
    - `safe_solref`: see `System`.
    """

    kinds: Kinds = eqx.field(static=True)
    condim: int = eqx.field(static=True)
    cone: Cone = eqx.field(static=True)
    safe_solref: bool = eqx.field(static=True)


class ShapeTables(NamedTuple):
    """Quantities of the listed shapes, one row for each.

    - `shape`: shapes in the world.
    - `parameters`: contact parameters.
    - `margin`: distance at which contacts begin, m.
    """

    shape: Shape
    parameters: GeomParameters
    margin: Any


class NodeTables(NamedTuple):
    """Quantities of the nodes; the last row is the world.

    - `origin`: origin of the tree of each node.
    - `velocity`: velocities.
    """

    origin: Vec3
    velocity: Motion


class NodeRow(NamedTuple):
    """Quantities of the node that carries a shape.

    - `origin`: origin of its tree.
    - `velocity`: its velocity.
    - `motion`: its motion for which forces are computed, see `contact_wrench`.
    """

    origin: Vec3
    velocity: Motion
    motion: Motion


class PairState(NamedTuple):
    """Quantities of pairs that depend on the state, `(k, *batch)`, for both sides."""

    poses: tuple[Pose, ...]
    nodes: tuple[NodeRow, ...]


class PairParameters(NamedTuple):
    """Parameters of pairs, `(k, *batch)`.

    - `sizes`, `geoms`, `margins`: sizes, contact parameters and margins of both shapes.
    - `own`: parameters and margin of explicit pairs; None: there are none.
    - `weight`: sum of the inverse weights of the two links.
    - `impratio`, `width`, `dt`: see `ContactLaw`; time step, s.
    """

    sizes: tuple[Vec3, Vec3]
    geoms: tuple[GeomParameters, GeomParameters]
    margins: tuple[Any, Any]
    own: tuple[Mixed, Any] | None
    weight: Any
    impratio: Any
    width: Any
    dt: Any


class PairFacts(NamedTuple):
    """Quantities of pairs without derivatives, `(k, *batch)`.

    - `hulls`: numbers of the hulls of both shapes, see `Hulls`.
    - `priority`: see `mix_parameters`.
    - `entry`: entry in the explicit pairs; negative: none.
    - `counts`: 1 for pairs whose contacts count, else 0.
    - `solved`: motion of both nodes at the solution.
    """

    hulls: tuple[Hulls | None, Hulls | None]
    priority: Any
    entry: Any
    counts: Any
    solved: tuple[Motion, ...]


PairData = tuple[PairState, PairParameters, PairFacts]


def pair_parameters(
    parameters: PairParameters, priority, entry, safe_solref: bool
) -> ContactParameters:
    """Return the parameters of the contacts of pairs.

    **Arguments:**

    - `priority`, `entry`: see `PairFacts`.
    - `safe_solref`: see `System`.
    """
    mixed = mix_parameters(*parameters.geoms, priority)
    margin = parameters.margins[0] + parameters.margins[1]
    explicit = parameters.own is not None
    if explicit:
        choose = lambda x, y: jnp.where(entry >= 0, x, y)
        mixed, margin = jtu.tree_map(choose, parameters.own, (mixed, margin))
    time = parameters.dt[None], safe_solref
    return complete_parameters(mixed, margin, parameters.weight, time, explicit)


def pair_wrenches(
    law: PairLaw, data: PairData, tables: Hulls | None
) -> tuple[ContactPoints, ContactWrench]:
    """Compute all points of pairs and their forces, one row for each point.

    **Arguments:**

    - `tables`: see `shared_hulls`.
    """
    state, own, facts = data
    parameters = pair_parameters(own, facts.priority, facts.entry, law.safe_solref)
    margin = lax.stop_gradient(parameters.friction.margin)
    each = zip(state.poses, own.sizes, facts.hulls, strict=True)
    one, two = (together(Shape(*shape), tables) for shape in each)
    points = collide_in_place(law.kinds, one, two, margin)
    points = points._replace(valid=points.valid & (facts.counts > 0)[:, None])
    # Arrays of pairs are repeated for their points.
    slots = points.dist.shape[1]
    flat = lambda x: x.reshape(-1, *x.shape[2:])
    repeat = lambda x: flat(
        jnp.broadcast_to(x[:, None], (x.shape[0], slots, *x.shape[1:]))
    )
    points = jtu.tree_map(flat, points)
    parameters, nodes, solved = jtu.tree_map(
        repeat, (parameters, state.nodes, facts.solved)
    )
    settings = ContactLaw(law.condim, law.cone, own.impratio, own.width)
    ends = [(node.origin, node.velocity) for node in nodes]
    rows = contact_rows(settings, points, parameters, ends)
    return points, contact_wrench(rows, solved, [node.motion for node in nodes])


def pair_forces(
    law: PairLaw, data: PairData, shapes: tuple[Shape, Shape]
) -> tuple[Force, Force]:
    """Return the forces of pairs on both nodes, about the origins of their trees,
    `(k, *batch)`.

    **Arguments:**

    - `shapes`: the shapes with their hulls.
    """

    def forces(state, parameters, facts, tables):
        _, wrench = pair_wrenches(law, (state, parameters, facts), tables)
        of_pairs = lambda x: x.reshape(count, -1, *x.shape[1:])
        total = lambda x: jnp.sum(of_pairs(x), axis=1)
        return jtu.tree_leaves(jtu.tree_map(total, wrench.on_both()))

    state, parameters, _ = data
    margin, tables = parameters.margins[0], shared_hulls(*shapes)
    count = margin.shape[0]
    like = jnp.broadcast_shapes(*(x.shape for x in jtu.tree_leaves((data[0], margin))))
    number = jax.ShapeDtypeStruct(like, state.poses[0].pos.x.dtype)
    results, treedef = jtu.tree_flatten(
        2 * (Force(Vec3(*[number] * 3), Vec3(*[number] * 3)),)
    )
    if shares_code(law.kinds, margin):
        kinds = " ".join(kind.name for kind in law.kinds)
        settings = law.condim, law.cone.name, law.safe_solref
        name = f"force of {kinds} {settings} {code_version()}"
        found = separate(forces, name, data, tables, results)
    else:
        found = forces(*data, tables)
    return jtu.tree_unflatten(treedef, found)


def pair_shape_numbers(
    shapes: tuple[Shape, Shape],
) -> tuple[Hulls | None, Hulls | None]:
    """Return the numbers of the hulls of shapes, without what all pairs share."""
    one, two = (apart(shape)[0].hulls for shape in shapes)
    return one, two
