"""Online agents that observe images and dictionaries, and critics that see more."""

import dataclasses
from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
import pytest
from zoo.agents import AGENTS, init, iterate

import eqsim
from eqsim.testing import probes
from eqsim_zoo import vision
from eqsim_zoo.agents import RecurrentPPOState
from eqsim_zoo.blocks import normalize
from eqsim_zoo.blocks.replay import OffPolicyState


PROBE = probes.observed_action_reward()
SIZE = 8
ENCODER = vision.SmallCNN(widths=(8,), kernels=(4,), strides=(4,), outputs=16)


def gray(obs):
    """An image whose gray value is the first entry of a vector."""
    level = jnp.round(255.0 * jnp.clip(0.5 + 0.25 * obs[0], 0.0, 1.0))
    return jnp.full((SIZE, SIZE, 1), level).astype(jnp.uint8)


class Shown(eqsim.wrappers.AbstractStateless):
    """Observations that are a function of those of `env`."""

    env: eqsim.AbstractEnv
    show: Callable = eqx.field(static=True)

    lifetime = eqsim.wrappers.Lifetime.NONE

    def reset(self, key, options=None):
        return self._shown(*self.env.reset(key, options))

    def step(self, state, action):
        return self._shown(*self.env.step(state, action))

    def _shown(self, state, timestep):
        both = lambda t: (t.obs, t.final_obs)
        change = lambda x: None if x is None else self.show(x)
        none = lambda x: x is None
        return state, eqx.tree_at(both, timestep, replace_fn=change, is_leaf=none)


def seeing(name, **settings):
    """A small agent with an encoder, and settings of its inputs."""
    inputs = vision.Images(ENCODER, **settings)
    return dataclasses.replace(AGENTS[name], inputs=inputs)


CROPPED = {"shared": True, "augmentations": (vision.RandomCrop(1),)}
SEEING = {
    "ppo": seeing("ppo"),
    "recurrent_ppo": seeing("recurrent_ppo"),
    "sac": seeing("sac"),
    "sac, shared": seeing("sac", **CROPPED),
    "td3": seeing("td3"),
    "td3, shared": seeing("td3", shared=True),
}


@pytest.mark.parametrize("name", SEEING)
@pytest.mark.quick_cases("ppo")
def test_learns_from_images(name):
    """The best action follows the gray value of an image; a policy that does not see it
    gets at most 0.75."""
    agent, probe, reward = SEEING[name], probes.observed_action_reward(), 0.0
    env = Shown(probe, gray)
    state = init(agent, jr.key(0), env)
    for _ in range(150):
        state, _ = iterate(agent, state, env)
        reward = float(mean_reward(agent, state, probe))
        if reward >= 0.95:
            return
    raise AssertionError(f"a mean reward of {reward}")


@eqx.filter_jit
def mean_reward(agent, state, probe):
    return probe.mean_reward(lambda obs: agent.act(state, gray(obs)))


def both(obs):
    return {"camera": gray(obs), "known": obs}


BLIND = {
    "ppo": seeing("ppo", actor_parts=("camera",)),
    "recurrent_ppo": seeing("recurrent_ppo", actor_parts=("camera",)),
    "sac": seeing("sac", actor_parts=("camera",), critic_parts=("known",)),
    "td3": dataclasses.replace(
        seeing("td3", actor_parts=("camera",)), normalize_observations=True
    ),
}


@pytest.mark.parametrize("name", BLIND)
@pytest.mark.quick_cases("sac")
def test_actors_see_their_parts_only(name, getkey):
    """Actions do not change with the other parts, which may be missing; values do."""
    agent = BLIND[name]
    env = Shown(probes.observed_action_reward(), both)
    state = init(agent, getkey(), env)
    obs = {"camera": jr.randint(getkey(), (SIZE, SIZE, 1), 0, 256).astype(jnp.uint8)}
    known = [{"known": x} for x in jr.normal(getkey(), (2, 2))]
    alone = agent.act(state, obs)
    for part in known:
        assert np.array_equal(agent.act(state, obs | part), alone)
    values = [value(state, obs | part) for part in known]
    assert np.all(np.abs(values[0] - values[1]) > 1e-6)


def value(state, obs):
    if isinstance(state, OffPolicyState):
        obs = normalize(state.learner.statistics, obs)
        return state.learner.critic.model(obs, jnp.zeros(1))
    if isinstance(state, RecurrentPPOState):
        return first_value(state.learner.model, normalize(state.statistics, obs))
    return state.learner.model.value(normalize(state.statistics, obs))


def first_value(networks, obs):
    """Value in the first step of an episode."""
    x = jnp.concatenate([networks.value_features(obs), jnp.zeros(1)])
    return networks.value(networks.value.first_memory(), x)[1]


@pytest.mark.slow
def test_encoded_sequences_are_those_of_collection(getkey):
    """With a step size of zero, the policy of all minibatches is the one that acted, with
    the hidden states that it left: the ratio of probabilities is 1."""
    agent = dataclasses.replace(seeing("recurrent_ppo"), learning_rate=0.0)
    probe = type(PROBE)(constant=1.0, weight=1.0, follow=0.8, length=3.0)
    env = Shown(probe, gray)
    state = init(agent, getkey(), env)
    for _ in range(2):
        state, report = iterate(agent, state, env)
        assert abs(float(report["kl"])) < 1e-12
    assert np.any(np.asarray(state.running.memory.hidden) != 0.0)


@pytest.mark.slow
def test_a_shared_encoder_learns_from_the_critic_alone(getkey):
    """The actor takes its features as constants: with another loss of the actor, by
    another temperature, the encoder moves in the same way."""
    agent = seeing("sac", shared=True)
    env = Shown(probes.observed_action_reward(), gray)
    state, _ = iterate(agent, init(agent, getkey(), env), env)
    batch = state.memory.replay.sample(getkey(), 8)
    # The last steps of episodes: the temperature is not part of the critic's target.
    batch = dataclasses.replace(batch, terminated=jnp.ones(8, bool))
    state = state.learner
    hot = eqx.tree_at(lambda s: s.temperature.model, state, jnp.ones(()))
    update = eqx.filter_jit(agent.update)
    (one, _), (two, _) = update(state, batch), update(hot, batch)
    senses = lambda s: jtu.tree_leaves(s.critic.model.features)
    for x, y in zip(senses(one), senses(two)):
        np.testing.assert_allclose(x, y, rtol=1e-12)
    assert not eqx.tree_equal(one.actor.model, two.actor.model)
    assert not np.array_equal(senses(one)[0], senses(state)[0])


ERRORS = {
    "names 'camera', but the observation is a single array": (
        seeing("sac", actor_parts=("camera",)),
        gray,
    ),
    r"names 'cam', but the observation has the parts \['camera', 'known'\]": (
        seeing("ppo", critic_parts=("cam",)),
        both,
    ),
    "needs an encoder": (AGENTS["td3"], both),
    "The observation 'camera' is an image .* needs an encoder": (
        AGENTS["recurrent_ppo"],
        both,
    ),
    "`SAC.inputs` is `Images`.* has no image": (seeing("sac"), lambda obs: obs),
}


@pytest.mark.parametrize("message", ERRORS)
def test_errors_of_observations(message):
    agent, show = ERRORS[message]
    with pytest.raises(ValueError, match=message):
        agent.init(jr.key(0), Shown(probes.constant_reward(), show))


WRONG = {
    "`critic_parts` must be equal": lambda: seeing(
        "sac", shared=True, actor_parts=("camera",)
    ),
    "`PPO` does not support `shared`": lambda: seeing("ppo", shared=True),
    "`RecurrentPPO` does not support `augmentations`": lambda: seeing(
        "recurrent_ppo", augmentations=(vision.RandomCrop(1),)
    ),
}


@pytest.mark.parametrize("message", WRONG)
def test_errors_of_image_settings(message):
    with pytest.raises(ValueError, match=message):
        WRONG[message]()


def two_parts(obs):
    return {"place": obs, "speed": 2.0 * obs}


@pytest.mark.parametrize("name", ("ppo", "sac"))
@pytest.mark.quick_cases("sac")
def test_observations_of_another_environment_are_refused(name, getkey):
    """Other parts of the same total size would be taken silently."""
    agent = AGENTS[name]
    env = Shown(probes.observed_action_reward(), two_parts)
    state = init(agent, getkey(), env)
    good = eqx.filter_jit(env.reset)(getkey())[1].obs
    size = good["place"].shape
    agent.act(state, good)
    for obs, words in (
        ({"place": good["place"]}, "'speed' is missing"),
        (good | {"other": jnp.zeros(1)}, "'other' is none of them"),
        ({"place": good["place"], "velocity": good["speed"]}, "'speed' is missing"),
        (good["place"], "is missing"),
        (
            good | {"speed": jnp.zeros(size[0] + 1)},
            "speed.* got shape|speed.* has shape",
        ),
    ):
        with pytest.raises(ValueError, match=words):
            agent.act(state, obs)
    state = eqx.filter_eval_shape(init, agent, getkey(), env.env)
    with pytest.raises(ValueError, match="a vector of 2 numbers, got shape"):
        eqx.filter_eval_shape(agent.act, state, jnp.zeros(3))
