"""Compare TorchRL's `BraxEnv` with `EqsimEnv`: rollouts and gradients of the ant.

    pip install brax==0.14.2
    python benchmarks/brax_env.py --out out/bench

Both ants are simulated in generalized coordinates, the default of `BraxEnv`, with
control steps of 0.05 s in five physics steps, as in Gymnasium. Gymnasium's file uses
RK4, which evaluates the dynamics four times per step; "Euler" is the same robot with
the integrator of `BraxEnv`.
"""

import argparse
import dataclasses
import importlib.metadata
import json
import os
import pathlib
import platform
import statistics
import time


# First calls compile, independently of caches of earlier runs.
os.environ.pop("JAX_COMPILATION_CACHE_DIR", None)

import torch
from eqsim_torchrl import EqsimWrapper
from torchrl.envs import BraxEnv

import eqsim
from eqsim.model import Integrator


PACKAGES = "eqsim", "eqsim-torchrl", "torch", "torchrl", "jax", "brax"
ONE = "one program"
KINDS = (
    "eqsim",
    f"eqsim, {ONE}",
    "eqsim, Euler",
    f"eqsim, Euler, {ONE}",
    "BraxEnv, caches kept",
    "BraxEnv",
)


def made(kind: str, batch: int, grad: bool):
    """Create an environment of a kind."""
    if kind.startswith("eqsim"):
        ant = eqsim.make("ant")
        if "Euler" in kind:
            robot = dataclasses.replace(ant.sys, integrator=Integrator.EULER)
            ant = dataclasses.replace(ant, sys=robot)
        env = EqsimWrapper(ant, batch_size=[batch], requires_grad=grad)
    else:
        options = {"cache_clear_frequency": False} if "kept" in kind else {}
        env = BraxEnv(
            "ant", batch_size=[batch], requires_grad=grad, device="cpu", **options
        )
    env.set_seed(0)
    return env


def rollout(env, kind: str, steps: int):
    """Run a rollout with random actions."""
    if ONE not in kind:
        return env.rollout(steps, break_when_any_done=False)
    env.reset()
    return env.unroll(env.action_spec.rand((steps,)).movedim(0, 1))[0]


def gradient(env, kind: str, steps: int) -> torch.Tensor:
    """Compute the gradient of the mean reward, with respect to an action shared by all
    steps."""
    action = torch.zeros(env.action_spec.shape, requires_grad=True)
    if ONE in kind:
        env.reset()
        actions = action.unsqueeze(1).expand(-1, steps, -1)
        reward = env.unroll(actions)[0]["next", "reward"]
    else:
        policy = lambda tensordict: tensordict.set("action", action.clone())
        found = env.rollout(steps, policy, break_when_any_done=False)
        reward = found["next", "reward"]
    reward.mean().backward()
    assert action.grad is not None
    return action.grad


def seconds(call, kind: str, repeats: int) -> tuple[float, float]:
    """Return seconds of the first call, and of the best of the others; their mean if
    caches are cleared, which affects only some calls."""
    found = []
    for _ in range(1 + repeats):
        begin = time.perf_counter()
        call()
        found.append(time.perf_counter() - begin)
    usual = statistics.mean if kind == "BraxEnv" else min
    return found[0], usual(found[1:])


def main() -> None:
    """Measure all environments, and write the results."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--out", type=pathlib.Path, default=pathlib.Path("out/bench"))
    options.add_argument("--batches", type=int, nargs="*", default=[4, 16, 128])
    options.add_argument("--gradient-batches", type=int, nargs="*", default=[4])
    options.add_argument("--repeats", type=int, default=3)
    options.add_argument("--kinds", nargs="*", choices=KINDS, default=list(KINDS))
    chosen = options.parse_args()
    rows = []
    for grad in (False, True):
        for batch in chosen.gradient_batches if grad else chosen.batches:
            for kind in chosen.kinds:
                env, steps = made(kind, batch, grad), 10 if grad else 100
                run = gradient if grad else rollout
                first, warm = seconds(
                    lambda: run(env, kind, steps), kind, chosen.repeats
                )
                what = "gradient of 10 steps" if grad else "rollout of 100 steps"
                rows.append([what, batch, kind, first, warm])
                print(rows[-1], flush=True)
    versions = {name: importlib.metadata.version(name) for name in PACKAGES}
    where = {
        "machine": platform.machine(),
        "processor": processor(),
        "cpus": os.cpu_count(),
        "date": time.strftime("%Y-%m-%d"),
        **versions,
    }
    chosen.out.mkdir(parents=True, exist_ok=True)
    (chosen.out / "brax_env.json").write_text(
        json.dumps({"where": where, "rows": rows})
    )
    print(where)
    print(table(rows))


def processor() -> str:
    """Return the name of the processor, if the system provides it."""
    file = pathlib.Path("/proc/cpuinfo")
    lines = file.read_text().splitlines() if file.exists() else []
    names = [line.split(":")[1].strip() for line in lines if "model name" in line]
    return names[0] if names else platform.processor()


def table(rows: list) -> str:
    """Return seconds, and ratios to eqsim step by step: of first calls, which compile,
    and of the others."""
    lines = [
        "| task | batch | environment | first, s | ratio | warm, s | ratio |",
        "|" + "---|" * 7,
    ]
    base = {(what, batch): both for what, batch, kind, *both in rows if kind == "eqsim"}
    for what, batch, kind, *both in rows:
        one, other = base.get((what, batch), both)
        first, warm = both
        lines.append(
            f"| {what} | {batch} | {kind} | {first:.2f} | {first / one:.2f} "
            f"| {warm:.4f} | {warm / other:.2f} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
