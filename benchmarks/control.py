"""Iterative LQR in eqsim and Crocoddyl: optimum and time of the same problems.

python benchmarks/control.py --out out/bench

A double pendulum with two motors (design C.1 of the RealAI gym, with a high cost on the
torque of the shoulder) swings up, with semi-implicit Euler steps and quadratic costs.
"""

import importlib
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from _bench import caption, interleaved, parser, publish, say, setting, table

import eqsim
from eqsim import control


EXPLANATION = """\
Swing-up of the double pendulum with {length} steps of 10 ms, from rest and from a batch of
states near it; the guess is no torque. Crocoddyl runs on one thread, eqsim on all. `best
optimum`: share of the batch with a cost within 1e-6 of the best."""
M1, M2, L1, R1, R2 = 0.52346, 0.62557, 0.2, 0.2, 0.25569
I1, I2 = 0.010949, 0.0099716
"""Masses (kg), length, centers of mass (m), inertias about the centers (kg m^2)."""

DT, LENGTH, LIMIT = 0.01, 200, 2.0
"""Time step (s), number of steps, and torque limit, if there is one, N m."""

LANES = 16
"""Problems of a batch that are iterated at the same time."""

_PATIENCE = 600.0
"""Time limit for the calls of one solver, s."""

GOAL = np.array([np.pi, 0.0, 0.0, 0.0])
STATE = np.array([0.2, 0.2, 0.02, 0.02])
TERMINAL = np.array([400.0, 400.0, 20.0, 20.0])
ACTION = np.array([20.0, 0.2])
"""Weights per second of states and torques, and weights of the last state."""


def starts(number: int, seed: int = 0) -> np.ndarray:
    """Draw initial states near hanging at rest; the first is at rest."""
    rng = np.random.default_rng(seed)
    found = rng.normal(0.0, (0.3, 0.3, 0.5, 0.5), (number, 4))
    found[0] = 0.0
    return found


class Solved(NamedTuple):
    """A solution: costs and numbers of iterations of all problems."""

    cost: np.ndarray
    steps: np.ndarray


def eqsim_solver(
    limited: bool, many: bool, lanes: int | None = None
) -> Callable[[np.ndarray], Solved]:
    """Make a function that solves one problem, or a batch.

    **Arguments:**

    - `limited`: true if torques are limited.
    - `many`: true if it takes a batch of first states.
    - `lanes`: problems that are iterated at the same time, see `ILQR`.
    """
    sys = eqsim.load_mjcf(f"""
<mujoco>
  <option timestep="{DT}" integrator="Euler"/>
  <worldbody>
    <body><joint name="shoulder" axis="0 1 0"/>
      <inertial pos="0 0 {-R1}" mass="{M1}" diaginertia="{I1} {I1} {I1}"/>
      <body pos="0 0 {-L1}"><joint name="elbow" axis="0 1 0"/>
        <inertial pos="0 0 {-R2}" mass="{M2}" diaginertia="{I2} {I2} {I2}"/>
      </body>
    </body>
  </worldbody>
  <actuator><motor joint="shoulder"/><motor joint="elbow"/></actuator>
</mujoco>""")
    target = eqsim.State(jnp.asarray(GOAL[:2]), jnp.asarray(GOAL[2:]), jnp.zeros(0))
    cost = control.QuadraticCost(target, DT * STATE, DT * ACTION, TERMINAL)
    limits = jnp.tile(jnp.array([[-LIMIT, LIMIT]]), (2, 1)) if limited else None
    problem = control.ControlProblem((eqsim.Generalized(), sys), cost, LENGTH, limits)
    solver = control.ILQR(max_steps=300, rtol=1e-9, lanes=lanes)

    def solve(problem, x):
        state = eqsim.State(x[:2], x[2:], jnp.zeros(0))
        plan = solver.solve(problem, state)
        return plan.value, plan.steps

    run = eqx.filter_jit(eqx.filter_vmap(solve, in_axes=(None, 0)) if many else solve)

    def found(x: np.ndarray) -> Solved:
        return Solved(*map(np.asarray, run(problem, jnp.asarray(x))))

    return found


def crocoddyl_solver(limited: bool) -> Callable[[np.ndarray], Solved]:
    """Make a function that solves one problem, or several one after another, on one
    thread."""
    crocoddyl, pinocchio = map(importlib.import_module, ("crocoddyl", "pinocchio"))
    robot = pinocchio.Model()
    place = lambda z: pinocchio.SE3(np.eye(3), np.array([0.0, 0.0, z]))
    parent = 0
    for z, m, r, inertia in ((0.0, M1, R1, I1), (-L1, M2, R2, I2)):
        parent = robot.addJoint(
            parent, pinocchio.JointModelRY(), place(z), f"joint{parent}"
        )
        body = pinocchio.Inertia(m, np.array([0.0, 0.0, -r]), inertia * np.eye(3))
        robot.appendBodyToJoint(parent, body, pinocchio.SE3.Identity())
    state = crocoddyl.StateMultibody(robot)
    motors = crocoddyl.ActuationModelFull(state)

    def cost(x_weights, u_weights):
        terms = crocoddyl.CostModelSum(state, 2)
        quadratic = crocoddyl.ActivationModelWeightedQuad
        away = crocoddyl.ResidualModelState(state, GOAL, 2)
        terms.addCost(
            "x", crocoddyl.CostModelResidual(state, quadratic(x_weights), away), 1.0
        )
        if u_weights is not None:
            push = crocoddyl.ResidualModelControl(state, 2)
            terms.addCost(
                "u", crocoddyl.CostModelResidual(state, quadratic(u_weights), push), 1.0
            )
        return terms

    def node(terms, dt):
        free = crocoddyl.DifferentialActionModelFreeFwdDynamics(state, motors, terms)
        whole = crocoddyl.IntegratedActionModelEuler(free, dt)
        if limited:
            whole.u_lb, whole.u_ub = np.full(2, -LIMIT), np.full(2, LIMIT)
        return whole

    running, last = node(cost(STATE, ACTION), DT), node(cost(TERMINAL, None), 0.0)
    kind = crocoddyl.SolverBoxFDDP if limited else crocoddyl.SolverFDDP

    def one(x: np.ndarray) -> tuple[float, int]:
        shooting = crocoddyl.ShootingProblem(x, [running] * LENGTH, last)
        solver = kind(shooting)
        torques = [np.zeros(2)] * LENGTH
        states = shooting.rollout(torques)
        solver.solve(states, torques, 300, True)
        return solver.cost, solver.iter + 1

    def found(x: np.ndarray) -> Solved:
        rows = [one(y) for y in np.atleast_2d(x)]
        return Solved(*map(np.array, zip(*rows, strict=True)))

    return found


def compare(repeats: int, batch: int) -> list[dict[str, Any]]:
    """Solve with both; if Crocoddyl is not installed, only with eqsim.

    **Arguments:**

    - `repeats`: calls to time; the shortest counts.
    - `batch`: problems in a batch.
    """
    try:
        version = importlib.import_module("crocoddyl").__version__
    except ImportError:
        say("Crocoddyl is left out: `pip install crocoddyl` adds it.")
        version = None
    rows, first = [], starts(batch)
    for limited in (False, True):
        single = eqsim_solver(limited, many=False)
        names = {f"eqsim, {LANES} lanes": LANES, "eqsim": None}
        runners = dict.fromkeys(names, single)
        many = {
            name: eqsim_solver(limited, many=True, lanes=lanes)
            for name, lanes in names.items()
        }
        if version:
            name = f"Crocoddyl {version}"
            runners[name] = many[name] = crocoddyl_solver(limited)
        one = {name: lambda run=run: run(first[0]) for name, run in runners.items()}
        all_ = {name: lambda run=run: run(first) for name, run in many.items()}
        alone = interleaved(one, repeats, _PATIENCE)
        together = interleaved(all_, max(repeats // 4, 2), _PATIENCE)
        found = {name: run() for name, run in all_.items()}
        best = np.min([each.cost for each in found.values()], axis=0)
        for name, run in one.items():
            single, batched = run(), found[name]
            optimal = np.mean(batched.cost < best * (1 + 1e-6))
            shared = 1e3 * together[name].best / batch
            rows.append(
                {
                    "limits": f"{LIMIT:g} N m" if limited else "none",
                    "solver": name,
                    "cost": float(np.ravel(single.cost)[0]),
                    "iterations, one problem": int(np.ravel(single.steps)[0]),
                    "ms, one problem": 1e3 * alone[name].best,
                    f"ms per problem, batch of {batch}": shared,
                    "mean iterations, batch": float(np.mean(batched.steps)),
                    "best optimum": float(optimal),
                }
            )
    return rows


def main() -> None:
    """Solve all problems, and write the table."""
    made = parser(__doc__, repeats=20)
    made.add_argument("--batch", type=int, default=256, help="problems in a batch")
    made.set_defaults(precision="double")
    options = made.parse_args()
    where = setting(options)
    rows = compare(options.repeats, options.batch)
    text = EXPLANATION.format(length=LENGTH)
    text = f"{text}\n\n{table(rows)}\n\n{caption(where)}\n"
    publish(options, "control", {"where": where, "rows": rows}, text)
    print(text)


if __name__ == "__main__":
    main()
