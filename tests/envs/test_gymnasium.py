"""One control step beside Gymnasium's environments: observation, reward, termination."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import eqsim


ENVS = {
    "ant": (
        "Ant-v5",
        {"include_cfrc_ext_in_observation": False, "contact_cost_weight": 0.0},
        {"forward": "forward", "healthy": "survive", "ctrl": "ctrl"},
    ),
    "half_cheetah": ("HalfCheetah-v5", {}, {"forward": "forward", "ctrl": "ctrl"}),
    "inverted_pendulum": ("InvertedPendulum-v5", {}, {"upright": "survive"}),
}


def converged(name, options):
    env = gymnasium.make(name, **options).unwrapped
    env.model.opt.tolerance, env.model.opt.iterations = 0.0, 200
    env.model.opt.ls_tolerance, env.model.opt.ls_iterations = 1e-12, 200
    env.reset(seed=0)
    return env


def draw(env, rng):
    """A state that the environment may be in, and some that end the task."""
    env.reset_model()
    q, qd = env.data.qpos.copy(), env.data.qvel.copy()
    scale = rng.choice([0.1, 1.0])
    q += 0.3 * scale * rng.normal(size=q.shape)
    qd += scale * rng.normal(size=qd.shape)
    if env.model.nq > env.model.nv:
        q[3:7] /= np.linalg.norm(q[3:7])
    # Exact in single precision, to which some environments round the action.
    low, high = env.action_space.low, env.action_space.high
    action = rng.uniform(low, high).astype(np.float32)
    return q, qd, action


@pytest.mark.parametrize("name", ENVS)
def test_step(name):
    """In double precision, from the same states."""
    theirs_name, options, terms = ENVS[name]
    theirs, ours = converged(theirs_name, options), eqsim.make(name)
    rng = np.random.default_rng(0)
    cases = [draw(theirs, rng) for _ in range(12)]
    q, qd, action = (jnp.asarray(np.stack(x), float) for x in zip(*cases))

    @jax.jit
    @jax.vmap
    def step(q, qd, action):
        return ours.step(ours.pipeline.init(ours.sys, q, qd), action)

    new, timestep = step(q, qd, action)
    ended = []
    for k, (q, qd, action) in enumerate(cases):
        theirs.set_state(q, qd)
        obs, reward, terminated, _, info = theirs.step(action)
        close = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-7)
        close(new.q[k], theirs.data.qpos)
        close(new.qd[k], theirs.data.qvel)
        shown = timestep.obs[k]
        close(shown, obs)
        # Where Gymnasium reads the place of a body after `mj_step`, it is that of the last
        # stage of the integrator: the forward reward is late by a little.
        late = name == "ant"
        rough = 0.05 if late else 1e-7
        np.testing.assert_allclose(timestep.reward[k], reward, rough, rough)
        forward = (theirs.data.qpos[0] - q[0]) / theirs.dt
        if "forward" in terms:
            close(timestep.terms["forward"][k], forward)
        assert bool(timestep.terminated[k]) == bool(terminated)
        assert not timestep.truncated[k]
        for mine, their in terms.items():
            if not (late and mine == "forward"):
                close(timestep.terms[mine][k], info[f"reward_{their}"])
        summed = sum(x[k] for x in timestep.terms.values())
        close(timestep.reward[k], summed)
        ended.append(terminated)
    assert set(timestep.terms) == set(terms)
    if name != "half_cheetah":
        assert any(ended) and not all(ended)
    assert float(ours.dt) == pytest.approx(theirs.dt)
    theirs.close()
