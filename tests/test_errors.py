import jax.numpy as jnp
import pytest

from eqsim._errors import check_shape


def test_a_right_shape_passes():
    check_shape("ctrl", jnp.zeros(8), {"nu": 8})
    check_shape("ctrl", jnp.zeros(8, jnp.float32), {"nu": 8})
    check_shape("dt", 0.1, {})


@pytest.mark.parametrize(
    "value, dims, message",
    (
        (
            jnp.zeros(7),
            {"nu": 8},
            r"`x` must have.*\(nu,\) = \(8,\).* is \(7,\)\.$",
        ),
        (jnp.zeros((5, 8)), {"nu": 8}, r"is \(5, 8\)\. For a batch.*eqx\.filter_vmap"),
        (jnp.zeros(3), {"n": 3, "three": 3}, r"\(n, three\) = \(3, 3\)"),
        (jnp.zeros(8, int), {"nu": 8}, "floating point, but is int64"),
    ),
    ids=("size", "batch", "rank", "dtype"),
)
def test_a_wrong_shape_is_named(value, dims, message):
    with pytest.raises(ValueError, match=message):
        check_shape("x", value, dims)
