"""Small agents of each kind, which solve the probes in seconds."""

import equinox as eqx

import eqsim_zoo as zoo


_HIDDEN = {"actor_hidden": (32, 32), "critic_hidden": (32, 32)}
_MEMORY = {
    "num_envs": 16,
    "unroll_length": 2,
    "num_updates": 4,
    "batch_size": 64,
    "capacity": 4096,
    "random_steps": 100.0,
    "target_rate": 0.02,
    "learning_rate": 3e-3,
}
_SHORT = {"num_envs": 16, "horizon": 4}
AGENTS = {
    "ppo": zoo.PPO(num_envs=32, unroll_length=8, num_minibatches=4, learning_rate=1e-2),
    "recurrent_ppo": zoo.RecurrentPPO(
        num_envs=32,
        unroll_length=8,
        num_minibatches=4,
        memory_size=16,
        policy_hidden=(16,),
        value_hidden=(16,),
        learning_rate=1e-2,
    ),
    "sac": zoo.SAC(temperature_learning_rate=1e-2, **_MEMORY, **_HIDDEN),
    "td3": zoo.TD3(**_MEMORY, **_HIDDEN),
    "es": zoo.ES(num_pairs=16, episode_length=2, hidden=(8,)),
    "ars": zoo.ARS(
        num_directions=16, num_best=8, episode_length=2, step_size=0.1, noise=0.1
    ),
    "apg": zoo.APG(hidden=(16,), learning_rate=1e-2, **_SHORT),
    "shac": zoo.SHAC(
        num_epochs=4,
        num_minibatches=2,
        actor_hidden=(16,),
        critic_hidden=(16,),
        **_SHORT,
    ),
}


@eqx.filter_jit
def init(agent, key, env):
    return agent.init(key, env)


@eqx.filter_jit
def iterate(agent, state, env):
    return agent.iterate(state, env)


@eqx.filter_jit
def act(agent, state, obs, key=None):
    return agent.act(state, obs, key=key)
