"""Forward mode = reverse mode = differences, for all of `eqsim.dynamics`.

The first state is the reference at rest, where all rotations are the identity.
"""

import jax
import numpy as np
import pytest
import systems
from helpers import check_gradients


# Functions that do not read a number: its derivative is zero.
UNREAD = ("geoms", "pairs", "limit", "friction", "impratio", "range", "links.mass")


@pytest.mark.parametrize("name", ("stacked", "forest"))
def test_all(name):
    sys, x = systems.system(name), systems.inputs(name, 3)
    fn = lambda sys, x: jax.vmap(systems.dynamic, (None, 0))(sys, x)
    largest = check_gradients(fn, sys, x, rtol=1e-5, atol=1e-6)
    read = {k: v for k, v in largest.items() if not any(u in k for u in UNREAD)}
    print({k: v for k, v in read.items() if v == 0})
    assert all(np.isfinite(v) for v in largest.values())
