"""Proximal policy optimization with TorchRL's collector, advantages and loss.

    python examples/ppo.py --name inverted_pendulum --steps 400000

The trained policy then runs as an Equinox module in a compiled rollout of eqsim.
"""

import argparse

import jax
import jax.random as jr
import torch
from eqsim_torchrl import EqsimEnv, from_torch
from tensordict.nn import NormalParamExtractor, TensorDictModule
from torch import nn
from torchrl.collectors import Collector
from torchrl.modules import MLP, ProbabilisticActor, TanhNormal, ValueOperator
from torchrl.objectives import ClipPPOLoss
from torchrl.objectives.value import GAE

import eqsim


ENVS, UNROLL = 64, 32


def main(name: str, steps: int) -> float:
    """Train, and return the mean return of the deterministic policy, in episodes of
    1000 steps.

    - `steps`: total number of steps of all environments, rounded up to whole batches.
    """
    torch.manual_seed(0)
    env = EqsimEnv(name, batch_size=[ENVS], episode_length=1000)
    env.set_seed(0)
    nobs = env.observation_spec["observation"].shape[-1]
    space, nu = env.action_spec_unbatched.space, env.action_spec.shape[-1]
    cells = {"num_cells": [64, 64], "activation_class": nn.Tanh}
    body = nn.Sequential(MLP(nobs, 2 * nu, **cells), NormalParamExtractor())
    actor = ProbabilisticActor(
        TensorDictModule(body, in_keys=["observation"], out_keys=["loc", "scale"]),
        in_keys=["loc", "scale"],
        distribution_class=TanhNormal,
        distribution_kwargs={"low": space.low, "high": space.high},
        return_log_prob=True,
    )
    critic = ValueOperator(MLP(nobs, 1, **cells), in_keys=["observation"])
    advantage = GAE(gamma=0.99, lmbda=0.95, value_network=critic, average_gae=True)
    loss = ClipPPOLoss(actor, critic, clip_epsilon=0.2, entropy_coeff=1e-4)
    optimizer = torch.optim.Adam(loss.parameters(), lr=1e-3)
    batch = ENVS * UNROLL
    turns = -(-steps // batch)
    frames = {"frames_per_batch": batch, "total_frames": turns * batch}
    collector = Collector(env, actor, **frames, auto_register_policy_transforms=True)
    for number, data in enumerate(collector):
        data["next", "reward"] = 0.1 * data["next", "reward"]
        with torch.no_grad():
            advantage(data)
        rows = data.reshape(-1)
        for _ in range(6):
            for index in torch.randperm(batch).split(batch // 8):
                parts = loss(rows[index])
                total = sum(x for key, x in parts.items() if key.startswith("loss_"))
                optimizer.zero_grad()
                total.backward()
                nn.utils.clip_grad_norm_(loss.parameters(), 1.0)
                optimizer.step()
        for group in optimizer.param_groups:
            group["lr"] = 1e-3 * (1.0 - (number + 1) / (turns + 1))
    collector.shutdown()
    return evaluate(name, body, space)


def evaluate(name: str, body: nn.Module, space) -> float:
    """Evaluate in eqsim, without PyTorch."""
    network = from_torch(body)
    low, high = (jax.numpy.asarray(x.numpy()) for x in (space.low, space.high))

    def policy(obs, key):
        return low + 0.5 * (jax.numpy.tanh(network(obs)) + 1.0) * (high - low)

    task = eqsim.make(name)
    found = eqsim.rollout(
        task, policy, jr.split(jr.key(1), 32), 1000, stop=lambda t: t.done
    )
    reward = jax.numpy.where(found.valid, found.timestep.reward, 0.0)
    return float(reward.sum(-1).mean())


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--name", default="inverted_pendulum")
    options.add_argument("--steps", type=int, default=400_000)
    print(f"return: {main(**vars(options.parse_args())):.0f}")
