"""Robots, their initial states, and the simulators that step them.

`model_file` finds an MJCF file by name. `start` and `moved` draw initial states and controls
with MuJoCo C. A `Simulator` is a step function of eqsim, MJX or Brax with its robot;
`mujoco_call` runs MuJoCo C. All take the same states and controls.
"""

import dataclasses
import importlib
import importlib.util
import os
import pathlib
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import mujoco
import mujoco.rollout
import numpy as np
from _bench import say
from jax import lax
from jaxtyping import Array, Bool, Float, PRNGKeyArray

import eqsim
from eqsim import AbstractPipeline, AbstractTask, State, System
from eqsim.model import Integrator


TIMED = ("brax_ant", "ant", "half_cheetah", "humanoid")
"""Timed robots. Brax's ant has 4 possible contacts, Gymnasium's ant 25, its humanoid 126."""
SUBSTEPS = 5
"""Number of physics steps for which a control is constant."""
STARTS = ("airborne", "settled")
SCALE = {"airborne": 1.0, "settled": 0.05}
"""Size of the random controls, in units of half their range."""
DISTINCT = 256
"""Number of different states in a batch; a larger batch repeats them, with other
controls."""
REST = 3.0
"""Time that a robot has to come to rest, s."""
MENAGERIE = (
    "unitree_go2/scene.xml",
    "boston_dynamics_spot/scene.xml",
    "agility_cassie/scene.xml",
    "shadow_hand/scene_right.xml",
    "aloha/scene.xml",
    "universal_robots_ur5e/scene.xml",
    "franka_emika_panda/scene.xml",
    "unitree_g1/scene.xml",
    "leap_hand/scene_right.xml",
)
"""Scenes of https://github.com/google-deepmind/mujoco_menagerie."""
SETTLE = 200
"""Number of steps from the first keyframe to the states of `menagerie_start`."""
THREADS = os.cpu_count() or 1


class NotInstalled(Exception):
    """The package of a file or of a simulator is not installed."""


def package(name: str) -> pathlib.Path:
    """Return the folder of a package, without importing it."""
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise NotInstalled(f"{name} is not installed: pip install 'eqsim[bench]'")
    return pathlib.Path(spec.origin).parent


def model_file(name: str) -> pathlib.Path:
    """Return the MJCF file of a robot.

    **Arguments:**

    - `name`: name of a file of Gymnasium, without suffix; `brax_` and a name for a file
        of Brax; `"barkour"` for the quadruped among the test data of MJX; or a path
        that ends with `.xml`.

    **Raises:** `NotInstalled` if the package is missing, `ValueError` if the file is.
    """
    if name.endswith(".xml"):
        return pathlib.Path(name)
    if name == "barkour":
        folder = package("mujoco.mjx") / "test_data" / "barkour_v0" / "assets"
        file = folder / "barkour_v0_mjx.xml"
    elif name.startswith("brax_"):
        file = package("brax") / "envs" / "assets" / f"{name[5:]}.xml"
    else:
        file = package("gymnasium") / "envs" / "mujoco" / "assets" / f"{name}.xml"
    if not file.exists():
        known = sorted(other.stem for other in file.parent.glob("*.xml"))
        raise ValueError(
            f"There is no model {name!r}. Files there: {', '.join(known)}."
        )
    return file


def load(source: str | pathlib.Path) -> tuple[System, mujoco.MjModel]:
    """Return a robot in eqsim and in MuJoCo, with Euler and the Newton solver, which all
    simulators support.

    **Arguments:**

    - `source`: name of a robot, see `model_file`, path, or MJCF text.
    """
    if isinstance(source, str) and source.lstrip().startswith("<"):
        model, sys = mujoco.MjModel.from_xml_string(source), eqsim.load_mjcf(source)
    else:
        path = model_file(str(source))
        model, sys = mujoco.MjModel.from_xml_path(str(path)), eqsim.load_mjcf(path)
    model.opt.integrator = mujoco.mjtIntegrator.mjINT_EULER
    model.opt.solver = mujoco.mjtSolver.mjSOL_NEWTON
    return dataclasses.replace(sys, integrator=Integrator.EULER), model


def robots(names: Sequence[str]) -> Iterator[tuple[str, System, mujoco.MjModel]]:
    """Yield each robot in eqsim and in MuJoCo; report missing robots."""
    for name in names:
        try:
            yield name, *load(name)
        except NotInstalled as error:
            say(f"{name} is left out: {error}")


def converge(model: mujoco.MjModel) -> mujoco.MjModel:
    """Make MuJoCo solve each step as exactly as possible."""
    model.opt.iterations, model.opt.tolerance = 200, 0.0
    model.opt.ls_iterations, model.opt.ls_tolerance = 200, 1e-12
    model.opt.ccd_iterations, model.opt.ccd_tolerance = 500, 1e-12
    return model


# Initial states.


class Start(NamedTuple):
    """States of a batch, and controls `(batch, length, nu)`, in double precision."""

    q: np.ndarray
    qd: np.ndarray
    act: np.ndarray
    ctrl: np.ndarray

    def first(self, count: int) -> "Start":
        """Return the first states."""
        return Start(*(x[:count] for x in self))

    def arrays(self) -> tuple[jax.Array, ...]:
        """Return coordinates, velocities, activations and controls in JAX."""
        return tuple(jnp.asarray(x, jnp.result_type(float)) for x in self)


def control_range(model: mujoco.MjModel) -> tuple[np.ndarray, np.ndarray]:
    """Return lower and upper bounds of the controls; -1 and 1 without bounds."""
    limited = model.actuator_ctrllimited[:, None].astype(bool)
    low, high = np.where(limited, model.actuator_ctrlrange, [-1.0, 1.0]).T
    return low, high


def start(kind: str, model: mujoco.MjModel, batch: int, length: int) -> Start:
    """Draw states of a kind of `STARTS`, exact in the precision of JAX.

    **Arguments:**

    - `length`: number of control steps.
    """
    rng, few = np.random.default_rng(1), min(batch, DISTINCT)
    low, high = control_range(model)
    middle, half = 0.5 * (low + high), 0.5 * SCALE[kind] * (high - low)
    controls = lambda *shape: rng.uniform(middle - half, middle + half, shape)
    q = np.tile(model.qpos0, (few, 1))
    for row in q:
        mujoco.mj_integratePos(model, row, 0.1 * rng.normal(size=model.nv), 1.0)
    if kind == "airborne":
        # So high that no robot touches the ground before the simulation ends.
        duration = length * SUBSTEPS * model.opt.timestep
        q[:, _heights(model)] += 1.0 + 0.5 * np.max(-model.opt.gravity) * duration**2
        qd = 0.1 * rng.normal(size=(few, model.nv))
    else:
        steps = int(np.ceil(REST / (model.opt.timestep * SUBSTEPS)))
        first = np.zeros((few, 1 + model.nq + model.nv + model.na))
        first[:, 1 : 1 + model.nq] = q
        drive = np.repeat(controls(few, steps, model.nu), SUBSTEPS, axis=1)
        q, qd, _ = _split(model, _rollout(model, first, drive)[:, -1])
    q, qd = (np.resize(x, (batch, x.shape[1])) for x in (q, qd))
    dtype = jnp.result_type(float)
    q, qd = (np.asarray(x, dtype).astype(np.float64) for x in (q, qd))
    return Start(q, qd, np.zeros((batch, model.na)), controls(batch, length, model.nu))


def moved(
    model: mujoco.MjModel,
    batch: int,
    *,
    steps: int = 400,
    hold: int = 100,
    scale: float = 1.0,
    distinct: int = DISTINCT,
) -> Start:
    """Draw states after some motion from the first keyframe (from the reference pose
    without one) under random controls, and one more control each.

    **Arguments:**

    - `steps`, `hold`: number of steps, and of those with the same control.
    - `scale`: size of the controls in units of half their range; below 1, they are around
        those of the keyframe.
    """
    data, rng = mujoco.MjData(model), np.random.default_rng(0)
    if model.nkey:
        mujoco.mj_resetDataKeyframe(model, data, 0)
    low, high = control_range(model)
    middle = 0.5 * (low + high) if scale == 1.0 else data.ctrl
    half = 0.5 * scale * (high - low)

    def controls(*shape):
        drawn = middle + half * rng.uniform(-1.0, 1.0, (*shape, model.nu))
        return np.clip(drawn, low, high)

    few = min(batch, distinct)
    first = np.concatenate([[0.0], data.qpos, data.qvel, data.act])
    drive = np.repeat(controls(few, steps // hold), hold, axis=1)
    last = _rollout(model, np.tile(first, (few, 1)), drive)[:, -1]
    parts = (np.resize(x, (batch, x.shape[1])) for x in _split(model, last))
    return Start(*parts, controls(batch, 1))


def menagerie_start(model: mujoco.MjModel, batch: int) -> Start:
    """Draw states of a scene of MuJoCo Menagerie under small random controls."""
    return moved(model, batch, steps=SETTLE, hold=20, scale=0.1, distinct=1024)


def mean_contacts(model: mujoco.MjModel, start: Start) -> tuple[float, float]:
    """Return mean numbers of contacts and of constraint rows in the states, from a
    sample."""
    data, found = mujoco.MjData(model), []
    for i in np.unique(np.linspace(0, len(start.q) - 1, 64, dtype=int)):
        data.qpos[:], data.qvel[:], data.act[:] = (x[i] for x in start[:3])
        data.ctrl[:] = start.ctrl[i, 0]
        mujoco.mj_forward(model, data)
        found.append((data.ncon, data.nefc))
    contacts, rows = np.mean(found, axis=0)
    return float(contacts), float(rows)


def _heights(model: mujoco.MjModel) -> list[int]:
    """Return the positions in `qpos` of the heights of roots that can move along z."""
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    found = []
    for joint in range(model.njnt):
        if model.body_parentid[model.jnt_bodyid[joint]] != 0:
            continue
        at, kind = int(model.jnt_qposadr[joint]), model.jnt_type[joint]
        if kind == mujoco.mjtJoint.mjJNT_FREE:
            found.append(at + 2)
        elif kind == mujoco.mjtJoint.mjJNT_SLIDE and data.xaxis[joint, 2] > 0.99:
            found.append(at)
    return found


def _split(model: mujoco.MjModel, states: np.ndarray):
    """Return coordinates, velocities and activations of `mjSTATE_FULLPHYSICS`."""
    ends = np.cumsum([model.nq, model.nv])
    return np.split(states[..., 1:], ends, axis=-1)


def _rollout(model: mujoco.MjModel, first: np.ndarray, ctrl: np.ndarray) -> np.ndarray:
    workers = [mujoco.MjData(model) for _ in range(THREADS)]
    return np.asarray(mujoco.rollout.rollout(model, workers, first, ctrl)[0])


# Simulators.


def mujoco_call(
    model: mujoco.MjModel, start: Start, hold: int
) -> Callable[[int], np.ndarray]:
    """Return a call of MuJoCo C with one thread per core and preallocated output: it
    takes a number of controls, each held for `hold` steps, and returns all coordinates."""
    pool = mujoco.rollout.Rollout(nthread=THREADS)
    workers = [mujoco.MjData(model) for _ in range(THREADS)]
    first = np.concatenate([np.zeros((len(start.q), 1)), *start[:3]], axis=1)
    held = np.repeat(start.ctrl, hold, axis=1)
    outs: dict[int, np.ndarray] = {}

    def run(length: int) -> np.ndarray:
        steps = length * hold
        out = outs.setdefault(length, np.empty((len(first), steps, first.shape[1])))
        ctrl = np.ascontiguousarray(held[:, :steps])
        pool.rollout(model, workers, first, ctrl, nstep=steps, state=out)
        return out[..., 1 : 1 + model.nq]

    return run


class Simulator(NamedTuple):
    """A simulator with its robot, as functions of one robot that `jax.vmap` can batch.

    - `init(robot, q, qd, act)`, `step(robot, state, ctrl)`, `coordinates(state)`.
    - `mass`: masses of the links; `with_mass(robot, mass)` changes them.
    - `scan`: loop function of the library.
    - `substeps`: number of calls of `step` per physics step.
    """

    label: str
    robot: Any
    init: Callable
    step: Callable
    coordinates: Callable
    mass: Any
    with_mass: Callable
    scan: Callable = lax.scan
    substeps: int = 1

    def states(self, start: Start) -> Any:
        """Return the initial states of a batch."""
        q, qd, act, _ = start.arrays()
        return jax.vmap(self.init, (None, 0, 0, 0))(self.robot, q, qd, act)

    def hold(self, robot: Any, state: Any, ctrl: Any, steps: Any) -> Any:
        """Take steps of a batch under constant controls; their number may be traced."""
        every = jax.vmap(self.step, (None, 0, 0))
        return lax.fori_loop(0, steps, lambda _, x: every(robot, x, ctrl), state)


def eqsim_simulator(sys: System, pipeline: AbstractPipeline | None = None) -> Simulator:
    """Return eqsim with a pipeline, by default `Generalized`."""
    pipeline = eqsim.Generalized() if pipeline is None else pipeline
    where = lambda sys: sys.links.mass
    return Simulator(
        "eqsim",
        sys,
        lambda sys, q, qd, act: eqx.tree_at(
            lambda state: state.act, pipeline.init(sys, q, qd), act
        ),
        pipeline.step,
        lambda state: state.q,
        where(sys),
        lambda sys, mass: eqx.tree_at(where, sys, mass),
        eqsim.scan,
    )


def mjx_simulator(model: mujoco.MjModel, iterations: int | None = None) -> Simulator:
    """Return MJX, with the solver iterations of the file or a given number.

    **Raises:** `NotInstalled`.
    """
    package("mujoco.mjx")
    import mujoco.mjx

    changed = model.opt.iterations
    model.opt.iterations = changed if iterations is None else iterations
    robot, empty = mujoco.mjx.put_model(model), mujoco.mjx.make_data(model)
    model.opt.iterations = changed
    return Simulator(
        "MJX" if iterations is None else f"MJX ({iterations} it.)",
        robot,
        lambda _, q, qd, act: empty.replace(qpos=q, qvel=qd, act=act),
        lambda robot, data, ctrl: mujoco.mjx.step(robot, data.replace(ctrl=ctrl)),
        lambda data: data.qpos,
        robot.body_mass,
        lambda robot, mass: robot.replace(body_mass=mass),
    )


def brax_simulator(
    name: str, pipeline: str = "generalized", dt: float | None = None, substeps: int = 1
) -> Simulator:
    """Return Brax.

    **Arguments:**

    - `name`: name of a robot, see `model_file`.
    - `dt`: physics time step, s, by default that of the file; it is divided into
        `substeps`.

    **Raises:** `NotInstalled`.
    """
    package("brax")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from brax.io import mjcf

        engine = importlib.import_module(f"brax.{pipeline}.pipeline")
        sys = mjcf.load(model_file(name))
    if dt is not None:
        h = jnp.asarray(dt / substeps, jnp.result_type(float))
        sys = jax.device_put(sys.tree_replace({"opt.timestep": h}))
    return Simulator(
        f"Brax {pipeline}",
        sys,
        lambda sys, q, qd, act: engine.init(sys, q, qd),
        engine.step,
        lambda state: state.q,
        sys.link.inertia.mass,
        lambda sys, mass: sys.tree_replace({"link.inertia.mass": mass}),
        substeps=substeps,
    )


def simulators(
    name: str, model: mujoco.MjModel, chosen: Sequence[str]
) -> list[Simulator]:
    """Return the simulators of the given names for a robot, of `"mjx"`, `"mjx-1"` (one
    solver iteration) and `"brax"`; missing ones are skipped with a message."""
    makers = {
        "mjx": lambda: mjx_simulator(model),
        "mjx-1": lambda: mjx_simulator(model, 1),
        "brax": lambda: brax_simulator(name),
    }
    found = []
    for peer in chosen:
        try:
            found.append(makers[peer]())
        except (NotInstalled, NotImplementedError) as error:
            say(f"{name}: {peer} is left out: {error}")
    return found


def compiled(function: Callable, *arguments: Any) -> tuple[Callable[[], Any], float]:
    """Return a call of a program, and the seconds to trace, lower and compile it."""
    begin = time.perf_counter()
    program = jax.jit(function).lower(*arguments).compile()
    return lambda: program(*arguments), time.perf_counter() - begin


def error_of(q: Any, truth: np.ndarray) -> float:
    """Return the median over the robots of the largest difference of a coordinate,
    relative to max(1, largest coordinate): a check that the same motion was simulated."""
    q = np.asarray(q, np.float64)[: len(truth)]
    q = np.where(np.isfinite(q), q, np.inf)
    scale = np.maximum(1.0, np.max(np.abs(truth), axis=-1))
    return float(np.median(np.max(np.abs(q - truth), axis=-1) / scale))


# An environment for any robot, to time `eqsim.rollout`.


class Driven(AbstractTask):
    """An environment without observation, reward and termination."""

    sys: System
    pipeline: AbstractPipeline
    frame_skip: int = eqx.field(static=True)

    def initial(self, key: PRNGKeyArray) -> State:
        return self.pipeline.init(self.sys)

    def observe(self, state: State, action: Float[Array, " nu"]) -> Float[Array, "0"]:
        return state.q[:0]

    def rewards(
        self, state: State, action: Float[Array, " nu"], new: State
    ) -> dict[str, Float[Array, ""]]:
        return {"none": jnp.zeros((), new.q.dtype)}

    def terminated(self, state: State) -> Bool[Array, ""]:
        return jnp.zeros((), bool)


class RandomControls(eqx.Module):
    """A policy with uniform actions between `low` and `high`."""

    low: Float[Array, " nu"]
    high: Float[Array, " nu"]

    @staticmethod
    def create(model: mujoco.MjModel, scale: float) -> "RandomControls":
        """Draw from the range of the controls, scaled around its middle."""
        low, high = control_range(model)
        middle, half = 0.5 * (low + high), 0.5 * scale * (high - low)
        dtype = jnp.result_type(float)
        return RandomControls(
            jnp.asarray(middle - half, dtype), jnp.asarray(middle + half, dtype)
        )

    def __call__(self, obs: Float[Array, " nobs"], key: PRNGKeyArray):
        return jr.uniform(key, self.low.shape, self.low.dtype, self.low, self.high)


def nothing(state, action, timestep):
    """Collect nothing but the last state of a rollout."""
    return ()
