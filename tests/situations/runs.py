"""Runs of agents: members, NaNs, and signals."""

import pathlib
import signal
import tempfile
import warnings

import equinox as eqx
import jax
import numpy as np
from toys import Rail
from zoo.agents import AGENTS
from zoo.search import Search
from zoo.states import bits
from zoo.test_train import NAN_AGENTS, RareNaN

from eqsim.testing import probes
from eqsim_zoo import load_run, resume, Run, train
from eqsim_zoo.runs import read_metrics
from eqsim_zoo.training import AbstractCallback, Interrupted, Terminated


SHORT = {"episode_length": 5, "turns": 3, "evaluations": 1, "episodes": 3}


def members(rng) -> None:
    """Each member is the run of its agent with its seed."""
    name, seed = str(rng.choice(["ppo", "es", "ars"])), int(rng.integers(1000))
    seeds, pool = int(rng.integers(2, 4)), int(rng.choice([0, 8]))
    agent, env = AGENTS[name], Rail()  # Its initial states are random.
    plan = {"steps": 600, "pool_size": pool} | SHORT
    every = train(Run(agent, env, seed=seed, num_seeds=seeds, **plan))
    member = int(rng.integers(seeds))
    alone = train(Run(agent, env, seed=seed + member, **plan))
    picked = every.members.pick(every.state, member)
    numbers = lambda tree: jax.tree.leaves(eqx.filter(tree, eqx.is_inexact_array))
    for one, other in zip(numbers(picked), numbers(alone.state), strict=True):
        text = f"{name}, seed {seed} + {member}, pool {pool}"
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-9, err_msg=text)


def nan_rewards(rng) -> None:
    """Whether a run fails, and its result, do not depend on the number of turns."""
    name = str(rng.choice([*NAN_AGENTS]))
    env = RareNaN(probes.point_mass(), float(10.0 ** rng.uniform(-3.0, 1.0)))
    seed, ends = int(rng.integers(1000)), []
    for turns in rng.choice([1, 2, 5, 20, 40], 2, replace=False):
        plan = {"turns": int(turns), "evaluations": 0, "pool_size": 8}
        plan |= {"episode_length": 10, "seed": seed}
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            out = pathlib.Path(folder) / "run"
            try:
                result = train(Run(NAN_AGENTS[name], env, 400, **plan), out=out)
            except FloatingPointError as error:
                assert "rewards (terms: `distance`) were not" in str(error), error
                ends.append("failed")
                continue
            rows = read_metrics(out)
            bad = sum(row["nonfinite_rewards"] for row in rows)
            ends.append((bits(result.state), bad))
    assert ends[0] == ends[1], (name, env.distance, seed, [x == "failed" for x in ends])


class _Signal(AbstractCallback):
    """Raises a signal in a turn."""

    def __init__(self, turn: int, number: int):
        self._turn, self._number = turn, number

    def start(self, run, folder, turn) -> None:
        pass

    def turn(self, turn) -> None:
        if turn.counters.turn == self._turn:
            signal.raise_signal(self._number)

    def close(self) -> None:
        pass


def interrupted(rng) -> None:
    """Ctrl-C and SIGTERM end a run after a turn; resumed, it is that without a signal."""
    number = signal.SIGINT if rng.random() < 0.5 else signal.SIGTERM
    kind = Interrupted if number == signal.SIGINT else Terminated
    plan = dict(
        steps=400, seed=int(rng.integers(1000)), pool_size=8, **SHORT | {"turns": 8}
    )
    turn, agent, env = int(rng.integers(1, 8)), Search(), Rail()
    whole = train(Run(agent, env, **plan))
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "run"
        try:
            train(Run(agent, env, **plan), out=out, callbacks=[_Signal(turn, number)])
        except kind as error:
            result = error.result
        else:
            raise AssertionError(f"no {kind.__name__} in turn {turn}")
        assert result.counters.turn == turn
        stored = load_run(out, agent=agent, env=env)
        assert bits(stored.state) == bits(result.state)
        assert bits(resume(out, agent=agent, env=env).state) == bits(whole.state)
