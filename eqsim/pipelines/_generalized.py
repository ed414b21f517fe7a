r"""Pipeline with MuJoCo's model in joint coordinates."""

import dataclasses
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from .._batching import batch_last, full_batch
from ..constraint import AbstractConstraint, ALL, Newton
from ..model import check_finite, check_state, SensorKind, State, System
from ..model._fields import as_array
from ..spatial._vector import stack
from ._contacts import (
    check_max_contacts,
    contact_arrays,
    make_contacts,
    num_reported,
)
from ._forward import (
    Constants,
    derive,
    Forward,
    forward,
    Method,
    solved_constraint_forces,
    solved_forces,
)
from ._integrators import AbstractIntegrator, integrator_of
from ._pipeline import AbstractPipeline, check_input, first_state
from ._reported import reported_contacts, summed_wrenches
from ._sensing import measure
from ._solved import Solved


class Generalized(AbstractPipeline):
    r"""MuJoCo's physics in joint coordinates, differentiable with respect to every
    parameter.

    Smooth dynamics, soft constraints and integrators are those of MuJoCo (see its
    documentation, *Computation*): `q` and `qd` equal those of `mj_step` on the same
    file with a converged Newton solver. The solver iterates until convergence (at most
    50 steps; most states need 2 to 5), and derivatives are computed implicitly at the
    solution.

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

    def step(
        self,
        sys: System,
        state: State,
        ctrl: Float[Array, " nu"],
        external: Float[Array, "nlink 6"] | None = None,
    ) -> State:
        integrator = self.integrator or integrator_of(sys)
        arguments = _arguments(self, sys, state, ctrl, external)
        return _state(sys, state, _step(integrator, *arguments))

    def solve(
        self,
        sys: System,
        state: State,
        ctrl: Float[Array, " nu"],
        external: Float[Array, "nlink 6"] | None = None,
    ) -> Solved:
        """Solve for accelerations and forces in a state, before integration.

        **Arguments:** as for `step`.
        """
        return Solved(**self._parts(_SOLVED, sys, state, ctrl, external))

    def _parts(
        self, wanted: tuple[str, ...], sys: System, state: State, ctrl, external
    ) -> dict[str, Any]:
        arguments = _arguments(self, sys, state, ctrl, external)
        reports = "contacts" in wanted
        size = num_reported(sys, self.max_contacts) if reports else 0
        return _with_contacts(sys, state, _solve(wanted, size, *arguments))

    def advance(
        self,
        sys: System,
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
        integrator = self.integrator or integrator_of(sys)
        arguments = _arguments(self, sys, state, ctrl, external)
        size = num_reported(sys, self.max_contacts)
        new, solved = _advance(integrator, size, *arguments)
        solved = Solved(**_with_contacts(sys, state, solved))
        return _state(sys, state, new), solved

    def sensors(
        self,
        sys: System,
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
        _check_time(sys, time)
        arguments = _arguments(self, sys, state, ctrl, external)
        if not sys.nsensor:
            return {}
        time = jnp.asarray(0.0 if time is None else time, state.q.dtype)
        size = num_reported(sys, self.max_contacts)
        values = _sensors(size, *arguments, time)
        return {name: values[name] for name in sys.sensors.names}


def _state(sys: System, old: State, new) -> State:
    q, qd, act = new
    # A zero-size output drops its sharding, so keep the input's.
    return State(q, qd, act if sys.na else old.act, old.aux)


_SOLVED = tuple(field.name for field in dataclasses.fields(Solved))


def _with_contacts(sys: System, state: State, parts: dict) -> dict:
    """Return parts of the solution with the contacts in their public form."""
    if "contacts" in parts:
        contacts = make_contacts(sys, state, parts["contacts"])
        parts = {**parts, "contacts": contacts}
    return parts


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


def _arguments(pipeline: Generalized, sys: System, state: State, ctrl, external):
    check_input(sys, state, ctrl, external)
    smoothing = pipeline.smoothing
    if smoothing is not None:
        smoothing = smoothing.astype(state.q.dtype)
    method = Method(pipeline.constraints, pipeline.solver, smoothing)
    constants = _derive(sys, method)
    return sys, method, constants, state.q, state.qd, state.act, ctrl, external


def _derive_fn(sys, method):
    return derive(sys, method)


def _step_fn(integrator, sys, method, constants, *state_and_input):
    full = full_batch(state_and_input, sys, constants)
    return integrator.step(sys, method, constants, *full)


def _solve_fn(wanted, size, sys, method, constants, *state_and_input):
    full = full_batch(state_and_input, sys, constants)
    now = forward(sys, method, constants, *full)
    return _solved(wanted, size, sys, method, constants, now)


def _advance_fn(integrator, size, sys, method, constants, *state_and_input):
    full = full_batch(state_and_input, sys, constants)
    new, now = integrator.advance(sys, method, constants, *full)
    return new, _solved(_SOLVED, size, sys, method, constants, now)


def _solved(
    wanted: tuple[str, ...],
    size: int,
    sys: System,
    method: Method,
    constants: Constants,
    now: Forward,
) -> dict:
    """Return parts of the solution, see `AbstractPipeline._parts`."""
    solution = now.solution
    found = {"qdd": solution.qdd, "actuator_force": now.drive.force}
    if "converged" in wanted:
        points, converged = now.points, solution.converged
        if points is not None:
            converged = points.unless_crowded(converged)
        found["converged"] = converged
    if not {*wanted} <= {*found}:
        forces = solved_forces(sys, now)
        found["constraint_force"] = solved_constraint_forces(sys, now, forces)
        where = sys, method, constants, now, forces
        if "contacts" in wanted:
            found["contacts"] = contact_arrays(reported_contacts(*where, size))
        if "contact_wrenches" in wanted:
            total = summed_wrenches(*where)
            parts = stack(total.ang), stack(total.lin)
            found["contact_wrenches"] = jnp.concatenate(parts, axis=1)
    return {name: found[name] for name in wanted}


def _sensors_fn(size, sys, method, constants, q, qd, act, ctrl, external, time):
    first = q, qd, act, ctrl, external, time
    *arguments, time = full_batch(first, sys, constants)
    return measure(sys, method, constants, size, time, *arguments)


_advance = batch_last(_advance_fn)
_derive = batch_last(_derive_fn)
_sensors = batch_last(_sensors_fn)
_solve = batch_last(_solve_fn)
_step = batch_last(_step_fn)
