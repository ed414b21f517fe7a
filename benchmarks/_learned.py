"""Training and evaluation of one agent for the tables of learning benchmarks."""

import time
from typing import Any

import jax

import eqsim_zoo as zoo
from eqsim import AbstractEnv, AbstractOnlineAgent


def learn(
    name: str,
    agent: AbstractOnlineAgent,
    env: AbstractEnv,
    run: zoo.Run,
    episodes: int,
) -> dict[str, Any]:
    """Train an agent, and evaluate its deterministic policy with keys of its own."""
    begin = time.monotonic()
    result = zoo.train(run)
    seconds = time.monotonic() - begin
    found = zoo.evaluate(
        agent,
        result.state,
        env,
        jax.random.key(1000 + run.seed),
        episodes=episodes,
        episode_length=run.episode_length,
    )
    return {
        "agent": name,
        "seed": run.seed,
        "return": float(found.mean()),
        "steps": result.counters.steps,
        "seconds": seconds,
    }
