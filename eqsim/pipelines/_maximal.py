"""What `Spring` and `Positional` share: a step in maximal coordinates."""

import abc

import equinox as eqx
import jax.numpy as jnp
import jax.tree_util as jtu
from jax import lax
from jaxtyping import Array, Float

from .._batching import batch_last, full_batch
from ..contact._plan import contact_plan
from ..dynamics._actuation import actuation, next_activation
from ..dynamics._articulated import project
from ..dynamics._passive import spring_forces
from ..kinematics._forward import kinematics
from ..kinematics._recursion import ascend
from ..model import (
    accumulate,
    check_finite,
    check_state,
    concatenate,
    State,
    System,
    take,
    Tree,
    tree,
)
from ..spatial import Force, force_at, stack, Vec3
from ._bodies import Bodies, BodyNumbers, layout
from ._checks import check_model, check_numbers
from ._contacts import Contacts, report
from ._groups import Group, group_dofs, groups
from ._links import joint_errors
from ._pipeline import AbstractPipeline, check_input, first_state
from ._projection import project_bodies
from ._world import begin, Constants, derive, Impulses, Moving, push, World


class AbstractMaximal(AbstractPipeline):
    """A pipeline in maximal coordinates: links are bodies of their own, and joints are
    what acts between them.

    A step places the bodies by forward kinematics, makes `substeps` substeps, and goes
    back to coordinates: to those at which the robot as a mechanism is nearest to the
    bodies, measured by their masses, which keeps momentum to first order. Subclasses
    say what a substep is.
    """

    substeps: eqx.AbstractVar[int]

    @abc.abstractmethod
    def substep(self, world: World, now: Moving, tau: Array) -> tuple[Moving, Impulses]:
        """One substep, with batch axes last.

        **Arguments:**

        - `now`: after the loads of the substep have acted on the velocities.
        - `tau`: forces of actuators and springs along the joints, `(nv, *batch)`.
        """

    def init(
        self,
        sys: System,
        q: Float[Array, " nq"] | None = None,
        qd: Float[Array, " nv"] | None = None,
    ) -> State:
        check_state(sys, q, qd)
        check_numbers(self)
        check_finite(sys)
        check_model(sys)
        return first_state(sys, q, qd)

    def step(
        self,
        sys: System,
        state: State,
        ctrl: Float[Array, " nu"],
        external: Float[Array, "nlink 6"] | None = None,
    ) -> State:
        q, qd, act = _step(*_arguments(self, sys, state, ctrl, external))
        return State(q, qd, act if sys.na else state.act, state.aux)

    def contacts(
        self,
        sys: System,
        state: State,
        ctrl: Float[Array, " nu"],
        external: Float[Array, "nlink 6"] | None = None,
    ) -> Contacts:
        """Where shapes touch in a state, and with what force: the mean over the substeps
        of the step from there. A single substep does not tell: what a body carries
        reaches its contacts from joint to joint, in one substep each.

        **Arguments:** as of `step`.
        """
        arguments = _arguments(self, sys, state, ctrl, external)
        return report(sys, state.q.dtype, lambda: _contacts(*arguments))

    def constraint_forces(
        self,
        sys: System,
        state: State,
        ctrl: Float[Array, " nu"],
        external: Float[Array, "nlink 6"] | None = None,
    ) -> Float[Array, " nv"]:
        """Joint forces of contacts, joint limits and dry friction in a state, N m and
        N: their mean over the substeps of the step from there.

        **Arguments:** as of `step`.
        """
        return _constraint_forces(*_arguments(self, sys, state, ctrl, external))

    def joint_drift(
        self,
        sys: System,
        state: State,
        ctrl: Float[Array, " nu"],
        external: Float[Array, "nlink 6"] | None = None,
    ) -> Float[Array, "nlink 6"]:
        """How far joints are apart at the end of a step, before it goes back to
        coordinates: the rotation (rad) and the displacement (m) of each link from where
        its joints put it, in world axes; zero for links without joints, and with free
        ones."""
        return _drift(*_arguments(self, sys, state, ctrl, external))


def _arguments(pipeline: AbstractMaximal, sys: System, state: State, ctrl, external):
    check_input(sys, state, ctrl, external)
    kept = jtu.tree_map(
        lambda x: x.astype(state.q.dtype) if eqx.is_inexact_array(x) else x, pipeline
    )
    return kept, sys, _derive(sys), state.q, state.qd, state.act, ctrl, external


def _step_fn(pipeline, sys: System, constants: Constants, *state_and_input):
    first = full_batch(state_and_input, sys, constants, pipeline)
    world, end, _ = _advance(pipeline, sys, constants, *first)
    return *project_bodies(sys, constants, world.origin, end), end.act


def _contacts_fn(pipeline, sys: System, constants: Constants, *state_and_input):
    first = full_batch(state_and_input, sys, constants, pipeline)
    world, _, forces = _advance(pipeline, sys, constants, *first)
    force, points = forces.points, world.points
    assert force is not None and points is not None, "`report` asks only if there are"
    rows = [stack(Vec3(*points.frame[3 * k : 3 * k + 3])) for k in range(3)]
    return points.dist, stack(points.pos), jnp.stack(rows, axis=1), stack(force)


def _constraint_forces_fn(pipeline, sys, constants, *state_and_input):
    first = full_batch(state_and_input, sys, constants, pipeline)
    world, _, forces = _advance(pipeline, sys, constants, *first)
    total, nodes = forces.joints, tree(sys)
    if forces.points is not None and world.points is not None:
        kin = kinematics(sys, nodes, constants.frames, first[0])
        pushed = _on_nodes(sys, nodes, kin, world.points.pos, forces.points)
        total = total + project(nodes, kin, ascend(nodes, pushed))
    return total


def _on_nodes(sys: System, nodes: Tree, kin, pos: Vec3, force: Vec3) -> Force:
    """Forces at points, about the origins of the trees that they act on."""
    parts, where = [], []
    for side, own in zip(zip(*contact_plan(sys).nodes), (-force, force)):
        moved = [k for k, node in enumerate(side) if node >= 0]
        on = [side[k] for k in moved]
        where += on
        arm = take(pos, moved) - take(kin.origin, on)
        parts.append(force_at(arm, take(own, moved)))
    return accumulate(concatenate(parts), where, nodes.size)


def _drift_fn(pipeline, sys: System, constants: Constants, *state_and_input):
    first = full_batch(state_and_input, sys, constants, pipeline)
    world, end, _ = _advance(pipeline, sys, constants, *first)
    nodes, links, errors = tree(sys), [], []
    for group in groups(nodes, False)[0]:
        at = world.place(group, end.bodies, end.q)
        errors.append(joint_errors(constants.bodies, group, end.bodies, at))
        links += [nodes.links[layout(nodes).nodes[body]] for body in group.bodies]
    if not links:
        return jnp.zeros((sys.nlink, 6, *end.q.shape[1:]), end.q.dtype)
    error = accumulate(concatenate(errors), links, sys.nlink)
    return jnp.concatenate([stack(error.ang), stack(error.lin)], axis=1)


_derive = batch_last(derive)
_step = batch_last(_step_fn)
_contacts = batch_last(_contacts_fn)
_constraint_forces = batch_last(_constraint_forces_fn)
_drift = batch_last(_drift_fn)


def _substep(pipeline: AbstractMaximal, world: World, now: Moving, ctrl):
    small = world.sys
    drive = actuation(small, now.q, now.qd, now.act, ctrl)
    tau = drive.tau + spring_forces(small, now.q)
    pushed = now._replace(bodies=push(world, now, tau))
    later, impulses = pipeline.substep(world, pushed, tau)
    act = next_activation(small, now.act, drive.act_rate, small.dt)
    return later._replace(act=act), impulses


def _advance(pipeline: AbstractMaximal, *arguments) -> tuple[World, Moving, Impulses]:
    """All substeps of a step, and their mean forces in the place of impulses; the
    arguments are those of `begin`."""
    world, first, ctrl = begin(pipeline.substeps, *arguments)
    one = lambda now, _: _substep(pipeline, world, now, ctrl)
    end, impulses = lax.scan(one, first, length=pipeline.substeps)
    mean = lambda x: jnp.mean(x, axis=0) / world.h
    return world, end, jtu.tree_map(mean, impulses)


def all_rates(nodes: Tree, parts: list, bodies: Bodies, numbers: BodyNumbers):
    """Velocities of all joints, in the order of `qd`.

    **Arguments:**

    - `parts`: groups and their rates, axis by axis; free joints follow their bodies.
    """
    n = nodes.num_free
    index = [layout(nodes).index[node] for node in range(n)]
    rot, velocity, com = take((bodies.rot, bodies.velocity, numbers.com), index)
    lin = velocity.at(-(rot @ com))
    rows = [*lin, *(rot.T @ velocity.ang)]
    dofs = [dof + k for k in range(6) for dof in nodes.dofs[:n]]
    for group, rates in parts:
        rows += rates
        dofs += group_dofs(nodes, group)
    rows = concatenate([row for row in rows if row.shape[0]])
    return take(rows, sorted(range(len(dofs)), key=dofs.__getitem__))


def all_impulses(sys: System, nodes: Tree, parts: list, like):
    """Impulses of limits and dry friction along all joints, in the order of `qd` and in
    the shape of `like`.

    **Arguments:**

    - `parts`: groups and their impulses, axis by axis, None where there is neither.
    """
    found, dofs = [like[:0]], []
    for group, held in parts:
        for axes, impulse in zip(group.axes, held, strict=True):
            if impulse is not None:
                found.append(impulse)
                dofs += [nodes.dofs[node] for node in axes.nodes]
    return accumulate(concatenate(found), dofs, sys.nv)


def total(impulses: list[Force]) -> Force:
    """The sum of impulses on all bodies."""
    return jtu.tree_map(lambda *xs: sum(xs[1:], xs[0]), *impulses)


def between(group: Group, bodies: Bodies, impulse: Force) -> Force:
    """Impulses on all bodies, from those on the links of a group."""
    n = bodies.com.x.shape[0]
    own = accumulate(impulse, group.bodies, n)
    com = take(bodies.com, group.bodies)
    kept = [k for k, parent in enumerate(group.parents) if parent >= 0]
    if not kept:
        return own
    parents = [group.parents[k] for k in kept]
    arm = take(com, kept) - take(bodies.com, parents)
    push = take(impulse, kept)
    back = Force(push.ang + (arm ^ push.lin), push.lin)
    return own - accumulate(back, parents, n)
