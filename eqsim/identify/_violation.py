r"""Contact forces that explain a measured change of velocity, and how much they violate
the laws of contact and friction.

With accelerations $\bar a$ and velocities $v$ after an interval $\delta$ as measured, the
forces $f$ in the friction cones minimize

$$\tfrac12 |a - \bar a|_M^2 + \tfrac1\delta c \cdot f + \tfrac12 f^\top R f, \qquad
M a = \tau + J^\top f.$$

This is the dual of the problem that `eqsim.constraint` solves, with the rows $x = J (a -
\bar a) + c / \delta$.
"""

from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._batching import batch_last, full_batch
from .._errors import check_count, check_numbers
from ..collision import contact_plan
from ..constraint import (
    AbstractConstraint,
    AbstractRows,
    Contact,
    Elliptic,
    OneSided,
    RobotData,
)
from ..constraint.contact_rows import (
    anchored_rows,
    contact_groups,
    contact_parameters,
    ContactGroup,
    ContactParameters,
    ContactSource,
)
from ..constraint.equalities import point_jacobians
from ..constraint.newton import node_motion
from ..constraint.rows import AbstractJacobian, DenseJacobian, Rows
from ..dynamics import crba
from ..dynamics.weights import InverseWeights
from ..kinematics import difference
from ..model import Cone, System, tree
from ..model.arrays import as_array, take
from ..pipelines import Generalized
from ..pipelines.forward_dynamics import (
    derive,
    forward_dynamics,
    Prepared,
    Settings,
    solved_forces,
    StepInputs,
)
from ..spatial import safe_sqrt, Vec3
from ._channels import AbstractInterpolation, LinearInterpolation
from ._objectives import (
    AbstractObjective,
    commands,
    Comparison,
    Given,
    Physics,
    refuse_continuity,
    refuse_memory,
    Simulation,
    WindowResiduals,
)
from ._recordings import inner_rows, Recording
from ._unknowns import Model
from ._windows import Batch, Windows


_REGULARIZATION = 1e-3
"""Regularization of forces, relative to the inverse weight of a contact: forces are unique
where several contacts share a load."""


class ContactLaw(AbstractConstraint):
    """Contacts that act in a measured interval, at a cost for each violation.

    Friction cones are elliptic, whatever `System.cone`.

    - `acceleration`, `velocity`: measured acceleration, and velocity after the interval,
        `(nv,)`.
    - `interval`: duration of the change of velocity. `ahead`: time to the next
        coordinates, s.
    - `complementarity`, `dissipation`: weights of the violations, see `Violation`.
    - `reach`: distance within which points are computed, m.
    """

    reads_every_point: ClassVar[bool] = True
    acceleration: Any
    velocity: Any
    interval: Any
    ahead: Any
    complementarity: Any
    dissipation: Any
    reach: Any

    def constants(self, sys: System, weights: InverseWeights) -> Any:
        return contact_parameters(sys, contact_plan(sys), weights.link)

    def rows(
        self, sys: System, constants: Any, now: RobotData
    ) -> tuple[AbstractRows, ...]:
        return tuple(
            self._group_rows(sys, constants, now, group)
            for group in contact_groups(sys)
        )

    def _group_rows(
        self, sys: System, parameters: ContactParameters, now: RobotData, group
    ) -> Rows:
        jacobian = _jacobian(sys, parameters, now, group)
        assert now.every_point is not None
        points, own = take((now.every_point, parameters), group.points)
        rates = self._times(sys, now, jacobian, self.acceleration)
        speeds = self._times(sys, now, jacobian, self.velocity)
        distance = points.dist - own.friction.margin
        after = distance + self.ahead[None] * speeds[0]
        cost = self.complementarity[None] * jnp.abs(after) / self.ahead[None]
        friction = own.friction.coefficients[: group.condim - 1]
        if friction:
            pairs = zip(friction, speeds[1:], strict=True)
            slip = safe_sqrt(sum((mu * speed) ** 2 for mu, speed in pairs))
            cost = cost + self.dissipation[None] * slip
        costs = (cost, *(self.dissipation[None] * speed for speed in speeds[1:]))
        pairs = zip(costs, rates, strict=True)
        offset = tuple(c / self.interval[None] - rate for c, rate in pairs)
        weight = jnp.where(points.valid, 1.0 / (_REGULARIZATION * own.weight), 0.0)
        if not friction:
            return Rows(jacobian, OneSided(weight), offset)
        mu = friction[0] + 0.0 * weight
        return Rows(jacobian, Elliptic(weight, friction, mu), offset)

    def _times(self, sys: System, now: RobotData, jacobian: AbstractJacobian, rate):
        return jacobian.times(node_motion(tree(sys), now.kin, rate), rate)


def _jacobian(
    sys: System, parameters: ContactParameters, now: RobotData, group: ContactGroup
) -> AbstractJacobian:
    """Compute how contacts move along the normal and their friction axes."""
    assert now.every_point is not None
    source = ContactSource(
        group=group,
        cone=Cone.ELLIPTIC,
        points=now.every_point,
        parameters=parameters,
        origin=now.kin.origin,
        velocity=now.velocities.velocity,
        impratio=sys.impratio,
        width=None,
    )
    if group.anchored:
        return anchored_rows(source).jacobian
    rows, nodes = source.rows(), tree(sys)
    ends = [
        point_jacobians(nodes, now, carriers, arm)
        for carriers, arm in zip(group.nodes, rows.arms, strict=True)
    ]
    lin, ang = (ends[1][k] - ends[0][k] for k in (0, 1))
    by_row = lambda axis: Vec3(*(x[:, None] for x in axis))
    along = [by_row(axis).dot(lin) for axis in rows.linear]
    return DenseJacobian((*along, *(by_row(axis).dot(ang) for axis in rows.angular)))


class Explanation(NamedTuple):
    """Accelerations and contact forces that explain a measurement best.

    - `acceleration`: $a$, `(nv,)`.
    - `violation`: $\\tfrac1\\delta c \\cdot f + \\tfrac12 f^\\top R f$ of each contact, N
        m/s$^2$, `(n,)`.
    - `penetration`: depth of each contact times the square root of the mass that it moves,
        `(n,)`.
    """

    acceleration: Any
    violation: Any
    penetration: Any


def explain(sys: System, settings: Settings, q, qd, ctrl) -> Explanation:
    """Find contact forces.

    **Arguments:**

    - `settings`: constraints, of which the first is a `ContactLaw`; solver.
    - `q`, `qd`, `ctrl`: state and commands.
    """
    constants, law = _derive(sys, settings), _law(settings)
    if constants.geoms.margin is not None:
        margin = constants.geoms.margin + law.reach
        constants = eqx.tree_at(lambda c: c.geoms.margin, constants, margin)
    inputs = StepInputs(q, qd, jnp.zeros(sys.na, q.dtype), ctrl, None)
    return Explanation(*_explain(Prepared(sys, settings, constants), inputs))


def _refuse_surfaces(sys: System) -> None:
    """Raise `ValueError` for contacts that are not those of `ContactLaw`."""
    parts = sys.geoms, sys.pairs
    used = {
        "noslip_iterations": sys.noslip_iterations > 0,
        "adhesion": any(part.adhesion is not None for part in parts),
        "surface_velocity": sys.geoms.surface_velocity is not None,
    }
    found = [name for name, on in used.items() if on]
    if found:
        raise ValueError(
            f"`Violation` does not support {', '.join(found)}. Remove them from the robot "
            "(0 or None), or use `Simulation`."
        )


def _law(settings: Settings) -> ContactLaw:
    law = settings.constraints[0]
    assert isinstance(law, ContactLaw)
    return law


def _explain_fn(prepared: Prepared, inputs: StepInputs):
    now = forward_dynamics(prepared, full_batch(inputs, prepared))
    return now.solution.qdd, _violations(prepared, now), _depths(prepared, now)


def _violations(prepared: Prepared, now: RobotData):
    """Compute the violation of each contact."""
    law, found = _law(prepared.settings), []
    at = lambda qdd: (node_motion(tree(prepared.sys), now.kin, qdd), qdd)
    measured, explained = at(law.acceleration), at(now.solution.qdd)
    forces = solved_forces(prepared, now)[ContactLaw]
    for rows, force in zip(now.problem.rows[ContactLaw], forces, strict=True):
        # The cost is homogeneous of degree two: at the solution it is -x f / 2.
        costs = rows.residuals(*measured), rows.residuals(*explained)
        trio = zip(*costs, force, strict=True)
        found.append(sum((c - 0.5 * x) * f for c, x, f in trio))
    return jnp.concatenate(found)


def _depths(prepared: Prepared, now: RobotData):
    """Compute the depth of each contact times the square root of the mass it moves."""
    parameters: ContactParameters = prepared.constants.constraints[0]
    points = now.every_point
    assert points is not None
    distance = points.dist - parameters.friction.margin
    depth = jnp.where(points.valid, jnp.minimum(distance, 0.0), 0.0)
    return depth / jnp.sqrt(parameters.weight)


_derive = batch_last(derive)
_explain = batch_last(_explain_fn)


_Q, _BEFORE, _AFTER, _TIMES = "middle q", "qd before", "qd after", "intervals"
_CHANNEL = "violation"


class Violation(AbstractObjective):
    r"""Violation of the laws of contact and friction, without simulation (ContactNets).

    Contact makes errors of a simulation discontinuous and chaotic. This objective compares
    neighboring samples instead: with the velocities $v$ and $v'$ before and after a sample,
    differences of coordinates over the intervals on both sides, its cost is the least
    violation over contact impulses $\lambda$ in the friction cones,

    $$\min_\lambda \tfrac12 |v' - v - \delta\,a_0 - M^{-1} J^\top \lambda|_M^2
    + \sum_i \Bigl(w_c \frac{|\phi'_i|}{h} + w_d\,\mu_i |v'_{t,i}|\Bigr) \lambda_{n,i}
    + w_d\,v'_{t,i} \cdot \lambda_{t,i}
    + \frac{w_p}{2} \sum_i m_i \Bigl(\frac{\min(\phi_i, 0)}{h}\Bigr)^2,$$

    with accelerations $a_0$ without contact, the mean $\delta$ of both intervals, the
    second interval $h$, distances $\phi$, $\phi' = \phi + h J_n v'$ one sample later,
    sliding velocities $v'_t$ and the masses $m$ that contacts move. In words: contact
    impulses explain the change of velocity; they act where bodies touch; friction
    of sliding contacts is on the cone and opposes the motion; bodies do not penetrate.
    The first two terms with $w_c = 1$ are the duality gap of rigid time stepping. The
    problem is convex, and its solution is differentiated implicitly.

    Residuals are the roots of the terms, divided by the mass of all links, in m/s; they
    have one common noise, so that weights act as given. The total mass of robots without
    actuators has no influence. Contacts are rigid: `solref` and `solimp` of shapes have no
    influence, and friction cones are elliptic. Other constraints, such as dry friction of
    joints, act as simulated. Gains, biases and delays of sensors have no influence; those of
    `"ctrl"` do.

    **Arguments:**

    - `complementarity`: weight $w_c$ of impulses at a distance.
    - `dissipation`: weight $w_d$ of friction that does not oppose the motion.
    - `penetration`: weight $w_p$ of penetration.
    - `samples`: samples of the recording in each interval. Noise of velocities is inversely
        proportional to it.
    - `reach`: distance up to which contact is considered, m, longer than the motion within
        an interval. Pairs with a plane of spheres, capsules, boxes and cylinders, and pairs
        of spheres and capsules, have no limit.
    - `control`: commands between their recorded times.

    ??? cite "References"
        Pfrommer, Halm, Posa, *ContactNets: Learning discontinuous contact dynamics with
        smooth, implicit representations*, CoRL 2020.

        Bianchini, Halm, Matni, Posa, *Generalization bounded implicit learning of nearly
        discontinuous functions*, L4DC 2022.
    """

    complementarity: Float[Array, ""] = eqx.field(converter=as_array, default=1.0)
    dissipation: Float[Array, ""] = eqx.field(converter=as_array, default=1.0)
    penetration: Float[Array, ""] = eqx.field(converter=as_array, default=1.0)
    samples: int = eqx.field(static=True, default=1)
    reach: Float[Array, ""] = eqx.field(converter=as_array, default=0.05)
    control: AbstractInterpolation = LinearInterpolation()

    def __check_init__(self):
        for name in ("complementarity", "dissipation", "penetration"):
            value, is_weight = vars(self)[name], lambda x: x >= 0
            check_numbers(f"Violation.{name}", value, is_weight, "not negative")
        check_count("Violation.samples", self.samples)
        check_numbers("Violation.reach", self.reach, lambda x: x > 0, "positive")

    def compare(self, given: Given) -> Comparison:
        refuse_continuity(given.windows, "Violation")
        refuse_memory(given.sys, "Violation")
        _refuse_surfaces(given.sys)
        if not isinstance(given.pipeline, Generalized):
            raise ValueError(
                "`Violation` needs the pipeline `Generalized`, got "
                f"{type(given.pipeline).__name__}."
            )
        if not contact_plan(given.sys).size:
            raise ValueError(
                "`Violation` compares contacts, but no shapes of this robot can touch. Use "
                "`Inverse` for robots without contact."
            )
        derived = [
            _transitions(given.sys, recording, given.windows, self.samples)
            for recording in given.recordings
        ]
        return Comparison(derived, (_Q, _BEFORE, _AFTER, _TIMES), {_CHANNEL: 1})

    def predictor(self) -> AbstractObjective:
        return Simulation(self.control)

    def residuals(
        self,
        physics: Physics,
        model: Model,
        start: tuple[Float[Array, " nq"], Float[Array, " nv"]],
        window: Batch,
    ) -> WindowResiduals:
        ctrl = commands(model, window, self.control, window.time)
        error = lambda *row: self._violation(physics, model.sys, *row)
        rows = (window.measured[name] for name in (_Q, _BEFORE, _AFTER, _TIMES))
        found = jax.vmap(error)(*rows, ctrl)
        return WindowResiduals(
            {_CHANNEL: jnp.where(window.mask[:, None], found, 0.0)}, start
        )

    def _violation(self, physics: Physics, sys: System, q, before, after, times, ctrl):
        """Compute residuals of one sample: dynamics, laws of contact, penetration."""
        pipeline, (interval, ahead) = physics.pipeline, times
        assert isinstance(pipeline, Generalized)
        measured = (after - before) / interval
        weights = self.complementarity, self.dissipation, self.reach
        weights = (x.astype(q.dtype) for x in weights)
        law = ContactLaw(measured, after, interval, ahead, *weights)
        others = (x for x in pipeline.constraints if not isinstance(x, Contact))
        settings = Settings((law, *others), pipeline.solver, None)
        found = explain(sys, settings, q, 0.5 * (before + after), ctrl)
        mass = jnp.sum(sys.links.mass)
        error = interval * (found.acceleration - measured)
        dynamics = jnp.linalg.cholesky(crba(sys, q)).T @ error
        # Squares are energies, and a constant: a root has no derivative at zero.
        energy = 2 * interval**2 * found.violation / mass
        laws = jnp.sqrt(jnp.maximum(energy, 0.0) + _SMALL**2)
        depth = jnp.sqrt(self.penetration.astype(q.dtype)) * found.penetration / ahead
        root = jnp.sqrt(mass)
        return jnp.concatenate([dynamics / root, laws, depth / root])


_SMALL = 1e-3
"""Velocity below which violations are rounded, m/s."""


def _transitions(
    sys: System, recording: Recording, windows: Windows, samples: int
) -> Recording:
    """Add velocities before and after each row, and leave out rows without both."""
    q, time = recording.channel(windows.channel, sys.nq), recording.time
    rows = inner_rows(recording, windows.gap, samples, "Violation.samples")
    back, ahead = time[rows] - time[rows - samples], time[rows + samples] - time[rows]
    steps = jax.vmap(difference, (None, 0, 0))
    before = steps(sys, jnp.asarray(q[rows - samples]), jnp.asarray(q[rows]))
    after = steps(sys, jnp.asarray(q[rows]), jnp.asarray(q[rows + samples]))
    derived = {
        _Q: q[rows],
        _BEFORE: np.asarray(before) / back[:, None],
        _AFTER: np.asarray(after) / ahead[:, None],
        _TIMES: np.stack([0.5 * (back + ahead), ahead], axis=1),
    }
    return recording.rows(rows, derived)
