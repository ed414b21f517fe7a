"""What many tests need, most of it from where users have it too."""

import hypothesis

from eqsim.testing import (
    check_gradients as check_gradients,
    tree_allclose as tree_allclose,
)


def examples(count: int) -> int:
    """Return a number of examples for `hypothesis.settings`: a quarter in `make test`."""
    quick = hypothesis.settings.get_current_profile_name() == "quick"
    return max(1, count // 4) if quick else count
