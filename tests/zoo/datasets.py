"""Small datasets whose steps are known."""

import jax.tree_util as jtu
import numpy as np

from eqsim_zoo.data import About, Dataset


BOUNDS = np.array([[-2.0, 3.0], [0.0, 1.0]])
ABOUT = About("rail", ("somebody",), -10.0, 90.0)


def vectors(rng, number):
    return rng.normal(size=(number, 3))


def dictionaries(rng, number):
    picture = rng.integers(0, 256, (number, 4, 3, 1)).astype(np.uint8)
    return {"picture": picture, "inner": {"vector": vectors(rng, number)}}


def recorded(lengths, ends, breaks=(), make=vectors, seed=0):
    """Return the steps of consecutive trajectories, by name.

    - `lengths`: length of each trajectory; `ends`: true if the task terminates there.
    - `breaks`: steps after which the next one starts from another state.
    """
    rng, number = np.random.default_rng(seed), sum(lengths)
    paths = [make(rng, length + 1) for length in lengths]
    cut = lambda part: jtu.tree_map(
        lambda *x: np.concatenate([part(y) for y in x]), *paths
    )
    obs, next_obs = cut(lambda x: x[:-1]), cut(lambda x: x[1:])
    other = make(rng, number)
    for k in (k for k in breaks if k < number):
        jtu.tree_map(lambda x, y: x.__setitem__(k, y[k]), next_obs, other)
    last = np.zeros(number, bool)
    last[np.cumsum(lengths) - 1] = True
    done = np.zeros(number, bool)
    done[np.cumsum(lengths) - 1] = ends
    return {
        "obs": obs,
        "action": rng.uniform(*BOUNDS.T, (number, 2)),
        # The trajectory, and after the point the step.
        "reward": np.repeat(np.arange(len(lengths)), lengths)
        + 0.001 * np.arange(number),
        "next_obs": next_obs,
        "terminated": done,
        "truncated": last & ~done,
    }


def created(*args, **kwargs):
    return Dataset.create(**recorded(*args, **kwargs), bounds=BOUNDS, about=ABOUT)


def assert_same(one, two):
    """Bit by bit."""
    assert jtu.tree_structure(one) == jtu.tree_structure(two)
    for x, y in zip(jtu.tree_leaves(one), jtu.tree_leaves(two)):
        x, y = np.asarray(x), np.asarray(y)
        assert x.dtype == y.dtype and x.shape == y.shape
        assert x.tobytes() == y.tobytes()
