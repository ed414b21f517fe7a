"""Counts are integers: a float is refused, also a whole one; for test_arguments.py."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toys import Rail

import eqsim_zoo as zoo
from eqsim import Generalized, load_mjcf, Positional, rollout, Spring
from eqsim.constraint import Newton
from eqsim.control import CEM, ILQR, MPPI, PredictiveSampling
from eqsim.envs import Ant
from eqsim.identify import design_experiment, fit, Solver, structural_identifiability
from eqsim.wrappers import (
    ActionRepeat,
    DelayAction,
    OneHotSkills,
    Pixels,
    StackObservation,
    TimeLimit,
    UniformSkills,
)


ENV = Rail()
POLICY = lambda obs, key: jnp.zeros(2)
COUNTS = {
    "frame_skip": lambda n: Ant(frame_skip=n),
    "ActionRepeat.repeat": lambda n: ActionRepeat(ENV, n),
    "DelayAction.delay": lambda n: DelayAction(ENV, n),
    "DelayAction.shortest": lambda n: DelayAction(ENV, 5, n),
    "StackObservation.number": lambda n: StackObservation(ENV, n),
    "TimeLimit.length": lambda n: TimeLimit(ENV, n),
    "width": lambda n: Pixels(ENV, n, 8),
    "OneHotSkills.size": OneHotSkills,
    "UniformSkills.size": UniformSkills,
    "Generalized.max_contacts": lambda n: Generalized(max_contacts=n),
    "substeps, Spring": lambda n: Spring(substeps=n),
    "substeps, Positional": lambda n: Positional(substeps=n),
    "Newton.max_full_steps": lambda n: Newton(max_full_steps=n),
    "Newton.max_searched_steps": lambda n: Newton(max_searched_steps=n),
    "MPPI.samples": lambda n: MPPI(samples=n),
    "CEM.iterations": lambda n: CEM(iterations=n),
    "PredictiveSampling.samples": lambda n: PredictiveSampling(samples=n),
    "ILQR.max_steps": lambda n: ILQR(max_steps=n),
    "ILQR.lanes": lambda n: ILQR(lanes=n),
    "height_field_contacts": lambda n: load_mjcf("<mujoco/>", height_field_contacts=n),
    "length": lambda n: rollout(ENV, POLICY, jax.random.key(0), n),
    "checkpoint_every": lambda n: rollout(
        ENV, POLICY, jax.random.key(0), 4, checkpoint_every=n
    ),
    "Solver.max_steps": lambda n: fit(ENV.sys, [], {}, solver=Solver(max_steps=n)),
    "motions": lambda n: structural_identifiability(ENV.sys, {}, motions=n),
    "candidates": lambda n: design_experiment(ENV.sys, {}, 1.0, 1.0, candidates=n),
    "PPO.num_envs": lambda n: zoo.PPO(num_envs=n),
    "PPO.policy_hidden[1]": lambda n: zoo.PPO(policy_hidden=(4, n)),
    "SAC.critic_hidden[0]": lambda n: zoo.SAC(critic_hidden=(n,)),
    "SmallCNN.strides[0]": lambda n: zoo.vision.SmallCNN(strides=(n, 2, 1)),
    "num_seeds": lambda n: zoo.Run("ppo", "ant", 10, num_seeds=n),
    "episodes": lambda n: zoo.Run("ppo", "ant", 10, episodes=n),
}


NUMBERS = 2.0, 0.3 / 0.1, 2.5, True, "2", np.float32(2.0)


def check_all() -> None:
    for name, make in COUNTS.items():
        for number in NUMBERS:
            words = f"`{name.split(',')[0]}` must be an integer of at least "
            with pytest.raises(ValueError, match=re.escape(words)):
                make(number)
    three = np.int64(3)
    assert Ant(frame_skip=three).dt == Ant(frame_skip=3).dt
    assert ActionRepeat(ENV, three).dt == ActionRepeat(ENV, 3).dt
    agent = zoo.PPO(num_minibatches=np.int64(4), policy_hidden=[np.int32(8), 4])
    assert type(agent.num_minibatches) is type(agent.policy_hidden[0]) is int
    run = lambda steps: zoo.Run("ppo", "ant", steps)
    assert run(1e3) == run(np.int64(1000)) == run(1000)
    for steps in (1.5, np.inf, np.nan, True, "10", 0):
        with pytest.raises(ValueError, match="`steps` must be an integer of at"):
            run(steps)
    with pytest.raises(ValueError, match="`PPO.policy_hidden` must be a tuple of int"):
        zoo.PPO(policy_hidden=64)
