"""Gymnasium's environments with a converged solver, evaluated at the current state."""

import gymnasium
import mujoco
import numpy as np

from .reference import converge


IDS = {
    "ant": "Ant-v5",
    "half_cheetah": "HalfCheetah-v5",
    "hopper": "Hopper-v5",
    "humanoid": "Humanoid-v5",
    "humanoidstandup": "HumanoidStandup-v5",
    "inverted_double_pendulum": "InvertedDoublePendulum-v5",
    "inverted_pendulum": "InvertedPendulum-v5",
    "pusher": "Pusher-v5",
    "reacher": "Reacher-v5",
    "swimmer": "Swimmer-v5",
    "walker2d": "Walker2d-v5",
}
TERMS = {
    "forward": "reward_forward",
    "healthy": "reward_survive",
    "ctrl": "reward_ctrl",
    "contact": "reward_contact",
    "near": "reward_near",
}
_OTHER_TERMS = {
    "humanoidstandup": {
        "up": "reward_linup",
        "ctrl": "reward_quadctrl",
        "impact": "reward_impact",
    },
    "inverted_double_pendulum": {
        "distance": "distance_penalty",
        "velocity": "velocity_penalty",
    },
}
_OTHER_TERMS |= {name: {"distance": "reward_dist"} for name in ("pusher", "reacher")}


def shipped(name: str, **options):
    """Return Gymnasium's unmodified environment, without a time limit."""
    return gymnasium.make(IDS[name], **options).unwrapped


def refreshed(name: str, **options):
    """Return the same class with a converged solver. After a step, and after setting a
    state, MuJoCo evaluates forces and positions at the new state.

    In unmodified environments, they are those of the last evaluation during the step,
    one stage of the integrator earlier.
    """
    env = shipped(name, **options)
    converge(env.model)
    simulate, place = env._step_mujoco_simulation, env.set_state

    def refresh():
        mujoco.mj_forward(env.model, env.data)
        mujoco.mj_rnePostConstraint(env.model, env.data)

    def simulate_and_refresh(ctrl, n_frames):
        simulate(ctrl, n_frames)
        refresh()

    def place_and_refresh(qpos, qvel):
        place(qpos, qvel)
        # Forces at rest, as after `mj_resetData`.
        env.data.ctrl[:] = 0.0
        refresh()

    env._step_mujoco_simulation = simulate_and_refresh
    env.set_state = place_and_refresh
    return env


def term_of(name: str, ours: str) -> str | None:
    """Return Gymnasium's key of a reward term; None for terms that it does not
    report."""
    return _OTHER_TERMS.get(name, {}).get(ours, TERMS.get(ours))


def draw_action(env, rng: np.random.Generator) -> np.ndarray:
    """Draw a random action, exact in single precision, to which Gymnasium rounds."""
    return rng.uniform(env.action_space.low, env.action_space.high).astype(np.float32)
