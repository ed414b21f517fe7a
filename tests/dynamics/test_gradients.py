"""Forward mode = reverse mode = differences, for all of `eqsim.dynamics`.

The first state is the reference at rest, where all rotations are the identity.
"""

import functools as ft

import jax
import pytest
import systems
from helpers import check_gradients


UNREAD = {
    f"[0].{name}"
    for name in (
        *("joints.range", "joints.limit_margin", "joints.limit_solref"),
        *("joints.limit_solimp", "joints.frictionloss", "joints.friction_solref"),
        *("joints.friction_solimp", "impratio"),
        *(f"geoms.{k}" for k in ("pos", "quat", "size", "friction", "solref")),
        *(f"geoms.{k}" for k in ("solimp", "solmix", "margin")),
        *(f"pairs.{k}" for k in ("friction", "solref", "solimp", "margin")),
        *("actuators.time_constant", "actuators.act_range", "dt"),
    )
} | {"[1].point", "[1].v"}
# Of these robots: neither hinge nor slide; no spring, medium or activation.
WITHOUT = {
    "buoy": {
        *("[0].joints.axis", "[0].joints.ref"),
        *("[0].actuators.ctrl_range", "[0].actuators.force_range"),
    },
    "stacked": {
        *("[0].joints.spring_ref", "[0].wind", "[0].density", "[0].viscosity"),
        "[1].act",
    },
}


@pytest.mark.parametrize(
    "name", ("buoy", pytest.param("stacked", marks=pytest.mark.slow))
)
def test_all(name):
    sys, x = systems.system(name), systems.inputs(name, 3)

    @ft.partial(jax.vmap, in_axes=(None, 0))
    def fn(sys, x):
        # The last two are `rnea` with zeros.
        return systems.dynamic(sys, x, without=("bias", "gravity"))

    largest = check_gradients(fn, sys, x, atol=1e-6)
    zero = {k for k, v in largest.items() if v == 0}
    assert zero == UNREAD | WITHOUT[name]
