"""What is recorded with pictures can be imitated by who sees nothing else."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from opengl import needs_opengl
from scipy import linalg

import eqsim
import eqsim_zoo as zoo
from eqsim.wrappers import Pixels, StackObservation
from eqsim_zoo import data, vision


class Balance(eqx.Module):
    """A linear controller of the pendulum, which knows its state: of the latest."""

    gain: jax.Array

    def __call__(self, obs, key):
        state = obs["state"][-4:] if isinstance(obs, dict) else obs
        return jnp.clip(-self.gain @ state, -3.0, 3.0)


def expert(env):
    """The linear-quadratic regulator at the upright pose."""
    state, _ = env.reset(jr.key(0))
    zeros = jnp.zeros_like(state.q)
    state = dataclasses.replace(state, q=zeros, qd=zeros)
    model = eqsim.linearize(env, state, jnp.zeros(1))
    a, b = np.asarray(model.A, float), np.asarray(model.B, float)
    q, r = np.diag([1.0, 10.0, 0.1, 0.1]), np.eye(1)
    p = linalg.solve_discrete_are(a, b, q, r)
    gain = np.linalg.solve(r + b.T @ p @ b, b.T @ p @ a)
    return Balance(jnp.asarray(gain, zeros.dtype))


@pytest.mark.slow  # Thousands of pictures, seen by a network of convolutions.
@needs_opengl
def test_pixels_imitate_an_expert():
    """Three pictures of a pole on a cart, and BC with IMPALA reaches at least 80 % of what
    the expert does, who knows angles and velocities."""
    with jax.enable_x64(False):  # As users do; convolutions are slow.
        imitated, known = imitation()
    print(f"expert {known:.1f}, of pictures {imitated:.1f}")
    assert imitated >= 0.8 * known


def imitation() -> tuple[float, float]:
    """Returns of BC and of the expert."""
    plain = eqsim.make("inverted_pendulum")
    teacher, size = expert(plain), {"width": 32, "height": 32}
    both = StackObservation(Pixels(plain, only=False, **size), 3)
    noisy = data.noisy_policy(teacher, plain.action_range, jnp.asarray(0.3))
    args = {"num_envs": 64, "episode_length": 100, "pool_size": 16}
    shown = data.record(both, noisy, jr.key(0), steps=6400, **args)
    seen = eqx.tree_at(lambda d: d.frames, shown, shown.frames["pixels"])
    # What the expert would have done, without the noise.
    best = jax.vmap(lambda s: teacher({"state": s}, None))(shown.vectors()["state"])
    seen = eqx.tree_at(lambda d: d.action, seen, best)
    agent = zoo.BC(
        hidden=(64,),
        deterministic=True,
        inputs=vision.Images(vision.Impala(widths=(8, 16), blocks=1, outputs=64)),
        learning_rate=1e-3,
    )
    student = zoo.Offline(agent, batch_size=64, num_updates=50)
    env = StackObservation(Pixels(plain, **size), 3)
    evaluation = {"episodes": 8, "episode_length": 200, "evaluations": 1}
    result = zoo.train(zoo.Run(student, env, 1500, turns=5, **evaluation, data=seen))
    reached = float(result.evaluations[-1][1].mean()[0])
    keys = jr.split(jr.key(1), 8)
    stop = lambda timestep: timestep.done
    out = eqsim.rollout(eqsim.TimeLimit(plain, 200), teacher, keys, 200, stop=stop)
    known = np.where(out.valid, out.timestep.reward, 0.0).sum(axis=1).mean()
    return reached, float(known)
