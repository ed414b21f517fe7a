"""Recordings of masses on rails, whose course is known, for the tests of identification."""

import dataclasses

import jax.numpy as jnp
import numpy as np
from toys import Rails, rails

from eqsim import identify


SYS = rails()
DT = 0.1
DAMPING = {"damping": identify.Positive(lambda s: s.joints.damping)}
TRUTH = np.array([0.5, 0.2])


def slide(
    seed: int, steps: int, noise: float = 0.0, steady: bool = False
) -> identify.Recording:
    """Masses on rails with the damping `TRUTH`, pushed at random or with a steady force."""
    rng = np.random.default_rng(seed)
    sys = dataclasses.replace(
        SYS, joints=dataclasses.replace(SYS.joints, damping=jnp.asarray(TRUTH))
    )
    state, q = Rails().init(sys), []
    ctrl = np.full((steps, 2), 0.3) if steady else rng.normal(size=(steps, 2))
    for u in ctrl:
        q.append(np.asarray(state.q))
        state = Rails().step(sys, state, jnp.asarray(u))
    measured = np.array(q) + rng.normal(0, noise, (steps, 2))
    time = DT * np.arange(steps)
    return identify.Recording(time, ctrl, {"q": measured}, f"run-{seed}")
