"""Numbers that a kernel assumes to be zero or one: it is never wrong where they are not."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from kernels.harness import Kernel

import eqsim
from eqsim._kernels import _programs, pattern_of
from eqsim._primitive import known_values, Pattern, patterned
from eqsim.testing import random_system


def test_patterns():
    assert pattern_of(np.array([0.0, 1.0, -1.0, 2.0])) == b"01-."
    assert pattern_of(np.array([[0.0, -0.0], [np.nan, np.inf]])) == b"0..."
    assert pattern_of(np.array([0.5, 2.0])) is None
    assert pattern_of(np.array([0, 1])) is None
    assert pattern_of(np.zeros((0, 3))) is None


def turned(matrix, x):
    """Products and a sum with numbers that may be zero or one."""
    y = matrix @ x
    return y, jnp.sin(y) * matrix[0], x / (1.0 + matrix[2, 2] ** 2)


def numbers(dtype) -> tuple[np.ndarray, np.ndarray]:
    """A matrix of which some numbers are zero or one, and a batch of vectors."""
    matrix = np.array([[1, 0, 0], [0, 0.6, -0.8], [-1, 0.8, 0]], dtype)
    x = np.random.default_rng(0).normal(size=(21, 3)).astype(dtype)
    return matrix, x


@pytest.fixture
def compiled(monkeypatch, nothing_compiled) -> list[str]:
    """The text of each kernel that is compiled."""
    found: list[str] = []
    code = _programs.object_code
    monkeypatch.setattr(
        _programs,
        "object_code",
        lambda module: found.append(module.text()) or code(module),
    )
    return found


@pytest.mark.parametrize("dtype", (np.float32, np.float64))
def test_what_differs_is_computed_by_another_kernel(compiled, dtype):
    """That kernel is compiled once, when it is needed."""
    matrix, x = numbers(dtype)
    kernel = Kernel(turned, (0,), (pattern_of(matrix), None))
    general = Kernel(turned, (0,))
    for got, expected in zip(kernel(matrix, x), general(matrix, x), strict=True):
        assert np.allclose(got, expected, rtol=1e-6, atol=1e-6)
    assert len(compiled) == 2 and compiled[0].count("fmul") < compiled[1].count("fmul")
    before = len(compiled)
    for place in ((0, 0), (0, 1), (2, 2)):
        for number in (-1.0, 0.3, -0.0, np.nan, np.finfo(dtype).tiny):
            changed = matrix.copy()
            changed[place] = number
            pairs = zip(kernel(changed, x), general(changed, x), strict=True)
            assert all(np.array_equal(a, b, equal_nan=True) for a, b in pairs)
    assert len(compiled) == before


def test_what_is_not_assumed_may_change(compiled):
    matrix, x = numbers(np.float32)
    kernel = Kernel(turned, (0,), (pattern_of(matrix), None))
    changed = matrix.copy()
    changed[1, 1] = 7.0
    for got, expected in zip(kernel(changed, x), kernel.by_xla(changed, x)):
        assert np.allclose(got, expected, rtol=1e-5, atol=1e-5)
    assert len(compiled) == 1


def test_of_a_batch_nothing_is_assumed(compiled):
    """Each environment has a matrix of its own."""
    matrix, x = numbers(np.float32)
    many = np.broadcast_to(matrix, (21, 3, 3)).copy()
    many[4, 0, 1] = 3.0
    kernel = Kernel(turned, (), (pattern_of(matrix), None))
    for got, expected in zip(kernel(many, x), kernel.by_xla(many, x)):
        assert np.allclose(got, expected, rtol=1e-5, atol=1e-5)
    assert len(compiled) == 1


@pytest.mark.usefixtures("nothing_compiled")
def test_a_kernel_that_cannot_be_made_is_an_error(monkeypatch, caplog):
    matrix, x = numbers(np.float32)
    kernel = Kernel(turned, (0,), (pattern_of(matrix), None))
    kernel(matrix, x)

    def fails(text):
        raise _programs.CompileError("no memory is left")

    monkeypatch.setattr(_programs, "object_code", fails)
    with pytest.raises(ValueError, match="the log says why"):
        kernel(2.0 * matrix, x)
    assert "no memory is left" in caplog.text


# Robots.


def test_a_pattern_is_part_of_the_structure():
    """Compiled code depends on it, so robots with different patterns are not alike."""
    one, same = random_system(0, with_fluid=False), random_system(0, with_fluid=False)
    two = patterned(eqx.tree_at(lambda s: s.gravity, same, jnp.zeros(3)))
    structure = jax.tree.structure
    assert structure(one) == structure(same) and one.pattern == same.pattern
    assert structure(one) != structure(two) and one.pattern != two.pattern
    # As after training or randomization: only the numbers are other ones.
    edited = eqx.tree_at(lambda s: s.gravity, one, jnp.zeros(3))
    assert structure(one) == structure(edited)


def test_robots_that_were_loaded_separately_are_stacked():
    one, two = random_system(0, with_fluid=False), random_system(0, with_fluid=False)
    two = patterned(eqx.tree_at(lambda s: s.gravity, two, jnp.zeros(3)))
    robots = one.without_pattern(), two.without_pattern()
    both = jax.tree.map(lambda *xs: jnp.stack(xs), *robots)
    np.testing.assert_array_equal(both.gravity, [one.gravity, two.gravity])


def test_a_pattern_has_an_entry_for_each_array():
    sys = eqsim.make("ant").sys
    leaves = jax.tree.leaves(eqx.filter(sys, eqx.is_array))
    assert len(sys.pattern.entries) == len(leaves)
    for entry, leaf in zip(sys.pattern.entries, leaves, strict=True):
        assert entry == pattern_of(leaf)
    assert entries(("name", sys, jnp.ones(2), None)) == [*sys.pattern.entries, None]


def entries(tree):
    return [entry for part in known_values(tree) for entry in part.entries]


def test_a_pattern_that_does_not_fit_is_ignored():
    sys = random_system(0)
    fewer = eqx.tree_at(lambda s: s.gravity, sys, None, is_leaf=lambda x: x is None)
    assert set(entries(fewer)) == {None}


def test_zeros_of_derived_quantities_are_known():
    """They follow from those of the robot, when a kernel needs them."""
    env = eqsim.make("hopper")
    sys, pipeline = env.sys, env.pipeline
    one, same = pipeline.prepare(sys), pipeline.prepare(sys)
    assert one.constants.pattern == same.constants.pattern
    other = pipeline.prepare(sys.without_pattern())
    assert one.constants.pattern != other.constants.pattern == Pattern()
    leaves = jax.tree.leaves(eqx.filter(one.constants, eqx.is_array))
    for entry, leaf in zip(one.constants.pattern.entries, leaves, strict=True):
        marks = pattern_of(leaf) or b"." * leaf.size
        known = zip(entry or b"." * leaf.size, marks, strict=True)
        assert all(mark in (ord("."), found) for mark, found in known)
    assert any(one.constants.pattern.entries)


def test_a_pattern_is_saved(tmp_path):
    sys = eqsim.make("hopper").sys
    eqsim.save(tmp_path / "robot", sys)
    assert eqsim.load(tmp_path / "robot").pattern.entries == sys.pattern.entries
    assert eqsim.load(tmp_path / "robot").pattern == sys.pattern != Pattern()


@pytest.mark.parametrize("name", ("hopper", "reacher"))
@pytest.mark.quick_cases("reacher")
def test_an_edited_robot_steps_in_the_same_program(name):
    """Gravity gets a component that was zero, and axes are tilted: the program that was
    compiled for the robot of the file gives what one for the edited robot does."""
    env = eqsim.make(name)
    sys, pipeline = env.sys, env.pipeline
    axis = sys.joints.axis + 0.1
    edited = eqx.tree_at(
        lambda s: (s.gravity, s.joints.axis),
        sys,
        (
            sys.gravity + jnp.array([0.5, 0.2, 0.0]),
            axis / jnp.linalg.norm(axis, axis=-1, keepdims=True),
        ),
    )
    ctrl, count = jnp.full(sys.nu, 0.1), 0

    @eqx.filter_jit
    def step(sys, state):
        nonlocal count
        count += 1
        return pipeline.step(sys, state, ctrl)

    start = pipeline.init(sys)
    step(sys, start)
    got = step(edited, start)
    assert count == 1
    fresh = edited.without_pattern()
    expected = jax.jit(lambda state: pipeline.step(fresh, state, ctrl))(start)
    assert np.allclose(got.qd, expected.qd, rtol=1e-10, atol=1e-12)
    assert not np.allclose(got.qd, step(sys, start).qd)
