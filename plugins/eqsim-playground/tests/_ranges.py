"""Checks of random values."""

import numpy as np


def spread(values, low, high):
    """Check that values are within a range, and reach the lowest and highest tenth of it."""
    assert np.all((values >= low - 1e-9) & (values <= high + 1e-9))
    assert np.min(values) < low + 0.1 * (high - low)
    assert np.max(values) > high - 0.1 * (high - low)
