"""Drift of pipelines in long simulations: energy, momentum, penetration, joint errors.

    python tests/parity drift --markdown out/drift.md

The output is written after every row, so an interrupted run keeps its results.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import assets
import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from _bench import caption, parser, publish, say, setting, table
from jax import lax

import eqsim
from eqsim.dynamics import kinetic_energy, momentum


EXPLANATION = """\
The table lists penetration, joint errors, and changes of energy and momentum in long
simulations: {length} control steps of {substeps} physics steps each, from the reference pose.

- `penetration` (m): largest penetration in {batch} simulations under full random controls,
  sampled once per control step.
- `drift` (m, rad): largest distance of links from the poses given by their joint coordinates,
  in the same simulations, before the projection at the end of a step. It is zero in
  `Generalized`, which uses joint coordinates.
- `finite`: fraction of the simulations that stay finite.
- `energy`: relative change of kinetic energy in free flight, without gravity, contacts,
  limits, damping, springs, dry friction and fluid.
- `linear`, `angular`: relative change of linear and angular momentum in free flight, for
  robots with a free base.

`Generalized` uses the integrator of the file. With Euler, both `Generalized` and MuJoCo C
diverge on the double pendulum."""
SUBSTEPS = 5
"""Physics steps per control step."""


def main() -> None:
    """Measure every robot in every pipeline."""
    options = _options()
    where, rows = setting(options), []
    for name in options.models:
        sys = eqsim.load_mjcf(assets.path(name))
        for label in options.pipelines:
            pipeline = eqsim.PIPELINES.get(label)()
            row = {"model": name, "pipeline": type(pipeline).__name__}
            row |= driven(pipeline, sys, options.length, options.batch)
            row |= floating(pipeline, unforced(sys), options.length)
            rows.append(row)
            say(row)
            data = {"where": where, "rows": rows}
            publish(options, "drift", data, report(where, rows, options))
    print(f"\n{report(where, rows, options)}")


def driven(pipeline, sys, length: int, batch: int) -> dict[str, Any]:
    """Measure penetration and joint drift under random controls."""
    limited = jnp.asarray(sys.actuators.ctrl_limited)[:, None]
    low, high = jnp.where(limited, sys.actuators.ctrl_range, jnp.array([-1.0, 1.0])).T

    def worst(state, new, ctrl):
        points = eqsim.Generalized().contacts(sys, new, ctrl).dist
        depth = jnp.max(-points, initial=0.0)
        if isinstance(pipeline, eqsim.Generalized):
            return jnp.stack([depth, 0.0 * depth, 0.0 * depth])
        drift = jnp.abs(pipeline.joint_drift(sys, state, ctrl))
        return jnp.stack([depth, jnp.max(drift[:, 3:]), jnp.max(drift[:, :3])])

    def control(carry, key):
        state, most = carry
        ctrl = jr.uniform(key, (sys.nu,), minval=low, maxval=high)
        new = _held(pipeline, sys, state, ctrl)
        return (new, jnp.maximum(most, worst(state, new, ctrl))), None

    def one(key):
        start = pipeline.init(sys), jnp.zeros(3)
        return lax.scan(control, start, jr.split(key, length))[0]

    state, most = jax.jit(jax.vmap(one))(jr.split(jr.key(0), batch))
    depth, apart, turned = (float(x) for x in np.max(most, axis=0))
    finite = np.all(np.isfinite(state.q) & np.isfinite(np.sum(state.qd)), axis=1)
    return {
        "penetration": depth,
        "drift, m": apart,
        "drift, rad": turned,
        "finite": float(np.mean(finite)),
    }


def floating(pipeline, sys: eqsim.System, length: int) -> dict[str, Any]:
    """Measure changes of energy and momentum in free flight."""
    qd = 0.5 * jr.normal(jr.key(1), (sys.nv,))
    start = pipeline.init(sys, qd=qd)
    ctrl = jnp.zeros(sys.nu)

    @jax.jit
    def fly(sys, start):
        step = lambda state, _: (_held(pipeline, sys, state, ctrl), None)
        return lax.scan(step, start, length=length)[0]

    both = fly(sys, start), start
    after, before = (float(kinetic_energy(sys, s.q, s.qd)) for s in both)
    row: dict[str, Any] = {"energy": after / before - 1.0}
    if sys.joints.kinds[0] is eqsim.model.JointKind.FREE:
        last, first = (np.asarray(momentum(sys, s.q, s.qd)) for s in both)
        gone = np.linalg.norm((last - first).reshape(2, 3), axis=1)
        share = gone / np.linalg.norm(first.reshape(2, 3), axis=1)
        row |= {"linear": float(share[1]), "angular": float(share[0])}
    return row


def unforced(sys: eqsim.System) -> eqsim.System:
    """Return the robot without external forces and forces along its joints; actuators
    and explicit pairs are kept."""
    joints, none = sys.joints, (0,) * sys.ngeom
    free = dataclasses.replace(
        joints,
        limited=(False,) * sys.njoint,
        damping=0.0 * joints.damping,
        stiffness=0.0 * joints.stiffness,
        frictionloss=0.0 * joints.frictionloss,
    )
    where: Callable = lambda s: (s.gravity, s.density, s.viscosity)
    still = eqx.tree_at(where, sys, tuple(0.0 * x for x in where(sys)))
    geoms = dataclasses.replace(sys.geoms, contype=none, conaffinity=none)
    return dataclasses.replace(still, joints=free, geoms=geoms)


def _held(pipeline, sys, state, ctrl):
    step = lambda state, _: (pipeline.step(sys, state, ctrl), None)
    return eqsim.scan(step, state, length=SUBSTEPS)[0]


def report(where: dict, rows: list[dict], options) -> str:
    """Return all robots and pipelines as one table."""
    text = EXPLANATION.format(
        length=options.length, substeps=SUBSTEPS, batch=options.batch
    )
    title = f"# Drift, {where['precision']} precision"
    return f"{title}\n\n{text}\n\n{table(rows)}\n\n{caption(where)}\n"


def _options():
    made = parser(__doc__, repeats=1)
    names = ["generalized", "spring", "positional"]
    made.add_argument("--models", nargs="*", default=list(assets.FILES))
    made.add_argument("--pipelines", nargs="*", choices=names, default=names)
    made.add_argument("--length", type=int, default=1000)
    made.add_argument("--batch", type=int, default=16)
    return made.parse_args()
