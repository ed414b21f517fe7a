import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

from eqsim.io import load_mjcf
from eqsim.model import check_state, GeomKind, validate
from eqsim.model.pairs import _REGISTRY


TEXT = """
<mujoco><worldbody><geom name="floor" type="plane" size="1 1 1"/>
  <body name="torso"><freejoint name="root"/><geom name="trunk" size=".1"/>
    <body name="leg"><joint name="hip" range="-1 1" frictionloss="1"/>
      <geom name="shin" size=".1"/></body>
    <body name="arm"><joint name="shoulder" type="ball"/><geom name="hand" size=".1"/>
    </body></body></worldbody>
  <contact><pair geom1="floor" geom2="shin"/></contact>
  <actuator><motor name="motor" joint="hip" ctrlrange="-1 1"/></actuator></mujoco>
"""


@pytest.fixture(scope="module")
def sys():
    return load_mjcf(TEXT)


def zero(index):
    return lambda x: x.at[index].set(0.0)


BAD = {
    "nan": (lambda s: s.links.com, lambda x: x.at[1, 2].set(jnp.nan),
            r"System.links.com is NaN at index \(1, 2\)"),
    "nan scalar": (lambda s: s.dt, lambda x: x * jnp.nan, r"System.dt is NaN at index"),
    "mass": (lambda s: s.links.mass, lambda x: x.at[1].set(-2.0),
             "Link 'leg' has mass -2.0 kg"),
    "no mass": (lambda s: (s.links.mass, s.links.inertia),
                lambda x: x.at[2].set(0.0), "'arm' moves but has no mass.*'shoulder'"),
    "inertia": (lambda s: s.links.inertia, lambda x: x.at[0, 1].set(-1.0),
                "'torso' has moments of inertia .*-1.0"),
    "triangle": (lambda s: s.links.inertia, lambda x: x.at[0, 1].set(9.0),
                 "'torso' has moments of inertia .* which no body has"),
    "quat": (lambda s: s.links.quat, zero(1), "Links.quat of 'leg' is zero"),
    "inertia_quat": (lambda s: s.links.inertia_quat, zero(1), "inertia_quat of 'leg'"),
    "dt": (lambda s: s.dt, zero(()), "System.dt is 0.0, but must be positive"),
    "impratio": (lambda s: s.impratio, zero(()), "System.impratio is 0.0"),
    "density": (lambda s: s.density, lambda x: x + 1, "has_fluid is False"),
    "viscosity": (lambda s: s.viscosity, lambda x: x - 1, "zero or positive"),
    "friction": (lambda s: s.joints.frictionloss, lambda x: x.at[0].set(3.0),
                 "'root' has frictionloss 3.0, but Joints.has_friction is False"),
    "negative loss": (lambda s: s.joints.frictionloss, lambda x: x.at[6].set(-3.0),
                      "'hip' has frictionloss -3.0. It must not be negative"),
    "damping": (lambda s: s.joints.damping, lambda x: x.at[7].set(-3.0),
                "'shoulder' has damping -3.0. It must not be negative"),
    "armature": (lambda s: s.joints.armature, lambda x: x.at[7].set(-3.0),
                 "'shoulder' has armature -3.0"),
    "range": (lambda s: s.joints.range, lambda x: -x, "'hip' is limited to"),
    "axis": (lambda s: s.joints.axis, zero(1), "'hip' has a zero axis"),
    "limit solimp": (lambda s: s.joints.limit_solimp, lambda x: x.at[1, 0].set(-0.1),
                     "'hip' has limit_solimp .* not be negative"),
    "friction solimp": (lambda s: s.joints.friction_solimp,
                        lambda x: x.at[6, 4].set(0.5), "'hip' has friction_solimp"),
    "ref": (lambda s: s.joints.ref, lambda x: x.at[8:].set(0.0),
            "Joints.ref of 'shoulder' is a zero quaternion"),
    "geom quat": (lambda s: s.geoms.quat, zero(1), "Geoms.quat of 'trunk'"),
    "geom friction": (lambda s: s.geoms.friction, lambda x: x.at[2, 0].set(-1.0),
                      "Shape 'shin' has friction"),
    "geom size": (lambda s: s.geoms.size, lambda x: x.at[2, 0].set(-1.0),
                  "Shape 'shin' has size"),
    "geom solimp": (lambda s: s.geoms.solimp, lambda x: x.at[2, 3].set(1.5),
                    "Shape 'shin' has solimp .* midpoint"),
    "pair friction": (lambda s: s.pairs.friction, lambda x: x.at[0, 0].set(-1.0),
                      "Shape 'floor with shin' has friction"),
    "pair solimp": (lambda s: s.pairs.solimp, lambda x: x.at[0, 0].set(-1.0),
                    "Pair 'floor with shin' has solimp"),
    "ctrl_range": (lambda s: s.actuators.ctrl_range, lambda x: -x,
                   "'motor' has ctrl_range"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_values(case, sys):
    where, change, message = BAD[case]
    bad = eqx.tree_at(where, sys, replace_fn=change)
    with pytest.raises(ValueError, match=message):
        validate(bad)
    # In a batch one bad robot is enough.
    batch = jax.tree.map(lambda x, y: jnp.stack([x, y]), sys, bad)
    with pytest.raises(ValueError, match=message.replace(r" at index \(1, 2\)", "")):
        validate(batch)
    # What is not known yet is not checked.
    jax.eval_shape(validate, bad)


def test_good_values(sys):
    assert validate(sys) is sys
    fleet = jax.tree.map(lambda x: jnp.stack([x, x, x]), sys)
    assert validate(fleet) is fleet
    placeholder = jax.tree.map(lambda _: None, sys)
    assert validate(placeholder) is placeholder


def test_massless_middle_is_fine(sys):
    """A massless link moves the mass of what hangs on it."""
    where = lambda s: (s.links.mass, s.links.inertia)
    validate(eqx.tree_at(where, sys, replace_fn=zero(0)))
    armature = eqx.tree_at(lambda s: s.joints.armature, sys, replace_fn=jnp.ones_like)
    validate(eqx.tree_at(where, armature, replace_fn=zero(2)))


BAD_STATES = {
    r"`q` has shape \(14,\), .* has nq = 12: pass": {"q": jnp.zeros(14)},
    r"`qd` has shape \(\), .* has nv = 10: pass": {"qd": jnp.zeros(())},
    r"`ctrl` has shape \(2, 1\), .* has nu = 1: pass": {"ctrl": jnp.zeros((2, 1))},
    r"`act` has shape \(1,\).*na = 0": {"act": jnp.zeros(1)},
    "`q` must be floating point, but is int": {"q": jnp.zeros(12, int)},
}


@pytest.mark.parametrize("message", BAD_STATES)
def test_bad_states(message, sys):
    with pytest.raises(ValueError, match=message):
        check_state(sys, **BAD_STATES[message])


def test_contacts_that_are_not_supported(sys, monkeypatch):
    def with_geoms(**changes):
        geoms = dataclasses.replace(sys.geoms, **changes)
        return eqx.tree_at(lambda s: s.geoms, sys, geoms)

    with pytest.raises(ValueError, match="'trunk' has condim 5"):
        validate(with_geoms(condim=(3, 5, 3, 3)))
    kinds = (GeomKind.PLANE, *[GeomKind.CYLINDER] * 3)
    monkeypatch.delitem(_REGISTRY, (GeomKind.CYLINDER, GeomKind.CYLINDER))
    with pytest.raises(ValueError, match="contacts of cylinder and cylinder are not"):
        validate(with_geoms(kinds=kinds))


def test_zero_quaternions(sys):
    with pytest.raises(ValueError, match="quaternion of joint 'shoulder' in q is zero"):
        check_state(sys, sys.joints.ref.at[8:].set(0.0))
    with pytest.raises(ValueError, match="quaternion of joint 'root' in q is zero"):
        check_state(sys, sys.joints.ref.at[3:7].set(0.0))
    # What is not known yet is not checked.
    jax.eval_shape(lambda q: check_state(sys, q), jnp.zeros(sys.nq))
