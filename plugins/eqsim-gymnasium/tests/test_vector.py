"""Many environments are so many single ones, in each autoreset mode."""

import gymnasium
import numpy as np
import pytest
from eqsim_gymnasium import EqsimEnv, EqsimVectorEnv
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import TimeLimit, vector


NUMBER, LIMIT = 5, 6
# Starts anywhere between the ends of the rail: episodes of one step up to the limit.
OPTIONS = {"reset_noise_scale": 0.9, "randomize": "masses"}


def _pair(mode):
    single = lambda: TimeLimit(EqsimEnv("point_mass", **OPTIONS), LIMIT)
    many = EqsimVectorEnv(
        "point_mass", NUMBER, max_episode_steps=LIMIT, autoreset_mode=mode, **OPTIONS
    )
    return SyncVectorEnv([single] * NUMBER, autoreset_mode=mode), many


def _assert_equal(expected, found):
    """The same numbers, shapes, types and names."""
    assert data_equivalence(expected, found, exact=True), (expected, found)


def _actions(steps):
    return np.random.default_rng(0).uniform(-2.0, 2.0, (steps, NUMBER, 1))


@pytest.mark.parametrize(
    "mode, seed",
    ((AutoresetMode.NEXT_STEP, 11), (AutoresetMode.SAME_STEP, [5, 4, 3, 2, 1])),
)
def test_equals_single_environments(mode, seed):
    expected, found = _pair(mode)
    _assert_equal(expected.reset(seed=seed), found.reset(seed=seed))
    ends = np.zeros(3, int)
    for actions in _actions(40):
        step = expected.step(actions)
        _assert_equal(step, found.step(actions))
        terminated, truncated = step[2:4]
        kinds = terminated & ~truncated, truncated & ~terminated
        ends[:2] += [kind.sum() for kind in kinds]
        ends[2] += (terminated | truncated).sum() > 1
    assert all(ends), "too few kinds of ends to compare"
    _assert_equal(expected.reset(), found.reset())
    seeds = [None, 8, None, 9, None]
    _assert_equal(expected.reset(seed=seeds), found.reset(seed=seeds))
    _assert_equal(expected.step(actions), found.step(actions))


def test_equals_single_environments_without_autoreset():
    expected, found = _pair(AutoresetMode.DISABLED)
    _assert_equal(expected.reset(seed=11), found.reset(seed=11))
    resets = 0
    for actions in _actions(40):
        step = expected.step(actions)
        _assert_equal(step, found.step(actions))
        mask = step[2] | step[3]
        if np.any(mask):
            resets += 1
            with pytest.raises(gymnasium.error.ResetNeeded, match="have ended"):
                found.step(actions)
            # `SyncVectorEnv` takes the mask out of the options it is given.
            seed = 100 if resets == 3 else None
            options = lambda: {"reset_mask": mask.copy()}
            _assert_equal(
                expected.reset(seed=seed, options=options()),
                found.reset(seed=seed, options=options()),
            )
    assert resets > 5


def test_end_and_limit_together():
    """In its last step an episode may end by itself as well."""
    expected, found = _pair(AutoresetMode.SAME_STEP)
    start = {"q": np.array([0.0]), "qd": np.array([1.0 / 0.55])}
    for envs in (expected, found):
        envs.reset(seed=0, options=start)
    for _ in range(LIMIT):
        steps = [e.step(np.zeros((NUMBER, 1))) for e in (expected, found)]
        _assert_equal(*steps)
    assert np.all(steps[1][2] & steps[1][3])


@pytest.mark.slow  # `test_equals_single_environments` compares all reports.
@pytest.mark.parametrize("mode", (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP))
def test_statistics_of_episodes(mode):
    expected, found = [vector.RecordEpisodeStatistics(e) for e in _pair(mode)]
    for envs in (expected, found):
        envs.reset(seed=0)
        for actions in _actions(30):
            envs.step(actions)
    assert found.episode_count == expected.episode_count > 10
    assert list(found.return_queue) == list(expected.return_queue)
    assert list(found.length_queue) == list(expected.length_queue)


def test_normalized_observations():
    pair = [vector.NormalizeObservation(e) for e in _pair(AutoresetMode.NEXT_STEP)]
    _assert_equal(*[envs.reset(seed=0)[0] for envs in pair])
    for actions in _actions(10):
        _assert_equal(*[envs.step(actions)[0] for envs in pair])


def test_make_vec():
    name = "eqsim_gymnasium:eqsim/PointMass-v0"
    envs = gymnasium.make_vec(name, num_envs=3, max_episode_steps=2, pipeline="spring")
    assert type(envs) is EqsimVectorEnv
    assert envs.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    assert envs.observation_space.shape == (3, 2) and envs.num_envs == 3
    envs.reset(seed=0)
    truncated = [envs.step(np.zeros((3, 1)))[3].tolist() for _ in range(4)]
    never, always = [False] * 3, [True] * 3
    assert truncated == [never, always, never, never]
    endless = gymnasium.make_vec(name, num_envs=2, max_episode_steps=-1)
    endless.reset(seed=0, options={"q": [0.0], "qd": [0.0]})
    assert not any(endless.step(np.zeros((2, 1)))[3].any() for _ in range(5))


def test_one_start_per_environment():
    envs = EqsimVectorEnv("point_mass", 3)
    q = np.array([[0.1], [0.2], [0.3]])
    obs, _ = envs.reset(options={"q": q, "qd": [0.5]})
    assert np.array_equal(obs, np.concatenate([q, np.full((3, 1), 0.5)], 1))


def test_actions_are_ignored_by_resets():
    envs = EqsimVectorEnv("point_mass", 2, max_episode_steps=1)
    envs.reset(seed=0)
    envs.step(np.zeros((2, 1)))
    obs, reward, terminated, truncated, infos = envs.step(np.full((2, 1), 1e3))
    other = EqsimVectorEnv("point_mass", 2, max_episode_steps=1)
    other.reset(seed=0)
    assert np.array_equal(obs, other.reset()[0])
    assert not np.any(reward) and not np.any(terminated | truncated) and infos == {}


def test_pictures(opengl):
    size = {"render_mode": "rgb_array", "width": 24, "height": 16}
    envs = EqsimVectorEnv("point_mass", 2, randomize="masses", **size)
    envs.reset(seed=0, options={"q": [[-0.5], [0.5]], "qd": [0.0]})
    left, right = envs.render()
    assert left.shape == right.shape == (16, 24, 3) and np.any(left != right)
    single = EqsimEnv("point_mass", **size)
    single.reset(seed=0, options={"q": [-0.5], "qd": [0.0]})
    assert np.array_equal(single.render(), left)


@pytest.mark.parametrize(
    "options, error, text",
    [
        (
            {"num_envs": 0},
            ValueError,
            "`num_envs` must be an integer of at least 1, got 0",
        ),
        ({"max_episode_steps": 0}, ValueError, "None for no limit, as -1, got 0"),
        ({"autoreset_mode": "Never"}, ValueError, "Never"),
    ],
)
def test_bad_construction(options, error, text):
    with pytest.raises(error, match=text):
        EqsimVectorEnv("point_mass", **options)


def test_bad_calls():
    envs = EqsimVectorEnv("point_mass", 2)
    with pytest.raises(gymnasium.error.ResetNeeded, match="reset"):
        envs.step(np.zeros((2, 1)))
    with pytest.raises(ValueError, match="each of the 2 environments, got 3"):
        envs.reset(seed=[1, 2, 3])
    for mask, error in (([True, False], TypeError), (np.zeros(2, bool), ValueError)):
        with pytest.raises(error, match="reset_mask"):
            envs.reset(options={"reset_mask": mask})
    with pytest.raises(ValueError, match=r"options\['q'\].*2 environments.*\(3, 1\)"):
        envs.reset(options={"q": np.zeros((3, 1))})
    envs.reset(seed=0)
    with pytest.raises(ValueError, match=r"shape \(2, 1\).*\(1,\)"):
        envs.step(np.zeros(1))


@pytest.mark.parametrize("mode", (*AutoresetMode,))
def test_curriculum(mode, curriculum):
    """It goes on in each environment, as in single ones."""
    single = lambda: TimeLimit(EqsimEnv(curriculum), 3)
    many = EqsimVectorEnv(curriculum, 2, max_episode_steps=3, autoreset_mode=mode)
    expected = SyncVectorEnv([single] * 2, autoreset_mode=mode)
    _assert_equal(expected.reset(seed=0), many.reset(seed=0))
    levels = []
    for actions in np.tile([[0.0], [30.0]], (12, 1, 1)):
        step = expected.step(actions)
        _assert_equal(step, many.step(actions))
        mask = step[2] | step[3]
        if mode is AutoresetMode.DISABLED and np.any(mask):
            options = lambda: {"reset_mask": mask.copy()}
            found = many.reset(options=options())
            _assert_equal(expected.reset(options=options()), found)
            step = found
        levels.append(step[0][:, 0])
    # The second environment leaves the rail sooner.
    assert np.max(levels, 0)[0] >= 2 and np.max(levels, 0)[1] > np.max(levels, 0)[0]
    _assert_equal(expected.reset(), many.reset())
    _assert_equal(expected.reset(seed=3), many.reset(seed=3))
    place = {"q": np.array([0.25])}
    found = many.reset(options=place)
    _assert_equal(expected.reset(options=place), found)
    assert found[0].tolist() == [[1.0], [1.0]]
    seen, _ = many.reset(options={"start": 5})
    assert seen.tolist() == [[5.0], [5.0]]
