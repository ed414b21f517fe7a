"""The pipeline `Mjx`."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
from jax import lax
from jaxtyping import Array, Float

from eqsim import AbstractPipeline, scan, State, System
from eqsim.kinematics import integrate
from eqsim.model import check_finite, check_state, check_step, Integrator
from eqsim.model.arrays import as_array
from eqsim.pipelines import deepest_contacts, Solved

from ._dynamics import contact_geoms, contacts_of, Forward, forward
from ._numbers import fill
from ._template import mjx, Settings, Template, template


class Mjx(AbstractPipeline):
    r"""MuJoCo's physics computed by MJX, with corrected derivatives.

    A step equals `mjx.step` on the same robot with a converged solver: `q` and `qd`
    agree to rounding. All inputs of MJX are recomputed from `sys`, `q`, `qd` and `act`
    in every step, so derivatives never use outdated values. Only the accelerations of
    the previous step are kept (`State.aux`), as the initial guess of the solver.

    Unlike `mjx.step`, it supports both modes of differentiation, with respect to
    states, controls and every parameter of the robot: the solver only determines the
    active constraints, and the resulting equation is differentiated. `iterations=1` is
    therefore not needed.

    **Arguments:**

    - `iterations`: largest number of solver iterations.
    - `ls_iterations`: largest number of iterations of each line search.
    - `tolerance`: relative improvement of an iteration below which the solver stops.

    MJX computes in JAX's default precision, independently of the robot; the state has
    the precision of its coordinates.

    ??? cite "Reference"
        MuJoCo documentation, *MuJoCo XLA (MJX)*.
    """

    iterations: int = eqx.field(static=True, default=100)
    ls_iterations: int = eqx.field(static=True, default=50)
    tolerance: Float[Array, ""] = eqx.field(converter=as_array, default=1e-8)

    def __check_init__(self):
        for name in ("iterations", "ls_iterations"):
            value = vars(self)[name]
            if not isinstance(value, int) or value < 1:
                raise ValueError(
                    f"`Mjx.{name}` must be an integer of at least 1, got {value!r}. "
                    f"MuJoCo's default is {100 if name == 'iterations' else 50}."
                )

    def init(
        self,
        sys: System,
        q: Float[Array, " nq"] | None = None,
        qd: Float[Array, " nv"] | None = None,
    ) -> State:
        """Create a state, as in `AbstractPipeline`.

        **Raises:** `ValueError` with the unsupported features, if MJX cannot simulate
        this robot.
        """
        check_state(sys, q, qd)
        check_finite(sys)
        with _lenient():
            template(sys, self._settings)
        q = sys.joints.ref if q is None else q
        qd = jnp.zeros(sys.nv, q.dtype) if qd is None else qd
        return State(q, qd, jnp.zeros(sys.na, q.dtype), jnp.zeros(sys.nv, q.dtype))

    def step(
        self,
        sys: System,
        state: State,
        ctrl: Float[Array, " nu"],
        external: Float[Array, "nlink 6"] | None = None,
    ) -> State:
        new = self._with(_step, sys, state, ctrl, external)
        return _state(sys, state, new)

    def solve(
        self,
        sys: System,
        state: State,
        ctrl: Float[Array, " nu"],
        external: Float[Array, "nlink 6"] | None = None,
    ) -> Solved:
        """Solve as in `AbstractPipeline`, with the contacts of MJX. `converged` is true if
        all values are finite, because MJX does not report convergence."""
        arrays = self._with(_solve, sys, state, ctrl, external)
        return self._report(sys, state, arrays)

    def advance(
        self,
        sys: System,
        state: State,
        ctrl: Float[Array, " nu"],
        external: Float[Array, "nlink 6"] | None = None,
    ) -> tuple[State, Solved]:
        both = self._with(_advance, sys, state, ctrl, external)
        return _state(sys, state, both[0]), self._report(sys, state, both[1])

    def _report(self, sys: System, state: State, arrays) -> Solved:
        with _lenient():
            geoms = contact_geoms(template(sys, self._settings))
        convert = lambda x: x.astype(state.q.dtype) if eqx.is_inexact_array(x) else x
        qdd, constraint, actuator, finite, points = jtu.tree_map(convert, arrays)
        contacts = deepest_contacts(geoms, *points, max_contacts=len(geoms))
        return Solved(qdd, contacts, constraint, actuator, finite)

    @property
    def _settings(self) -> Settings:
        return Settings(self.iterations, self.ls_iterations)

    def _with(self, fn: Callable, sys: System, state: State, ctrl, external) -> Any:
        """Call `fn(sys, engine, state)`, compiled, in the precision in which MJX
        computes."""
        _check_input(sys, state, ctrl, external)
        arguments = _converted((sys, state, ctrl, external, self.tolerance))
        sys, state, ctrl, external, tolerance = arguments
        # Compiled separately, so that a loop evaluates it once.
        model = _fill(self._settings, sys, tolerance)
        return _apply(fn, self._settings, sys, model, state, ctrl, external)


class _Engine(NamedTuple):
    """MJX's structures of a robot, and its dynamics in any state."""

    frame: Template
    model: Any
    dynamics: Callable[[State], Forward]


def _converted(tree: Any) -> Any:
    convert = lambda x: x.astype(float) if eqx.is_inexact_array(x) else x
    return jtu.tree_map(convert, tree)


@eqx.filter_jit
def _fill(settings: Settings, sys: System, tolerance: Any) -> Any:
    with _lenient():
        return fill(sys, template(sys, settings), tolerance)


@eqx.filter_jit
def _apply(fn, settings: Settings, sys: System, model, state: State, ctrl, external):
    with _lenient():
        frame = template(sys, settings)
        dynamics = lambda at: forward(sys, frame, model, at, ctrl, external)
        return fn(sys, _Engine(frame, model, dynamics), state)


@contextlib.contextmanager
def _lenient() -> Iterator[None]:
    """Allow mixed ranks and types, which MJX uses and a user may have forbidden."""
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        yield


def _check_input(sys: System, state: State, ctrl: Any, external: Any) -> None:
    check_step(sys, state, ctrl)
    if external is not None and jnp.shape(external) != (sys.nlink, 6):
        raise ValueError(
            f"`external` must have shape ({sys.nlink}, 6), torque and force on each "
            f"link, got {jnp.shape(external)}. For a batch use `eqx.filter_vmap`."
        )


def _euler(sys: System, engine: _Engine, state: State):
    """Take a semi-implicit Euler step with implicit joint damping."""
    now = engine.dynamics(state).data
    new = mjx.euler(engine.model, now)
    # MJX's rotation by a velocity has zero derivative at zero velocity.
    q = integrate(sys, state.q, sys.dt * new.qvel)
    return q, new.qvel, new.act, now.qacc


def _rk4(sys: System, engine: _Engine, state: State):
    """Take a Runge-Kutta step of order four, as in MJX: stages are rotated from the
    initial state by their velocity."""
    h, still = sys.dt, jnp.zeros_like(state.qd)
    begin = still if state.aux is None else state.aux
    start = State(state.q, state.qd, state.act, begin)

    def stage(carry, numbers):
        (place, mean), (weight, share) = carry, numbers
        now = engine.dynamics(place).data
        rate = (place.qd, now.qacc, now.act_dot)
        mean = jtu.tree_map(lambda x, y: x + weight * y, mean, rate)
        place = State(
            integrate(sys, state.q, share * h * rate[0]),
            state.qd + share * h * rate[1],
            state.act + share * h * rate[2],
            lax.stop_gradient(now.qacc),
        )
        return (place, mean), None

    weights = jnp.array([1 / 6, 1 / 3, 1 / 3, 1 / 6])
    shares = jnp.array([0.5, 0.5, 1.0, 0.0])
    none = (still, still, jnp.zeros_like(state.act))
    (last, mean), _ = scan(stage, (start, none), (weights, shares))
    option = engine.model.opt
    flags = option.disableflags | mjx.DisableBit.EULERDAMP
    explicit = engine.model.replace(opt=option.replace(disableflags=flags))
    data = jtu.tree_map(jnp.asarray, engine.frame.data)
    data = data.replace(qpos=state.q, qvel=state.qd, act=state.act)
    new = mjx.euler(explicit, data.replace(qacc=mean[1], act_dot=mean[2]))
    return integrate(sys, state.q, h * mean[0]), new.qvel, new.act, last.aux


def _step(sys: System, engine: _Engine, state: State):
    step = _euler if sys.integrator is Integrator.EULER else _rk4
    return step(sys, engine, state)


def _advance(sys: System, engine: _Engine, state: State):
    return _step(sys, engine, state), _solve(sys, engine, state)


def _state(sys: System, old: State, new: tuple) -> State:
    q, qd, act, warm = new
    dtype = old.q.dtype
    aux = None if old.aux is None else lax.stop_gradient(warm.astype(dtype))
    act = act.astype(dtype) if sys.na else old.act
    return State(q.astype(dtype), qd.astype(dtype), act, aux)


def _solve(sys: System, engine: _Engine, state: State):
    now = engine.dynamics(state)
    data = now.data
    finite = jnp.all(jnp.isfinite(data.qacc))
    forces = data.qfrc_constraint, data.actuator_force
    return data.qacc, *forces, finite, contacts_of(now)
