"""Checks of the physics of pipelines."""

import jax
import jax.numpy as jnp
import numpy as np

from ..dynamics import kinetic_energy, momentum, potential_energy
from ..kinematics import difference
from ..model import System
from ._pipeline_kit import (
    next_state,
    norm,
    PipelineKit,
    STEPS,
    with_dt,
    without_gravity,
)
from ._tools import require


def free_fall(kit: PipelineKit) -> None:
    """A free body falls by g t^2 / 2, up to an error of the order of the time step.

    Apply gravity once per step, to velocities before positions, or integrate both
    exactly.
    """
    sys, start = kit.box, jnp.asarray([1.0, 0.0, 2.0, 0.0, 0.0, 0.0])
    half = STEPS // 2
    coarse = kit.simulate(sys, kit.start(sys, qd=start))
    fine_sys = with_dt(sys, 0.5)
    fine = kit.simulate(fine_sys, kit.start(fine_sys, qd=start))
    time = half * float(sys.dt)
    velocity = np.asarray(start[:3] + time * sys.gravity)
    place = np.asarray(start[:3] * time + 0.5 * time**2 * sys.gravity)
    for name, state, k in (("dt", coarse, half - 1), ("dt / 2", fine, STEPS - 1)):
        gone = norm(state.qd[k, :3] - velocity) / norm(velocity)
        require(
            gone < 1e-6, f"with {name}, velocities are {gone:.1e} off after {time} s"
        )
    first = norm(coarse.q[half - 1, :3] - place)
    second = norm(fine.q[-1, :3] - place)
    most = norm(sys.gravity) * time * float(sys.dt)
    require(
        first <= most and second <= 0.6 * first + 1e-9,
        f"positions are {first:.2e} m off after {time} s, and {second:.2e} m with half the "
        f"time step; at most {most:.1e} m, and half of that, are expected",
    )


def linear_momentum(kit: PipelineKit) -> None:
    """A body without external forces conserves its linear momentum.

    Internal forces of a robot must be pairs of equal and opposite forces.
    """
    first, last = _momenta(kit)
    lost = np.max(np.linalg.norm(last[:, 3:] - first[3:], axis=1)) / norm(first[3:])
    require(lost < 1e-6, f"momentum changes by a fraction of {lost:.1e}")


def angular_momentum(kit: PipelineKit) -> None:
    """A body without external forces conserves its angular momentum, up to an error of
    the order of the time step.

    Check gyroscopic terms, and the frames of angular velocity and inertia.
    """
    first, last = _momenta(kit)
    lost = np.max(np.linalg.norm(last[:, :3] - first[:3], axis=1)) / norm(first[:3])
    require(lost < 0.01, f"momentum changes by a fraction of {lost:.1e}, at most 0.01")


def _momenta(kit: PipelineKit) -> tuple[np.ndarray, np.ndarray]:
    sys, start, path = _spinning(kit, 1.0)
    found = jax.vmap(lambda q, qd: momentum(sys, q, qd))(path.q, path.qd)
    return np.asarray(momentum(sys, start.q, start.qd)), np.asarray(found)


def _spinning(kit: PipelineKit, share: float):
    sys = with_dt(without_gravity(kit.box), share)
    qd = jnp.asarray([0.5, -0.3, 0.2, 0.4, 2.0, -1.0])
    start = kit.start(sys, qd=qd)
    return sys, start, kit.simulate(sys, start)


def _swinging(kit: PipelineKit, share: float):
    sys = with_dt(kit.pendulum, share)
    start = kit.start(sys, jnp.asarray([0.4, 0.5]), jnp.asarray([0.0, 1.0]))
    return sys, start, kit.simulate(sys, start)


def energy(kit: PipelineKit) -> None:
    """A pendulum conserves its energy, up to an error of the order of the time step.

    Check bias forces, and the order in which positions and velocities are integrated.
    """
    sys, start, path = _swinging(kit, 1.0)
    kinetic = lambda q, qd: kinetic_energy(sys, q, qd)
    total = lambda q, qd: kinetic(q, qd) + potential_energy(sys, q)
    moved = np.max(np.asarray(jax.vmap(kinetic)(path.q, path.qd)))
    now = np.asarray(jax.vmap(total)(path.q, path.qd))
    lost = np.max(np.abs(now - float(total(start.q, start.qd)))) / moved
    require(
        lost < 0.05,
        f"in {STEPS} steps energy changes by {lost:.1%} of the largest kinetic energy; at "
        "most 5 % is expected",
    )


def contact(kit: PipelineKit) -> None:
    """A ball that falls to the ground comes to rest, and penetrates by less than a
    twentieth of its radius.

    Check the depth of contacts, and the friction that keeps the ball in place.
    """
    heights, radius = np.asarray(kit.settled.q[:, 2]), float(kit.ball.geoms.size[1, 0])
    depth = (radius - float(np.min(heights))) / radius
    require(depth < 0.05, f"the ball sinks in by {depth:.1%} of its radius")
    end, speed = float(heights[-1]), norm(kit.settled.qd[-1, :3])
    require(
        abs(end - radius) < 0.03 * radius and speed < 0.05,
        f"at the end the height of the ball is {end} m, not {radius} m, and its speed "
        f"is {speed:.2g} m/s",
    )


def forces(kit: PipelineKit) -> None:
    """`contacts` and `constraint_forces` carry the weight of a ball at rest.

    Report the forces that the step applies, averaged over its substeps.
    """
    sys = kit.ball
    solved, wrench = kit.solved["resting"]
    constraint = solved.constraint_force
    weight = -float(sys.gravity[2] * jnp.sum(sys.links.mass))
    found = {
        "contacts": float(jnp.sum(wrench[:, 5])),
        "constraint_forces": float(constraint[2]),
    }
    for name, value in found.items():
        good = abs(value - weight) < 0.02 * weight
        require(good, f"`{name}` carries {value:.4g} N of {weight:.4g} N")


def advance(kit: PipelineKit) -> None:
    """`advance` returns the state of `step` and the solution of `solve`.

    Compute both from the same forces.
    """
    for name, (q, qd, ctrl) in kit.places.items():
        state = kit.start(kit.ball, q, qd)
        new = next_state(kit.pipeline, kit.ball, state, ctrl)
        solved, _ = kit.solved[name]
        found = kit.advanced[name]
        pairs = {"q": (found[0].q, new.q), "qd": (found[0].qd, new.qd)}
        for field in ("qdd", "constraint_force", "actuator_force"):
            pairs[field] = (vars(found[1])[field], vars(solved)[field])
        for field, (one, other) in pairs.items():
            apart = norm(one - other) / (1.0 + norm(other))
            require(
                apart < 1e-6,
                f"{name}, `{field}` of `advance` differs by a fraction of {apart:.1e}",
            )


def coordinates(kit: PipelineKit) -> None:
    """`q` and `qd` have the same meaning as in `Generalized`, and shorter steps
    converge to its results.

    Free joints: velocity in world axes, angular velocity in body axes; quaternions
    scalar first.
    """
    for name, run in (("box", _spinning), ("pendulum", _swinging)):
        exact, start, _ = run(kit, 0.125)
        reference = kit.reference(exact, start.q, start.qd)
        twice = with_dt(exact, 2.0)
        rough = kit.reference(twice, start.q, start.qd)
        at = STEPS // 8
        error = {}
        for share, k in ((1.0, at - 1), (0.5, 2 * at - 1)):
            _, _, path = run(kit, share)
            near = _change(exact, reference, STEPS - 1, path, k)
            far = _change(exact, rough, STEPS // 2 - 1, path, k)
            # Euler's error is of first order: extrapolation from two step sizes removes
            # it.
            error[share] = norm(2.0 * near - far)
        gone = norm(_change(exact, start, None, reference, STEPS - 1))
        few, many = error[1.0] / gone, error[0.5] / gone
        require(
            few < 0.1 and many < 0.75 * few + 1e-5,
            f"the {name} is off by {few:.2%} of its displacement, and by {many:.2%} with "
            "half the time step; at most 10 %, and half of that, are expected",
        )


def _change(sys: System, start, k: int | None, end, last: int) -> np.ndarray:
    """Compute the difference of two states, in tangent coordinates."""
    q, qd = (start.q, start.qd) if k is None else (start.q[k], start.qd[k])
    turned = difference(sys, q, end.q[last])
    return np.concatenate([turned, end.qd[last] - qd])
