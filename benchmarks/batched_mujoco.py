"""The simulations of mjbatch's six examples, in eqsim and in mjbatch on the same cores.

python benchmarks/batched_mujoco.py --python MJBATCH/bin/python --folder MENAGERIE

mjbatch (batched MuJoCo C) pins another version of MuJoCo than eqsim, so it runs in a process of
its own: `--python` is the interpreter of an environment with `pip install mjbatch`.
"""

import math
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np


def holding(file: str) -> Any:
    """Return a Rizon arm that holds a payload, without contacts, as `MjSpec`."""
    import mujoco

    spec = mujoco.MjSpec.from_file(file)
    spec.option.disableflags |= mujoco.mjtDisableBit.mjDSBL_CONTACT
    spec.option.timestep = 0.005
    held = spec.body("link7").add_body(name="held", explicitinertial=True)
    held.mass, held.ipos, held.inertia = 0.5, [0.0, 0.0, 0.05], [1e-3, 1e-3, 1e-3]
    return spec


def serve(file: str) -> None:
    """Run the simulations of a file in mjbatch, once for each line of standard input."""
    import mjbatch  # pyright: ignore[reportMissingImports]
    import mujoco

    job = dict(np.load(file))
    source = str(job["model"])
    # Not a file of the compiled arm: older versions refuse what MuJoCo 4 writes.
    spec = holding(source) if job["payload"] else mujoco.MjSpec.from_file(source)
    model = spec.compile()
    model.opt.timestep = float(job["dt"])
    batch = mjbatch.Batch(model, len(job["q"]))
    q, qd, ctrl = (batch.bind(name) for name in ("qpos", "qvel", "ctrl"))
    fields = {key[6:]: job[key] for key in job if key.startswith("model_")}
    expanded = {name: batch.expand(name) for name in fields}
    for _ in sys.stdin:
        begin = time.perf_counter()
        for name, values in fields.items():
            expanded[name][:] = values
        if fields:
            batch.set_const()
        q[:], qd[:] = job["q"], job["qd"]
        for row in job["ctrl"]:
            ctrl[:] = row
            batch.step(nstep=int(job["substeps"]))
        taken = time.perf_counter() - begin
        np.save(file + ".out.npy", q)
        print(taken, flush=True)


if __name__ == "__main__" and sys.argv[1:2] == ["--serve"]:
    serve(sys.argv[2])
    sys.exit()


import jax


# Before JAX is first used: one device per core.
jax.config.update("jax_num_cpu_devices", os.cpu_count() or 1)

import equinox as eqx
import jax.numpy as jnp
import mujoco
from _bench import caption, parser, publish, say, seconds, setting, table
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import eqsim
from eqsim.control import PipelineDynamics


sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "docs" / "examples"))

import cart_pole
import throwing_arm


EXPLANATION = """\
Milliseconds for the simulations that the method of each example of mjbatch needs again and
again. `simulations`: number, times control steps, times time steps per control step.
Derivatives are exact in eqsim, all derivatives of a step at once; mjbatch simulates perturbed
states, controls or parameters, whose differences are not timed. eqsim computes in single
precision unless `--precision double` is given, mjbatch in double. `ratio`: time of mjbatch over
that of eqsim. `difference`: median over simulations of the largest difference of final
coordinates (where both simulate the same). Both use all cores, eqsim as many as divide the
number of rows."""


class Job(NamedTuple):
    """Simulations for mjbatch.

    - `model`: MJCF file.
    - `dt`, `substeps`: time step, and time steps per control step.
    - `q`, `qd`: initial states, `(n, nq)` and `(n, nv)`.
    - `ctrl`: controls, `(T, n, nu)`.
    - `fields`: fields of `MjModel`, `(n, ...)`.
    - `payload`: true for the arm of `holding`.
    """

    model: str
    dt: float
    substeps: int
    q: Any
    qd: Any
    ctrl: Any
    fields: Mapping[str, Any] = {}
    payload: bool = False

    @property
    def size(self) -> str:
        """Number of simulations and steps."""
        return f"{len(self.q)} x {len(self.ctrl)} x {self.substeps}"


class Cell(NamedTuple):
    """One row of the table: what eqsim and mjbatch compute, and whether both results are
    final coordinates."""

    ours: Callable[[], Any]
    job: Job
    comparable: bool


PIPELINE, EPS = eqsim.Generalized(), 1e-6


def number() -> Any:
    """Return the type of numbers of the chosen precision."""
    return jnp.result_type(float)


def split(tree: Any) -> Any:
    """Shard leading axes over all devices."""
    count = math.gcd(len(jax.tree.leaves(tree)[0]), len(jax.devices()))
    devices = jax.devices()[:count]
    mesh = jax.make_mesh((count,), ("batch",), (AxisType.Auto,), devices=devices)
    return jax.device_put(tree, NamedSharding(mesh, PartitionSpec("batch")))


def rollout(robot: eqsim.System, q, qd, ctrl, substeps: int):
    """Return the last coordinates."""
    dynamics = PipelineDynamics(PIPELINE, robot, substeps)
    step = lambda state, u: (dynamics.step(state, u), None)
    return eqsim.scan(step, PIPELINE.init(robot, q, qd), ctrl)[0].q


def rollouts(file: str, robot: eqsim.System, q, ctrl, substeps: int) -> Cell:
    """Simulate random controls from given states at rest."""
    qd = np.zeros((len(q), robot.nv), number())
    args = split((jnp.asarray(q, number()), jnp.asarray(qd), jnp.asarray(ctrl)))
    run = jax.jit(jax.vmap(lambda q, qd, u: rollout(robot, q, qd, u, substeps)))
    job = Job(file, float(robot.dt), substeps, q, qd, np.swapaxes(ctrl, 0, 1))
    return Cell(lambda: run(*args), job, True)


def derivatives(
    file: str, robot: eqsim.System, model, q, ctrl, substeps: int, dt: float
) -> Cell:
    """Linear models of control steps from given states at rest; central differences."""
    robot = eqx.tree_at(lambda s: s.dt, robot, jnp.asarray(dt, robot.dt.dtype))
    dynamics = PipelineDynamics(PIPELINE, robot, substeps)
    one = lambda q, u: dynamics.linearize(PIPELINE.init(robot, q), u)
    args = split((jnp.asarray(q, number()), jnp.asarray(ctrl)))
    run = jax.jit(jax.vmap(one))
    nv, rows = model.nv, []
    for at, u in zip(q, ctrl, strict=True):
        one = EPS * np.eye(2 * nv + model.nu)
        for change in np.concatenate([one, -one]):
            moved = np.array(at, float)
            mujoco.mj_integratePos(model, moved, change[:nv], 1.0)
            rows.append((moved, change[nv : 2 * nv], u + change[2 * nv :]))
    moved, qd, u = (np.stack(column) for column in zip(*rows, strict=True))
    return Cell(lambda: run(*args), Job(file, dt, substeps, moved, qd, u[None]), False)


# The six examples.


def robot_file(folder: pathlib.Path, name: str) -> tuple[str, eqsim.System, Any]:
    """Load a scene of Menagerie in both simulators."""
    file = str(folder / name / "scene.xml")
    return file, eqsim.load_mjcf(file), mujoco.MjModel.from_xml_path(file)


def noisy(rng, center, shape, scale: float):
    """Draw values about a center."""
    return (np.asarray(center) + scale * rng.normal(size=shape)).astype(number())


def cells(folder: pathlib.Path, scratch: pathlib.Path, small: bool):
    """Make the measurements, by name."""
    rng, divisor = np.random.default_rng(0), 16 if small else 1
    file = str(scratch / "cart_pole.xml")
    pathlib.Path(file).write_text(cart_pole.MODEL)
    model, cart = mujoco.MjModel.from_xml_path(file), cart_pole.SYS
    q, u = noisy(rng, 0.0, (80, 2), 0.5), noisy(rng, 0.0, (80, 1), 1.0)
    yield (
        "cart-pole, iLQR: derivatives along a plan",
        derivatives(file, cart, model, q, u, 1, 0.02),
    )
    n = 1024 // divisor
    q, u = np.zeros((n, 2), number()), noisy(rng, 0.0, (n, 50, 1), 5.0)
    yield "cart-pole, predictive sampling", rollouts(file, cart, q, u, 1)
    file, robot, model = robot_file(folder, "unitree_g1")
    key = robot.keyframe("stand")
    q, u = (noisy(rng, x, (24 // divisor + 1, len(x)), 0.02) for x in (key.q, key.ctrl))
    q, u = q[: len(q) // 2 * 2], u[: len(u) // 2 * 2]
    yield (
        "G1 flip, iLQR: derivatives over a horizon",
        derivatives(file, robot, model, q, u, 4, 0.005),
    )
    file, robot, model = robot_file(folder, "unitree_go1")
    key, n = robot.keyframe("home"), 1024 // divisor
    q, u = noisy(rng, key.q, (n, 19), 0.01), noisy(rng, key.ctrl, (n, 25, 12), 0.1)
    yield "Go1 joystick: control steps", rollouts(file, robot, q, u, 10)
    file = str(scratch / "arm.xml")
    pathlib.Path(file).write_text(throwing_arm.ARM)
    yield "throwing arm, CEM: designs", designs(file, rng, 1024 // divisor)
    yield "Rizon, Gauss-Newton: Jacobian", payload(folder, rng, 100 if small else 800)


def designs(file: str, rng, n: int) -> Cell:
    """Throw with arms of different lengths."""
    design = noisy(rng, 0.0, (n, 11, 2), 0.3)
    arms = jax.vmap(throwing_arm.built)(jnp.asarray(design))
    zero = np.zeros((n, 2), number())
    limit = np.asarray(throwing_arm.SYS.actuators.ctrl_range[:, 1])
    ctrl = np.repeat(limit * np.tanh(design[:, 1:]), throwing_arm.STEPS // 10, axis=1)
    thrown = lambda d, q, u: rollout(throwing_arm.built(d), q, q, u, 1)
    run, args = (
        jax.jit(jax.vmap(thrown)),
        split(jax.tree.map(jnp.asarray, (design, zero, ctrl))),
    )
    world = lambda x: np.pad(
        np.asarray(x), ((0, 0), (1, 0), *((0, 0) for _ in x.shape[2:]))
    )
    links = arms.links
    fields = {
        "body_pos": world(links.pos),
        "body_ipos": world(links.com),
        "body_mass": world(links.mass),
        "body_inertia": world(links.inertia),
    }
    job = Job(file, 0.01, 1, zero, zero, np.swapaxes(ctrl, 0, 1), fields)
    return Cell(lambda: run(*args), job, True)


def payload(folder: pathlib.Path, rng, steps: int) -> Cell:
    """Derivatives of three recordings by mass, center and principal moments of a payload;
    one-sided differences."""
    file = str(folder / "flexiv_rizon4" / "scene.xml")
    spec = holding(file)
    model, robot = spec.compile(), eqsim.load_mjcf(spec)
    low, high = np.asarray(robot.actuators.ctrl_range).T
    wave = np.sin(0.005 * np.outer(np.arange(steps), rng.uniform(1.0, 3.0, 3)))
    ctrl = 0.5 * (low + high) + 0.1 * wave.T[:, :, None] * (high - low)
    ctrl = ctrl.astype(number())
    link = robot.link("held").index
    where = lambda s: (s.links.mass, s.links.com, s.links.inertia)

    def simulate(change, ctrl):
        mass, com, inertia = where(robot)
        com, inertia = com.at[link].add(change[1:4]), inertia.at[link].add(change[4:])
        new = eqx.tree_at(where, robot, (mass.at[link].add(change[0]), com, inertia))
        step = lambda state, u: (PIPELINE.step(new, state, u), state.q)
        return eqsim.scan(step, PIPELINE.init(robot, ctrl[0]), ctrl)[1]

    run = jax.jit(jax.vmap(jax.jacfwd(simulate), (None, 0)))
    zero, arg = jnp.zeros(7), jnp.asarray(ctrl)
    mass, center, inertia = (
        np.tile(x, (24, *(1 for _ in x.shape)))
        for x in (model.body_mass, model.body_ipos, model.body_inertia)
    )
    mass[1::8, -1] += EPS
    for k in range(3):
        center[2 + k :: 8, -1, k] += EPS
        inertia[5 + k :: 8, -1, k] += EPS
    fields = {"body_mass": mass, "body_ipos": center, "body_inertia": inertia}
    q, u = (np.repeat(x, 8, axis=0) for x in (ctrl[:, 0], ctrl))
    job = Job(
        file, 0.005, 1, q, np.zeros((24, model.nv)), np.swapaxes(u, 0, 1), fields, True
    )
    return Cell(lambda: run(zero, arg), job, False)


# Measuring.


class Peer:
    """mjbatch in a process of its own.

    **Arguments:**

    - `python`: its interpreter.
    - `job`: the simulations.
    - `file`: a file for the arrays.
    """

    def __init__(self, python: str, job: Job, file: str):
        arrays = {k: v for k, v in job._asdict().items() if k != "fields"}
        fields = {f"model_{name}": value for name, value in job.fields.items()}
        np.savez(file, **arrays, **fields)
        self.file = file
        command = [python, str(pathlib.Path(__file__)), "--serve", file]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def seconds(self) -> float:
        """Simulate, and return the time that it took."""
        assert self.process.stdin and self.process.stdout, "pipes are open"
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise RuntimeError("mjbatch failed: its message is above.")
        return float(answer)

    def result(self) -> Any:
        """Return the last coordinates."""
        return np.load(self.file + ".out.npy")


def measure(cell: Cell, python: str, file: str, repeats: int) -> dict[str, Any]:
    """Time both simulators in turns; the first round compiles."""
    peer, best = Peer(python, cell.job, file), [math.inf, math.inf]
    try:
        for _ in range(repeats + 1):
            taken = seconds(cell.ours), peer.seconds()
            compiled = best[0] < math.inf
            best = [*map(min, best, taken)] if compiled else [1e9, 1e9]
        row: dict[str, Any] = {"eqsim": 1e3 * best[0], "mjbatch": 1e3 * best[1]}
        row["ratio"] = best[1] / best[0]
        if cell.comparable:
            away = np.abs(np.asarray(cell.ours()) - peer.result())
            row["difference"] = float(np.median(np.max(away, axis=1)))
        return row
    finally:
        peer.process.communicate()


def main() -> None:
    """Time all cells, and write the results after each."""
    options = _options()
    where, rows = setting(options), []
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        for name, cell in cells(options.folder, folder, options.quick):
            file = str(folder / "job.npz")
            row: dict[str, Any] = {"example": name, "simulations": cell.job.size}
            row |= measure(cell, options.python, file, options.repeats)
            rows.append(row)
            say(row)
            text = f"{EXPLANATION}\n\n{table(rows)}\n\n{caption(where)}\n"
            publish(options, "batched_mujoco", {"where": where, "rows": rows}, text)
    print(f"\n{text}")


def _options():
    made = parser(__doc__, repeats=5)
    made.add_argument("--python", required=True, help="interpreter with mjbatch")
    made.add_argument("--folder", type=pathlib.Path, required=True, help="Menagerie")
    made.add_argument("--quick", action="store_true", help="few simulations")
    return made.parse_args()


if __name__ == "__main__":
    main()
