"""What many tests need, from where users have it too."""

from eqsim.testing import (
    check_gradients as check_gradients,
    tree_allclose as tree_allclose,
)
