r"""Pipeline with MuJoCo's model in joint coordinates."""

import dataclasses
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from .._batching import batch_last, full_batch
from ..constraint import AbstractConstraint, ALL, Newton, RobotData
from ..model import check_finite, check_state, check_step, SensorKind, State, System
from ..model.arrays import as_array
from ..spatial.vectors import stack
from ._integrators import AbstractIntegrator, integrator_of
from ._pipeline import (
    AbstractPipeline,
    AbstractPrepared,
    check_max_contacts,
    contact_arrays,
    first_state,
    make_contacts,
    num_reported,
    Solved,
)
from ._sensing import measure, reported_contacts, summed_wrenches
from .forward_dynamics import (
    derive,
    forward_dynamics,
    Prepared,
    Settings,
    solved_constraint_forces,
    solved_forces,
    step_inputs,
    StepInputs,
)


class Generalized(AbstractPipeline):
    r"""MuJoCo's physics in joint coordinates, differentiable with respect to every
    parameter.

    Smooth dynamics, soft constraints and integrators are those of MuJoCo (see its
    documentation, *Computation*): `q` and `qd` equal those of `mj_step` on the same
    file with a converged Newton solver. The solver iterates until convergence (most
    states need 2 to 5 steps; `Newton` has the limits), and derivatives are computed
    implicitly at the solution.

    **Arguments:**

    - `smoothing`: width $w$ of the onset of contacts, m. By default there is none, as
        in MuJoCo: a shape that does not touch has zero contact force and zero contact
        gradient. With $w > 0$, a contact at distance $r$ has the weight $D/(1 +
        e^{r/w})$ and the distance $-w \log(1 + e^{-r/w})$: a force acts within a few
        widths before the surface, and in penetration the model approaches MuJoCo's,
        with a shift of at most $w \log 2$. The width is an array: it can be annealed to
        0, which is MuJoCo's model, batched, and differentiated without recompiling.
    - `solver`: settings of the solver.
    - `constraints`: kinds of constraints to simulate; see
        `eqsim.constraint.AbstractConstraint` to add one.
    - `integrator`: integration method: `Euler()`, `RungeKutta4()`, `Implicit()`,
        `ImplicitFast()`, or your own. By default, that of the robot
        (`System.integrator`).
    - `max_contacts`: largest number of contacts that `solve`, `contacts` and sensors
        report: the deepest ones. None: 64. It does not limit the physics, or
        `contact_wrenches`.
    """

    smoothing: Float[Array, ""] | None = eqx.field(converter=as_array, default=None)
    solver: Newton = Newton()
    constraints: tuple[AbstractConstraint, ...] = ALL
    integrator: AbstractIntegrator | None = None
    max_contacts: int | None = eqx.field(static=True, default=None)

    def __check_init__(self):
        _check_smoothing(self.smoothing)
        check_max_contacts(self)

    def init(
        self,
        sys: System,
        q: Float[Array, " nq"] | None = None,
        qd: Float[Array, " nv"] | None = None,
    ) -> State:
        check_state(sys, q, qd)
        check_finite(sys)
        _check_smoothing(self.smoothing)
        return first_state(sys, q, qd)

    def prepare(self, sys: System) -> Prepared:
        """Compute all quantities that depend on a robot and this pipeline alone, such as
        inverse weights of links.

        All methods accept the result in place of the robot, and then compute only what
        depends on the state: call it before a loop of your own. Derivatives with respect
        to the robot include those of derived quantities if `prepare` is part of the
        differentiated function.

        **Arguments:**

        - `sys`: the robot, or a batch of robots under `eqx.filter_vmap`.
        """
        check_state(sys)
        smoothing = self.smoothing
        if smoothing is not None:
            smoothing = smoothing.astype(sys.dt.dtype)
        settings = Settings(self.constraints, self.solver, smoothing)
        return Prepared(sys, settings, _derive(sys, settings))

    def step(
        self,
        sys: System | Prepared,
        state: State,
        ctrl: Float[Array, " nu"],
        external: Float[Array, "nlink 6"] | None = None,
    ) -> State:
        parts = self._parts(("state",), sys, state, ctrl, external)
        return parts["state"]

    def solve(
        self,
        sys: System | Prepared,
        state: State,
        ctrl: Float[Array, " nu"],
        external: Float[Array, "nlink 6"] | None = None,
    ) -> Solved:
        """Solve for accelerations and forces in a state, before integration.

        **Arguments:** as for `step`.
        """
        return Solved(**self._parts(_SOLVED, sys, state, ctrl, external))

    def advance(
        self,
        sys: System | Prepared,
        state: State,
        ctrl: Float[Array, " nu"],
        external: Float[Array, "nlink 6"] | None = None,
    ) -> tuple[State, Solved]:
        """Take a step, and return the accelerations and forces at its start.

        **Arguments:** as for `step`.

        **Returns:** the results of `step` and `solve`. The equations of motion are
        solved only once for both, except with `RungeKutta4`, which needs one additional
        solve.
        """
        parts = self._parts(("state", *_SOLVED), sys, state, ctrl, external)
        new = parts.pop("state")
        return new, Solved(**parts)

    def _parts(
        self,
        wanted: tuple[str, ...],
        sys: System | AbstractPrepared,
        state: State,
        ctrl,
        external,
    ) -> dict[str, Any]:
        """Compute parts of the solution, see `AbstractPipeline._parts`, and `state`, the
        next state. `step`, `solve` and `advance` are this function."""
        prepared, inputs = _arguments(self, sys, state, ctrl, external)
        robot = prepared.sys
        integrator = self.integrator or integrator_of(robot)
        size = num_reported(robot, self.max_contacts) if "contacts" in wanted else 0
        parts = _compute(wanted, integrator, size, prepared, inputs)
        if "state" in parts:
            q, qd, act = parts["state"]
            # A zero-size output drops its sharding, so keep the input's.
            act = act if robot.na else state.act
            parts["state"] = State(q, qd, act, state.aux)
        if "contacts" in parts:
            parts["contacts"] = make_contacts(robot, state, parts["contacts"])
        return parts

    def sensors(
        self,
        sys: System | Prepared,
        state: State,
        ctrl: Float[Array, " nu"],
        external: Float[Array, "nlink 6"] | None = None,
        time: Float[Array, ""] | float | None = None,
    ) -> dict[str, Float[Array, " size"]]:
        """Compute the values of all sensors of a robot, by name (MuJoCo: `sensordata`).

        The equations of motion are solved once, and only if a sensor needs it.

        **Arguments:** as for `step`, and

        - `time`: time of the state, s, which is not part of `State`; the value of clock
            sensors.

        **Returns:** one array per sensor, in the order of `sys.sensors.names`.
        """
        prepared, inputs = _arguments(self, sys, state, ctrl, external)
        robot = prepared.sys
        _check_time(robot, time)
        if not robot.nsensor:
            return {}
        time = jnp.asarray(0.0 if time is None else time, state.q.dtype)
        size = num_reported(robot, self.max_contacts)
        values = _sensors(size, prepared, inputs, time)
        return {name: values[name] for name in robot.sensors.names}


_SOLVED = tuple(field.name for field in dataclasses.fields(Solved))


def _check_time(sys: System, time) -> None:
    if time is None and SensorKind.CLOCK in sys.sensors.kinds:
        name = sys.sensors.names[sys.sensors.kinds.index(SensorKind.CLOCK)]
        raise ValueError(
            f"Sensor {name!r} is a clock, but `State` has no time. Pass `time=`."
        )


def _check_smoothing(smoothing) -> None:
    if isinstance(smoothing, Tracer) or not eqx.is_array(smoothing):
        return
    width = np.asarray(smoothing)
    if width.shape or not (np.isfinite(width) and width >= 0.0):
        raise ValueError(
            "`Generalized.smoothing` must be one width in meters, or zero for the "
            f"exact model, got {smoothing}."
        )


_derive = batch_last(derive)


def _arguments(
    pipeline: Generalized, sys: System | AbstractPrepared, state: State, ctrl, external
) -> tuple[Prepared, StepInputs]:
    """Check the arguments of a step, and prepare the robot unless it is."""
    robot = sys.sys if isinstance(sys, AbstractPrepared) else sys
    check_step(robot, state, ctrl, external)
    prepared = sys if isinstance(sys, Prepared) else pipeline.prepare(robot)
    return prepared, step_inputs(state, ctrl, external)


@batch_last
def _compute(
    wanted: tuple[str, ...],
    integrator: AbstractIntegrator,
    size: int,
    prepared: Prepared,
    inputs: StepInputs,
) -> dict[str, Any]:
    """Compute parts of the solution, and of the next state."""
    inputs = full_batch(inputs, prepared)
    if wanted == ("state",):
        return {"state": integrator.step(prepared, inputs)}
    if "state" not in wanted:
        return _solved(wanted, size, prepared, forward_dynamics(prepared, inputs))
    new, now = integrator.advance(prepared, inputs)
    rest = tuple(name for name in wanted if name != "state")
    return {"state": new, **_solved(rest, size, prepared, now)}


def _solved(
    wanted: tuple[str, ...], size: int, prepared: Prepared, now: RobotData
) -> dict[str, Any]:
    """Return parts of the solution, see `AbstractPipeline._parts`."""
    solution = now.solution
    found = {"qdd": solution.qdd, "actuator_force": now.drive.force}
    if "converged" in wanted:
        points, converged = now.points, solution.converged
        if points is not None:
            converged = points.unless_crowded(converged)
        if now.listing is not None:
            converged = now.listing.unless_crowded(converged)
        found["converged"] = converged
    if not {*wanted} <= {*found}:
        forces = solved_forces(prepared, now)
        total = solved_constraint_forces(prepared, now, forces)
        found["constraint_force"] = total
        if "contacts" in wanted:
            report = reported_contacts(prepared, now, forces, size)
            found["contacts"] = contact_arrays(report)
        if "contact_wrenches" in wanted:
            ang, lin = summed_wrenches(prepared, now, forces)
            found["contact_wrenches"] = jnp.concatenate(
                [stack(ang), stack(lin)], axis=1
            )
    return {name: found[name] for name in wanted}


@batch_last
def _sensors(size: int, prepared: Prepared, inputs: StepInputs, time):
    inputs, time = full_batch((inputs, time), prepared)
    return measure(prepared, inputs, size, time)
