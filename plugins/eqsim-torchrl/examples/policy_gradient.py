"""Compare policy gradients through ten steps of the ant, stepwise and in one program.

python examples/policy_gradient.py --name ant --steps 10
"""

import argparse
import time

import torch
from eqsim_torchrl import EqsimEnv
from tensordict.nn import TensorDictModule
from torchrl.modules import MLP


def main(name: str, steps: int, batch: int, updates: int) -> list[float]:
    """Train, and return the mean reward before each update."""
    torch.manual_seed(0)
    env = EqsimEnv(name, batch_size=[batch], requires_grad=True)
    env.set_seed(0)
    sizes = env.observation_spec["observation"].shape[-1], env.action_spec.shape[-1]
    network = torch.nn.Sequential(
        MLP(*sizes, num_cells=[64, 64], activation_class=torch.nn.Tanh), torch.nn.Tanh()
    )
    policy = TensorDictModule(network, in_keys=["observation"], out_keys=["action"])

    begin = time.perf_counter()
    rollout = env.rollout(steps, policy, break_when_any_done=False)
    rollout["next", "reward"].mean().backward()
    first = [parameter.grad.clone() for parameter in network.parameters()]
    print(f"step by step: {time.perf_counter() - begin:.2f} s, with compiling")

    # From the same initial states as above.
    optimizer, earned = torch.optim.Adam(network.parameters(), 3e-3), []
    env.set_seed(0)
    env.reset()
    for update in range(updates):
        begin = time.perf_counter()
        rollout, _ = env.unroll(network, steps)
        reward = rollout["next", "reward"].mean()
        optimizer.zero_grad()
        (-reward).backward()
        if update == 0:
            found = [-parameter.grad for parameter in network.parameters()]
            torch.testing.assert_close(found, first, rtol=1e-2, atol=1e-4)
        optimizer.step()
        earned.append(reward.item())
        seconds = time.perf_counter() - begin
        print(f"update {update}: reward {earned[-1]:.3f}, {seconds:.3f} s")
    return earned


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--name", default="ant")
    options.add_argument("--steps", type=int, default=10)
    options.add_argument("--batch", type=int, default=32)
    options.add_argument("--updates", type=int, default=10)
    main(**vars(options.parse_args()))
