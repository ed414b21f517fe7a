"""Forward mode = reverse mode = differences, for all of `eqsim.dynamics`.

The first state is the reference at rest, where all rotations are the identity.
"""

import jax
import jax.tree_util as jtu
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
        "geoms.fluid_coefficients",
        *(f"geoms.{k}" for k in ("solimp", "solmix", "margin")),
        *(f"pairs.{k}" for k in ("friction", "solref", "solref_friction", "solimp")),
        *("pairs.margin", "equalities.active", "sensors.cutoff"),
        *(f"keyframes.{k}" for k in ("q", "qd", "act", "ctrl")),
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


SOME = ("aba", "potential", "passive", "actuators")
REST = ("rnea", "crba", "kinetic", "momentum", "inertias", "velocities")


@pytest.mark.parametrize("wanted", (SOME, REST), ids=("some", "rest"))
@pytest.mark.parametrize("name", ("buoy", "stacked"))
@pytest.mark.slow  # `pipelines/test_gradients.py` differentiates steps by everything.
def test_all(name, wanted):
    sys, x = systems.system(name), systems.inputs(name, 3)
    fn = jax.vmap(lambda sys, x: systems.dynamic(sys, x, wanted), (None, 0))
    largest = check_gradients(fn, sys, x, atol=1e-6)
    leaves = jtu.tree_leaves_with_path((sys, x))
    absent = {jtu.keystr(path) for path, leaf in leaves if leaf.size == 0}
    zero = {k for k, v in largest.items() if v == 0} - absent
    if wanted == SOME:
        assert zero == (UNREAD | WITHOUT[name] | {"[1].qdd"}) - absent
    else:
        assert (UNREAD | WITHOUT[name]) - absent <= zero
        assert not zero & {f"[0].links.{k}" for k in ("mass", "com", "inertia", "pos")}
