"""Trainings of QDax's tests of DADS and DIAYN, with their settings."""

import numpy as np
import pytest

import eqsim
import eqsim_zoo as zoo
from eqsim.wrappers import OneHotSkills, Skills


SKILLS = 5
STEPS = 10_000
SMERL = zoo.RewardMix(task=1.0, diversity=2.0, target_return=-200.0, margin=40.0)


def sac(num_envs, num_updates):
    """Settings that the four trainings share."""
    return zoo.SAC(
        num_envs=num_envs,
        unroll_length=1,
        num_updates=num_updates,
        capacity=STEPS,
        random_steps=0.0,
        discount=0.97,
        target_entropy=-0.5,
    )


def trained(agent, name, length, folder):
    """Evaluation after training."""
    env = Skills(eqsim.make(name), OneHotSkills(SKILLS))
    number = agent.sac.num_envs
    sizes = {"pool_size": number, "turns": 1, "evaluations": 1, "episodes": number}
    plan = dict(steps=STEPS, episode_length=length, **sizes)
    result = zoo.train(zoo.Run(agent, env, **plan), out=folder)
    ((steps, evaluation),) = result.evaluations
    print(f"{name}: {evaluation.mean()} in {evaluation.length()} steps")
    print(f"diversity: {evaluation.diversity.mean()}")
    # Learning begins when the replay holds a batch.
    learning = STEPS // number - (agent.sac.batch_size - 1) // number
    assert steps == STEPS
    assert int(result.state.updates) == learning * agent.sac.num_updates
    assert [row["nonfinite"] for row in zoo.runs.read_metrics(folder)] == [0, 0]
    assert np.all(np.isfinite(evaluation.returns))
    # Rewards of skills are at most the logarithm of their number.
    most = evaluation.lengths * np.log(SKILLS) + 1e-6
    assert np.all(evaluation.diversity <= most)
    return evaluation


@pytest.mark.slow
def test_diayn(tmp_path):
    """QDax: `test_diayn`: the return after training is above -400."""
    evaluation = trained(zoo.DIAYN(sac=sac(200, 20)), "walker2d_uni", 100, tmp_path)
    assert evaluation.mean() > -400.0


@pytest.mark.slow
def test_diayn_smerl(tmp_path):
    """QDax: `test_diayn_smerl`: the return after training is above -200."""
    agent = zoo.DIAYN(sac=sac(100, 10), mix=SMERL)
    assert trained(agent, "walker2d_uni", 100, tmp_path).mean() > -200.0
