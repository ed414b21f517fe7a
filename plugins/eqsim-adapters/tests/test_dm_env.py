"""eqsim in dm_env's interface."""

import numpy as np
import pytest
from eqsim_adapters import to_dm_env

import eqsim


dm_env = pytest.importorskip("dm_env", reason="needs the extra dm-env")


def test_time_limit():
    env = to_dm_env(eqsim.make("point_mass", reset_noise_scale=0.01), max_steps=3)
    steps = [env.step(np.zeros(1)) for _ in range(6)]
    kinds = [dm_env.StepType(step.step_type).name for step in steps]
    assert kinds == ["FIRST", "MID", "MID", "LAST", "FIRST", "MID"]
    assert [step.discount for step in steps] == [None, 1, 1, 1, None, 1]
    assert steps[0].reward is None and steps[3].reward < 0
    assert not np.array_equal(steps[0].observation, steps[4].observation)
    same = to_dm_env(eqsim.make("point_mass", reset_noise_scale=0.01), max_steps=3)
    assert np.array_equal(same.reset().observation, steps[0].observation)


def test_end():
    env = to_dm_env(eqsim.make("point_mass"))
    env.reset()
    steps = [env.step(np.full(1, 50.0)) for _ in range(2)]
    last = next(step for step in steps if step.last())
    assert last.discount == 0


def test_specs():
    env = to_dm_env(eqsim.make("inverted_pendulum"))
    actions = env.action_spec()
    assert actions.minimum == -3 and actions.maximum == 3 and actions.shape == (1,)
    env.observation_spec().validate(env.reset().observation)
    env.reward_spec().validate(env.step(actions.generate_value()).reward)
    env.discount_spec().validate(env.step(actions.generate_value()).discount)


def test_actions_without_bounds():
    """Their specification generates one that the environment accepts."""
    env = to_dm_env(eqsim.make("point_mass"))
    env.reset()
    actions = env.action_spec().replace(name="force")
    assert not np.any(np.isfinite([actions.minimum, actions.maximum]))
    assert np.isfinite(env.step(actions.generate_value()).reward)


def test_bad_input(two_parts):
    with pytest.raises(ValueError, match="parts .'obs'., .'privileged'.. Leave out"):
        to_dm_env(two_parts)
    env = to_dm_env(eqsim.make("point_mass"))
    env.reset()
    for action in (np.zeros(2), np.full(1, np.nan)):
        with pytest.raises(ValueError, match=r"finite values and shape \(1,\)"):
            env.step(action)
    with pytest.raises(ValueError, match="`AutoReset`.*dm_env"):
        to_dm_env(eqsim.AutoReset(eqsim.make("point_mass")))


def test_curriculum_goes_on(curriculum):
    env = to_dm_env(curriculum, max_steps=2)
    steps = [env.step(np.zeros(1)) for _ in range(7)]
    assert [float(step.observation[0]) for step in steps] == [0, 0, 0, 1, 1, 1, 2]
