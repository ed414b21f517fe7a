"""Accelerations, one step and sensors of eqsim and of MuJoCo C, in the same states."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from _reference import batch_of, errors, forward, solution
from _states import States
from _variations import stacked

import eqsim
from eqsim.io.mjcf._names import element_names


class Outcome(NamedTuple):
    """What one engine computes in a batch of states.

    - `qdd`: accelerations.
    - `step`: coordinates, velocities and activations after one step; NaN where MuJoCo
        gave up.
    - `sensors`: one array per sensor, by name.
    """

    qdd: np.ndarray
    step: np.ndarray
    sensors: dict[str, np.ndarray]


class Rows(NamedTuple):
    """MuJoCo's constraint rows, contacts and residual in each state."""

    rows: np.ndarray
    contacts: np.ndarray
    residual: np.ndarray


class Errors(NamedTuple):
    """Relative errors in each state; `sensors` by name."""

    qdd: np.ndarray
    step: np.ndarray
    sensors: dict[str, np.ndarray]


def ours(
    sys: eqsim.System, states: States, options: dict[str, Any] | None = None
) -> Outcome:
    """What eqsim computes.

    **Arguments:**

    - `options`: options of XLA's compiler.
    """
    (found,) = ours_of_each([sys], [states], options)
    return found


def ours_of_each(
    systems: list[eqsim.System],
    states: list[States],
    options: dict[str, Any] | None = None,
) -> list[Outcome]:
    """What eqsim computes for robots of one structure, by one program. Each has its own
    states, as many as the others."""
    pairs = [batch_of(sys, own) for sys, own in zip(systems, states, strict=True)]
    batch, ctrl = jax.tree.map(lambda *xs: jnp.stack(xs), *pairs)
    one_robot = len(systems) == 1
    sys = systems[0] if one_robot else stacked(systems)
    dynamic, static = eqx.partition((sys, batch, ctrl), eqx.is_array)
    pipeline = eqsim.Generalized()

    def one(sys, state, ctrl):
        after, solved = pipeline.advance(sys, state, ctrl)
        return Outcome(
            solved.qdd,
            jnp.concatenate([after.q, after.qd, after.act]),
            pipeline.sensors(sys, state, ctrl, time=0.0),
        )

    def run(dynamic):
        sys, batch, ctrl = eqx.combine(dynamic, static)
        each = eqx.filter_vmap(one, in_axes=(None, 0, 0))
        every = eqx.filter_vmap(each, in_axes=(None if one_robot else 0, 0, 0))
        return every(sys, batch, ctrl)

    found = jax.jit(run, compiler_options=options)(dynamic)
    found = jax.tree.map(lambda x: np.asarray(x, np.float64), found)
    return [jax.tree.map(lambda x: x[k], found) for k in range(len(systems))]


_RESETS = (
    int(mujoco.mjtWarning.mjWARN_BADQPOS),
    int(mujoco.mjtWarning.mjWARN_BADQVEL),
    int(mujoco.mjtWarning.mjWARN_BADQACC),
)


def theirs(
    sys: eqsim.System, model: mujoco.MjModel, states: States
) -> tuple[Outcome, Rows]:
    """What MuJoCo computes.

    **Arguments:**

    - `sys`: the robot whose sensors are read; they may be fewer than MuJoCo's.
    - `model`: a model that `converge` returned.
    """
    data, found = mujoco.MjData(model), []
    for i in range(len(states)):
        forward(model, data, states, i)
        qdd, sensed = data.qacc.copy(), data.sensordata.copy()
        residual = solution(model, data, qdd).residual
        rows = data.nefc, data.ncon, residual
        mujoco.mj_step(model, data)
        after = np.concatenate([data.qpos, data.qvel, data.act])
        # MuJoCo resets a robot whose numbers are larger than 1e10.
        reset = any(data.warning[kind].number for kind in _RESETS)
        after = np.nan * after if reset else after
        found.append((qdd, after, sensed, *rows))
    qdd, after, sensed, *rows = map(np.array, zip(*found))
    parts = {name: sensed[:, sensor_columns(model, name)] for name in sys.sensors.names}
    return Outcome(qdd, after, parts), Rows(*rows)


def sensor_columns(model: mujoco.MjModel, name: str) -> slice:
    """Where the values of a sensor are in `sensordata`; a sensor without a name has the
    one that the loader makes up."""
    index = element_names(model, "sensor").index(name)
    start = int(model.sensor_adr[index])
    return slice(start, start + int(model.sensor_dim[index]))


def compared(value: Outcome, target: Outcome) -> Errors:
    """Errors relative to `max(1, largest number)`, of each sensor for itself."""
    pairs = ((name, value.sensors[name], x) for name, x in target.sensors.items())
    return Errors(
        errors(value.qdd, target.qdd),
        errors(value.step, target.step),
        {name: errors(one, two) for name, one, two in pairs if two.shape[1]},
    )


def quick_compile() -> dict[str, Any] | None:
    """Options of the compiler for what runs once: the same operations, less tuned."""
    if jax.default_backend() != "cpu":
        return None
    return {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}
