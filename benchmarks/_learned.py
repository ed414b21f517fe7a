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
    plan: zoo.Plan,
    episodes: int,
) -> dict[str, Any]:
    """Train an agent, and evaluate its deterministic policy with keys of its own."""
    begin = time.monotonic()
    result = zoo.train(agent, env, plan)
    seconds = time.monotonic() - begin
    found = zoo.evaluate(
        agent,
        result.state,
        env,
        jax.random.key(1000 + plan.seed),
        episodes=episodes,
        episode_length=plan.episode_length,
    )
    return {
        "agent": name,
        "seed": plan.seed,
        "return": float(found.mean()),
        "steps": result.counters.steps,
        "seconds": seconds,
    }
