"""Shapes, types and bounds of Gymnasium's spaces."""

import numpy as np
import pytest
from eqsim_gymnasium import ArraySpec, EqsimEnv, from_space
from gymnasium import spaces

import eqsim


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(-1.0, np.array([1.0, 2.0]), dtype=np.float64),
        spaces.Discrete(3, start=-1),
        spaces.MultiDiscrete([2, 5], start=[1, 0]),
        spaces.MultiBinary((2, 2)),
    ],
)
def test_bounds_are_reached_and_hold(space):
    spec = from_space(space)
    samples = np.stack([space.sample() for _ in range(200)])
    assert samples.shape[1:] == spec.shape and samples.dtype == spec.dtype
    assert spec.low.dtype == spec.high.dtype == spec.dtype
    assert spec.low.shape == spec.high.shape == spec.shape
    assert np.all(samples >= spec.low) and np.all(samples <= spec.high)
    assert space.contains(_element(space, spec.low))
    assert space.contains(_element(space, spec.high))
    if np.issubdtype(spec.dtype, np.integer):
        assert np.array_equal(samples.min(0), spec.low)
        assert np.array_equal(samples.max(0), spec.high)


def _element(space, value):
    return int(value) if isinstance(space, spaces.Discrete) else value


def test_nested():
    box, number = spaces.Box(0.0, 1.0, (2,)), spaces.Discrete(2)
    spec = from_space(spaces.Dict(a=box, b=spaces.Tuple((number, box))))
    assert set(spec) == {"a", "b"} and isinstance(spec["b"], tuple)
    assert isinstance(spec["b"][0], ArraySpec) and spec["a"].shape == (2,)
    with pytest.raises(TypeError, match="Text"):
        from_space(spaces.Dict(a=spaces.Text(3)))


def test_spaces_of_environments():
    env = EqsimEnv("inverted_pendulum")
    spec = from_space(env.action_space)
    expected = eqsim.make("inverted_pendulum").action_range
    assert np.array_equal(np.stack([spec.low, spec.high], -1), expected)
    assert np.all(np.isinf(EqsimEnv("point_mass").action_space.high))
