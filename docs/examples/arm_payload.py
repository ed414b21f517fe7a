"""Mass, center of mass and inertia of what an arm holds, from recorded joint angles.

    python docs/examples/arm_payload.py flexiv_rizon4/scene.xml --link link7

Recordings are simulated: a cube of 1.5 kg, and noise of 0.1 mrad.
"""

import argparse

import jax


jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp
import mujoco
import numpy as np

import eqsim
from eqsim import identify


DT, SECONDS, NOISE = 0.005, 4.0, 1e-4
REAL = 1.5, (0.03, -0.02, 0.08), 0.1  # Mass, kg, center and side of a cube, m.
GUESS = 0.5, (0.0, 0.0, 0.05), 0.1


def holding(file: str, link: str, cube: tuple) -> eqsim.System:
    """Load an arm whose link holds a cube, without contacts."""
    spec, (mass, center, side) = mujoco.MjSpec.from_file(file), cube
    spec.option.timestep = DT
    spec.option.disableflags |= mujoco.mjtDisableBit.mjDSBL_CONTACT
    held = spec.body(link).add_body(name="held")
    box = mujoco.mjtGeom.mjGEOM_BOX
    held.add_geom(type=box, size=[side / 2] * 3, pos=center, mass=mass)
    return eqsim.load_mjcf(spec)


def record(robot: eqsim.System, seed: int) -> identify.Recording:
    """Move all joints by slow sines about the middle of their ranges."""
    rng, time = np.random.default_rng(seed), np.arange(0.0, SECONDS, DT)
    low, high = np.asarray(robot.actuators.ctrl_range).T
    middle, half = 0.5 * (low + high), 0.5 * (high - low)
    rate, phase = rng.uniform(1.0, 3.0, (2, robot.nu))
    share = 0.4 * np.sin(np.outer(time, rate) + phase)
    ctrl, pipeline = middle + half * share, eqsim.Generalized()
    step = lambda state, u: (pipeline.step(robot, state, u), state.q)
    start = pipeline.init(robot, jnp.asarray(ctrl[0]))
    q = np.asarray(eqsim.scan(step, start, jnp.asarray(ctrl))[1])
    q = q + rng.normal(0.0, NOISE, q.shape)
    return identify.Recording(time, ctrl, {"q": q}, f"run-{seed}")


def estimate(file: str, link: str) -> identify.Result:
    """Fit mass, center of mass and inertia of the cube."""
    real, guess = (holding(file, link, cube) for cube in (REAL, GUESS))
    runs = [record(real, seed) for seed in range(3)]
    unknown = {"held": identify.Inertia(("held",))}
    return identify.fit(guess, runs[:2], unknown, validate=runs[2:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", help="MJCF file of an arm with position servos")
    parser.add_argument("--link", required=True, help="link that holds the payload")
    options = parser.parse_args()
    result = estimate(options.file, options.link)
    mass, center, _ = REAL
    print(result)
    print(f"error of the mass: {result.values[0] - mass:.1e} kg")
    print("error of its center, m:", np.round(result.values[1:4] - center, 5))


if __name__ == "__main__":
    main()
