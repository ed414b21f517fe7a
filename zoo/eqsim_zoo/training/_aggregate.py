"""Statistics over runs that differ by their seed."""

import numpy as np
from jaxtyping import Float
from scipy import stats

from eqsim.bridges import check_count


def interquartile_mean(scores: Float[np.ndarray, "runs *tasks"]) -> float:
    """Return the mean of the middle half of all scores.

    A quarter of the scores (rounded down) is left out at either end. The interquartile
    mean is less sensitive to single runs than the mean, and uses more of the runs than the
    median.

    **Arguments:**

    - `scores`: one score per run, such as the mean return of a seed; or one per run and
        task.

    ??? cite "Reference"
        Agarwal et al., *Deep reinforcement learning at the edge of the statistical
        precipice*, 2021, section 4.3.
    """
    return float(stats.trim_mean(np.ravel(scores), 0.25))


def bootstrap_interval(
    scores: Float[np.ndarray, "runs *tasks"], *, draws: int = 2000, seed: int = 0
) -> tuple[float, float]:
    """Return the 95 % confidence interval of `interquartile_mean`.

    Percentiles of the stratified bootstrap: each draw takes as many runs as there are,
    with replacement, independently for each task. Episodes are not drawn, since episodes
    of one run are not independent runs. Intervals of fewer than about five runs are too
    narrow.

    **Arguments:**

    - `scores`: one score per run, or one per run and task.
    - `draws`: number of bootstrap samples.
    - `seed`: random seed.

    **Raises:** `ValueError` if there are fewer than two runs.

    ??? cite "Reference"
        Agarwal et al., *Deep reinforcement learning at the edge of the statistical
        precipice*, 2021, section 4.1.
    """
    check_count("draws", draws)
    check_count("seed", seed, 0)
    scores = np.asarray(scores)
    if len(scores) < 2:
        raise ValueError(
            f"An interval needs at least 2 runs, but `scores` has {len(scores)}."
        )
    rows = scores.reshape(len(scores), -1)
    chosen = np.random.default_rng(seed).integers(len(rows), size=(draws, *rows.shape))
    drawn = np.take_along_axis(rows[None], chosen, axis=1).reshape(draws, -1)
    means = stats.trim_mean(drawn, 0.25, axis=1)
    low, high = np.percentile(means, (2.5, 97.5))
    return float(low), float(high)
