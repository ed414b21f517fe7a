"""Numerical abuse: one robot with extreme numbers, in eqsim and in MuJoCo C.

`python abuse.py` in `tests` prints the table of docs/reliability.md.
"""

import contextlib
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import mujoco
import numpy as np

import eqsim
from eqsim.dynamics import kinetic_energy


STEPS = 250
MODEL = """
<mujoco>
  <option timestep="0.002"/>
  <worldbody>
    <geom name="ground" type="plane" size="5 5 1" contype="2" conaffinity="2"/>
    <body name="box" pos="0 0 0.1"><freejoint/>
      <geom name="box" type="box" size="0.1 0.1 0.1" contype="3" conaffinity="3"/></body>
    <body name="ball" pos="0 0 0.25"><freejoint/>
      <geom name="ball" type="sphere" size="0.05" contype="3" conaffinity="3"/></body>
    <body name="upper" pos="1 0 1"><joint name="upper" axis="0 1 0" range="-1 1" limited="true"/>
      <geom type="capsule" size="0.03" fromto="0 0 0 0 0 -0.3" contype="0" conaffinity="0"/>
      <body name="lower" pos="0 0 -0.3"><joint name="lower" axis="0 1 0" damping="0.01"/>
        <geom type="capsule" size="0.03" fromto="0 0 0 0 0 -0.3" contype="0" conaffinity="0"/>
      </body></body>
  </worldbody>
  <actuator><position joint="lower" kp="5"/></actuator>
</mujoco>
"""
BOX, BALL, UPPER, LOWER = 1, 2, 3, 4
# Changes of a model, and of positions and velocities at the start.
Change = Callable[[mujoco.MjModel, np.ndarray, np.ndarray], None]
CASES: dict[str, Change] = {}


def case(name: str) -> Callable[[Change], Change]:
    def add(change: Change) -> Change:
        CASES[name] = change
        return change

    return add


def scale(model, body: int, factor: float) -> None:
    """Scale the mass and the inertia of a body."""
    model.body_mass[body] *= factor
    model.body_inertia[body] *= factor


@case("nothing extreme")
def nothing(model, q, v):
    """The model as it is."""


@case("inertia of 1e-12 kg m^2")
def no_inertia(model, q, v):
    model.body_inertia[[BOX, BALL]] = 1e-12


@case("inertias of 1, 1 and 1e-12 kg m^2")
def needle(model, q, v):
    model.body_inertia[BOX] = 1, 1, 1e-12
    v[3:6] = 3, 2, 1


@case("1e-6 kg between the world and 1e6 kg")
def light_link(model, q, v):
    scale(model, UPPER, 1e-6 / model.body_mass[UPPER])
    scale(model, LOWER, 1e6 / model.body_mass[LOWER])
    q[14] = 0.5


@case("1e6 kg upon 1e-6 kg")
def heavy_above(model, q, v):
    scale(model, BOX, 1e-6 / model.body_mass[BOX])
    scale(model, BALL, 1e6 / model.body_mass[BALL])


@case("1e-6 kg upon 1e6 kg")
def light_above(model, q, v):
    scale(model, BOX, 1e6 / model.body_mass[BOX])
    scale(model, BALL, 1e-6 / model.body_mass[BALL])


@case("a ball in the center of a box")
def inside(model, q, v):
    q[7:10] = q[:3]


@case("a box 0.5 m below the ground")
def below(model, q, v):
    q[2] = -0.5


@case("a box that spins with 1e4 rad/s")
def spinning(model, q, v):
    v[3:6] = 1e4, 1e3, 10


@case("a joint with 1e4 rad/s against its limit")
def fast_joint(model, q, v):
    v[12] = 1e4


@case("shapes of size zero")
def no_size(model, q, v):
    model.geom_size[1:3] = 0
    model.geom_rbound[1:3] = 0


@case("limits that contradict")
def no_range(model, q, v):
    model.jnt_range[2] = 0.5, -0.5


@case("a joint 100 rad beyond its limit")
def beyond(model, q, v):
    q[14] = 100


@case("`solref` of 1e-6 s")
def stiff(model, q, v):
    model.geom_solref[:, 0] = model.jnt_solref[:, 0] = 1e-6
    v[2] = -10


@case("`solref` of -1e10, -1e5")
def direct(model, q, v):
    model.geom_solref[:] = model.jnt_solref[:] = -1e10, -1e5
    v[2] = -10


@case("a spring of 1e9 N m/rad")
def spring(model, q, v):
    model.jnt_stiffness[3], q[15] = 1e9, 0.1


@case("damping of 1e9 N m s/rad")
def damped(model, q, v):
    model.dof_damping[13], v[13] = 1e9, 100


class Outcome(NamedTuple):
    """What becomes of a case.

    - `refusal`: the message with which the robot is refused, or empty.
    - `finite`: true if all states are finite.
    - `converged`: true if the solver converges in the last state, or reports nothing.
    - `energy`: largest kinetic energy, J.
    """

    refusal: str
    finite: bool
    converged: bool
    energy: float


def prepared(name: str):
    """The model of a case, and positions and velocities at the start."""
    model = mujoco.MjModel.from_xml_string(MODEL)
    q, v = model.qpos0.copy(), np.zeros(model.nv)
    CASES[name](model, q, v)
    # MuJoCo's own loops run away with some of these; errors are counted by what follows.
    with contextlib.suppress(mujoco.FatalError):
        mujoco.mj_setConst(model, mujoco.MjData(model))
    model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_AUTORESET
    return model, q, v


def robot(name: str):
    """The robot of a case and its state at the start."""
    model, q, v = prepared(name)
    sys = eqsim.load_mjcf(model)
    return sys, eqsim.Generalized().init(sys, jnp.asarray(q), jnp.asarray(v))


def in_mujoco(name: str) -> Outcome:
    model, q, v = prepared(name)
    model.opt.enableflags |= mujoco.mjtEnableBit.mjENBL_ENERGY
    data = mujoco.MjData(model)
    data.qpos[:], data.qvel[:] = q, v
    most = 0.0
    for _ in range(STEPS):
        mujoco.mj_step(model, data)
        most = max(most, float(data.energy[1]))
    finite = bool(np.all(np.isfinite([*data.qpos, *data.qvel])))
    return Outcome("", finite, True, most if finite else np.inf)


def _run(pipeline, sys, state, ctrl):
    def step(state, _):
        new = pipeline.step(sys, state, ctrl)
        return new, (kinetic_energy(sys, new.q, new.qd), jnp.all(jnp.isfinite(new.qd)))

    last, (energy, finite) = jax.lax.scan(step, state, None, length=STEPS)
    return last, jnp.max(energy), jnp.all(finite)


run_one = eqx.filter_jit(_run)
run = eqx.filter_jit(eqx.filter_vmap(_run, in_axes=(None, 0, 0, None)))


def in_eqsim(names, dtype) -> dict[str, Outcome]:
    """Outcomes of all cases, which run as one batch."""
    pipeline, found, ready = eqsim.Generalized(), {}, {}
    for name in names:
        try:
            sys, state = robot(name)
            ready[name] = sys.without_pattern(), state
        except ValueError as error:
            found[name] = Outcome(str(error), True, True, 0.0)
    cast = lambda x: x.astype(dtype) if eqx.is_inexact_array(x) else x
    trees = [jax.tree.map(cast, x) for x in ready.values()]
    sys, state = jax.tree.map(lambda *x: jnp.stack(x), *trees)
    ctrl = jnp.zeros(1, dtype)
    last, energy, finite = run(pipeline, sys, state, ctrl)
    good = eqx.filter_jit(
        eqx.filter_vmap(lambda a, b: pipeline.solve(a, b, ctrl).converged)
    )
    converged = np.asarray(good(sys, last))
    for k, name in enumerate(ready):
        found[name] = Outcome("", bool(finite[k]), bool(converged[k]), float(energy[k]))
    return found


def show(outcome: Outcome) -> str:
    if outcome.refusal:
        return "refused"
    if not outcome.finite:
        return "not finite"
    return f"{outcome.energy:.2g}" + ("" if outcome.converged else ", not converged")


def main() -> None:
    jax.config.update("jax_enable_x64", True)
    double, single = in_eqsim(CASES, jnp.float64), in_eqsim(CASES, jnp.float32)
    print("| case | eqsim, float64 | eqsim, float32 | MuJoCo |\n|---|---|---|---|")
    for name in CASES:
        cells = [show(x) for x in (double[name], single[name], in_mujoco(name))]
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
