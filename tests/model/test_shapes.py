"""Arrays of the wrong shape or type are found at the edge, and named."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
import pytest
from hypothesis import given, strategies as st

import eqsim
from eqsim import dynamics, kinematics
from eqsim.model import JointKind, State, System, validate
from eqsim.model._checks import check_shapes, declared, parts, size_of
from eqsim.testing import random_system


@functools.lru_cache
def tiny():
    return random_system(3, 2, (JointKind.REVOLUTE,), 1)


def edges(sys):
    """Every way into the physics, as functions without arguments."""
    pipeline = eqsim.Generalized()
    state = State(tiny().joints.ref, jnp.zeros(2), jnp.zeros(tiny().na))
    ctrl = jnp.zeros(tiny().nu)
    step = lambda sys: pipeline.step(sys, state, ctrl).qd
    return {
        "init": lambda: pipeline.init(sys),
        "step": lambda: step(sys),
        "step under jit": lambda: eqx.filter_jit(step)(sys),
        "contacts": lambda: pipeline.contacts(sys, state, ctrl),
        "spring": lambda: eqsim.Spring().step(sys, state, ctrl),
        "positional": lambda: eqsim.Positional().init(sys),
        "dynamics": lambda: dynamics.crba(sys, state.q),
        "kinematics": lambda: kinematics.forward(sys, state.q),
        "validate": lambda: validate(sys),
    }


EDGES = tuple(edges(None))
WRONG = {
    "mass": (lambda s: s.links.mass, jnp.ones(1),
             r"System.links.mass has shape \(1,\), .* needs \(nlink,\) = \(2,\)"),
    "damping": (lambda s: s.joints.damping, jnp.ones(1),
                r"System.joints.damping has shape \(1,\), .* \(nv,\) = \(2,\)"),
    "gravity": (lambda s: s.gravity, jnp.ones(1),
                r"System.gravity has shape \(1,\), .* needs \(3,\)\."),
    "inertia": (lambda s: s.links.inertia, jnp.ones((2, 1)),
                r"System.links.inertia has shape \(2, 1\).*\(nlink, 3\) = \(2, 3\)"),
    "scalar": (lambda s: s.links.mass, jnp.ones(()),
               r"System.links.mass has shape \(\), "),
    "integers": (lambda s: s.links.mass, jnp.ones(2, int),
                 "System.links.mass must be floating point, but is int"),
}  # fmt: skip


@pytest.mark.parametrize("edge", EDGES)
@pytest.mark.parametrize("case", WRONG)
def test_wrong_shapes(case, edge):
    where, value, says = WRONG[case]
    with pytest.raises(ValueError, match=says):
        edges(eqx.tree_at(where, tiny(), value))[edge]()


@pytest.mark.parametrize("edge", [edge for edge in EDGES if "jit" not in edge])
@pytest.mark.parametrize("value", (1.0, 2, [1.0, 2.0]))
def test_numbers_of_python(value, edge):
    """Left in, each value would be compiled anew."""
    for where, name in (
        (lambda s: s.links.mass, "links.mass"),
        (lambda s: s.dt, "dt"),
    ):
        sys = eqx.tree_at(where, tiny(), value, is_leaf=lambda x: x is value)
        with pytest.raises(ValueError, match=f"System.{name} is .*Use jnp.asarray"):
            edges(sys)[edge]()


def test_numbers_that_jax_traces_are_accepted():
    """`jax.jit` and `jax.grad` make arrays of numbers of Python."""
    sys = eqx.tree_at(lambda s: s.dt, tiny(), 0.01)
    state, ctrl = eqsim.Generalized().init(tiny()), jnp.zeros(tiny().nu)
    step = lambda sys: jnp.sum(eqsim.Generalized().step(sys, state, ctrl).qd)
    wanted = step(eqx.tree_at(lambda s: s.dt, tiny(), jnp.asarray(0.01)))
    assert np.allclose(jax.jit(step)(sys), wanted, rtol=1e-12)
    assert np.isfinite(jax.grad(step)(sys).dt)


def test_arrays_of_numpy_are_accepted():
    sys = jax.tree.map(np.asarray, tiny())
    for call in edges(sys).values():
        call()


def test_missing_arrays():
    sys = eqx.tree_at(lambda s: s.links.mass, tiny(), None)
    with pytest.raises(ValueError, match="System.links.mass is None"):
        edges(sys)["step"]()
    assert validate(sys) is sys


def test_batches():
    """A batch belongs under `vmap`, inside of which shapes are those of one robot."""
    fleet = jax.tree.map(lambda x: jnp.stack([x, x]), tiny())
    assert validate(fleet) is fleet
    with pytest.raises(
        ValueError, match="For a batch, wrap the call in eqx.filter_vmap"
    ):
        edges(fleet)["step"]()
    state, ctrl = eqsim.Generalized().init(tiny()), jnp.zeros(tiny().nu)
    step = lambda sys: eqsim.Generalized().step(sys, state, ctrl)
    assert eqx.filter_vmap(step)(fleet).q.shape == (2, 2)
    wrong = eqx.tree_at(lambda s: s.links.mass, fleet, jnp.ones((2, 1)))
    for call in (lambda: validate(wrong), lambda: eqx.filter_vmap(step)(wrong)):
        with pytest.raises(ValueError, match=r"System.links.mass has shape"):
            call()


def test_environments():
    env = eqsim.make("inverted_pendulum")
    wrong = eqx.tree_at(lambda e: e.sys.joints.damping, env, jnp.ones(1))
    says = r"System.joints.damping has shape \(1,\)"
    with pytest.raises(ValueError, match=says):
        wrong.reset(jr.key(0))
    state, _ = env.reset(jr.key(0))
    with pytest.raises(ValueError, match=says):
        wrong.step(state, jnp.zeros(env.sys.nu))
    with pytest.raises(ValueError, match=says):
        eqsim.rollout(wrong, lambda obs, key: jnp.zeros(1), jr.key(0), 2)


def test_nothing_is_computed():
    """Checks leave no operation behind."""
    sys = tiny()
    assert not jax.make_jaxpr(lambda sys: check_shapes(sys))(sys).jaxpr.eqns


def test_every_dimension_is_known():
    """A field with a dimension that nothing counts would be checked less well: give the
    `System`, or the part, a property of that name."""
    sys = tiny()
    for path, part in parts(sys, "System"):
        assert declared(type(part)), path
        for field in declared(type(part)):
            for dim in field.dims:
                known = size_of(dim, part, sys) is not None or dim == "order"
                assert known, f"{path}.{field.name}: {dim}"


def test_every_array_is_declared():
    names = {
        f"{path}.{field.name}"
        for path, part in parts(tiny(), "System")
        for field in declared(type(part))
        if not (field.optional and vars(part)[field.name] is None)
    }
    leaves = jtu.tree_leaves_with_path(tiny())
    assert {f"System{jtu.keystr(path)}" for path, _ in leaves} == names


@given(
    seed=st.integers(0, 10_000),
    nlink=st.integers(1, 6),
    leaf=st.integers(0, 200),
    change=st.sampled_from(("longer", "shorter", "axis", "flat")),
)
def test_any_wrong_leaf_of_any_robot(seed, nlink, leaf, change):
    """Whatever array gets another shape, it is named; the right one passes."""
    sys = random_system(seed, nlink, num_roots=1)
    check_shapes(sys)
    flat, structure = jtu.tree_flatten_with_path(sys)
    path, value = flat[leaf % len(flat)]
    wrong = {
        "longer": lambda x: jnp.zeros((*x.shape[:-1], (x.shape or (1,))[-1] + 1)),
        "shorter": lambda x: jnp.zeros((*x.shape[:-1], abs((x.shape or (3,))[-1] - 1))),
        "axis": lambda x: jnp.zeros((2, *x.shape)),
        "flat": lambda x: jnp.zeros(x.size + 5),
    }[change](value)
    leaves = [x for _, x in flat]
    leaves[leaf % len(flat)] = wrong
    bad: System = jtu.tree_unflatten(structure, leaves)
    with pytest.raises(ValueError, match=f"System{jtu.keystr(path)} has shape"):
        check_shapes(bad)
    if change == "axis":
        check_shapes(bad, batched=True)
