"""Each row of the table of primitives, in each format, against JAX."""

import importlib.util

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from eqsim._loops import once
from eqsim_zoo.export import _graphs as graphs
from eqsim_zoo.export._formats import onnx_model, torch_module, write_numpy
from eqsim_zoo.export._primitives import _TABLE


TORCH = importlib.util.find_spec("torch") is not None
SHAPE = (3, 4)


def both(f):
    """A function of truth values."""
    return lambda x, y: jnp.where(f(x > 0.0, y > 0.5), x, y)


def conv(x, y):
    image = jnp.stack([x, y, x + y, x - y])[None]
    kernel = 0.1 * jnp.arange(24, dtype=jnp.float32).reshape(4, 1, 2, 3)
    return lax.conv_general_dilated(
        image,
        kernel,
        (1, 2),
        [(1, 0), (2, 1)],
        rhs_dilation=(1, 2),
        feature_group_count=4,
        dimension_numbers=("NCHW", "OIHW", "NCHW"),
    )


def windows(x, y):
    pad = [(1, 0), (1, 2)]
    return lax.reduce_window(x * y, -jnp.inf, lax.max, (2, 3), (1, 2), pad)


UNARY = {
    "abs": jnp.abs,
    "acos": lambda x: jnp.arccos(0.3 * jnp.tanh(x)),
    "acosh": lambda x: jnp.arccosh(1.5 + x**2),
    "asin": lambda x: jnp.arcsin(0.3 * jnp.tanh(x)),
    "asinh": jnp.arcsinh,
    "atan": jnp.arctan,
    "atanh": lambda x: jnp.arctanh(0.3 * jnp.tanh(x)),
    "ceil": jnp.ceil,
    "cos": jnp.cos,
    "cosh": jnp.cosh,
    "erf": lax.erf,
    "exp": jnp.exp,
    "exp2": jnp.exp2,
    "expm1": jnp.expm1,
    "floor": jnp.floor,
    "integer_pow": lambda x: x**3 + (2.0 + x**2) ** -2,
    "is_finite": lambda x: jnp.where(jnp.isfinite(1.0 / jnp.maximum(x, 0.0)), x, 2.0),
    "log": lambda x: jnp.log(x**2 + 0.1),
    "log1p": lambda x: jnp.log1p(x**2),
    "logistic": jax.nn.sigmoid,
    "neg": jnp.negative,
    "not": lambda x: jnp.where(~(x > 0.0), x, 1.0),
    "round": jnp.round,
    "rsqrt": lambda x: lax.rsqrt(x**2 + 0.1),
    "sign": jnp.sign,
    "sin": jnp.sin,
    "sinh": jnp.sinh,
    "sqrt": lambda x: jnp.sqrt(x**2 + 0.1),
    "square": jnp.square,
    "tan": lambda x: jnp.tan(0.3 * x),
    "tanh": jnp.tanh,
}
BINARY = {
    "add": jnp.add,
    "and": both(jnp.logical_and),
    "clamp": lambda x, y: lax.clamp(jnp.minimum(y, 0.0), x, jnp.abs(y)),
    "div": lambda x, y: x / (y**2 + 0.5),
    "eq": lambda x, y: jnp.where(jnp.round(x) == jnp.round(y), x, y),
    "ge": lambda x, y: jnp.where(x >= y, 1.0, y),
    "gt": lambda x, y: jnp.where(x > y, 1.0, y),
    "le": lambda x, y: jnp.where(x <= y, 1.0, y),
    "lt": lambda x, y: jnp.where(x < y, 1.0, y),
    "max": jnp.maximum,
    "min": jnp.minimum,
    "mul": jnp.multiply,
    "ne": lambda x, y: jnp.where(jnp.round(x) != jnp.round(y), x, y),
    "or": both(jnp.logical_or),
    "pow": lambda x, y: jnp.power(x**2 + 0.1, y),
    "rem": lambda x, y: lax.rem(x, y**2 + 0.5),
    "select_n": lambda x, y: jnp.where(x > 0.3, x, y),
    "sub": jnp.subtract,
    "xor": both(jnp.logical_xor),
}
SHAPES = {
    "argmax": lambda x, y: jnp.argmax(x, axis=1).astype(jnp.float32),
    "argmin": lambda x, y: jnp.argmin(x, axis=0).astype(jnp.float32),
    "broadcast_in_dim": lambda x, y: jnp.broadcast_to(x[:, None, :1], (3, 2, 4)) + 0.0,
    "concatenate": lambda x, y: jnp.concatenate([x, y], axis=1),
    "conv_general_dilated": conv,
    "convert_element_type": lambda x, y: (3 * x).astype(jnp.int32).astype(jnp.float32),
    "cumsum": lambda x, y: jnp.cumsum(x, axis=1),
    "dot_general": lambda x, y: (
        x.T @ y,
        x[0] @ y.T,
        jnp.einsum("bi,bj->bij", x, y),
    ),
    "dynamic_slice": lambda x, y: lax.dynamic_slice(
        x, (jnp.argmax(y[:, 0]), 3 * jnp.argmax(y[0])), (2, 2)
    ),
    "expand_dims": lambda x, y: x[:, None] * 2.0,
    "gather": lambda x, y: x[:, jnp.argmax(y, axis=1)],
    "pad": lambda x, y: jnp.pad(x, ((1, 0), (2, 3)), constant_values=0.5),
    "reduce_and": lambda x, y: jnp.all(x > -0.5, axis=1).astype(jnp.float32),
    "reduce_max": lambda x, y: jnp.max(x, axis=0),
    "reduce_min": lambda x, y: jnp.min(x, axis=(0, 1)),
    "reduce_or": lambda x, y: jnp.any(x > 0.9, axis=1).astype(jnp.float32),
    "reduce_sum": lambda x, y: (jnp.sum(x, axis=1), jnp.sum(x)),
    "reduce_window_max": windows,
    "reshape": lambda x, y: x.reshape(2, 6),
    "rev": lambda x, y: x[::-1, ::-1],
    "slice": lambda x, y: x[1:, ::2],
    "split": lambda x, y: jnp.split(x, [1, 3], axis=1),
    "stack": lambda x, y: jnp.stack([x, y], axis=1),
    "tile": lambda x, y: jnp.tile(x, (2, 3)),
    "unstack": lambda x, y: jnp.unstack(x, axis=1),
    "squeeze": lambda x, y: jnp.squeeze(x[:, 1:2], 1) * 2.0,
    "transpose": lambda x, y: x.T * 2.0,
}
CASES = {
    **{name: lambda x, y, f=f: f(x) for name, f in UNARY.items()},
    **BINARY,
    **SHAPES,
}
# Compared by `test_policies.py`.
ELSEWHERE = {"convolve"}


def traced(f):
    """Trace a function of two matrices."""
    leaves = lambda x, y: jax.tree.leaves(f(x, y))
    form = jax.ShapeDtypeStruct(SHAPE, jnp.float32)
    return graphs._trace(leaves, (form, form), ("x", "y"))


def compare(found, expected, case):
    for one, two in zip(found, expected, strict=True):
        assert one.shape == two.shape, case
        np.testing.assert_allclose(one, two, rtol=3e-6, atol=3e-6, err_msg=case)


@pytest.fixture(scope="module")
def values():
    x, y = np.random.default_rng(3).normal(size=(2, *SHAPE)).astype(np.float32)
    return {"x": x, "y": y}


@pytest.fixture(scope="module")
def expected(values):
    """What JAX computes of each case, in one program."""
    leaves = lambda f, x, y: jax.tree.leaves(f(x, y))
    every = jax.jit(lambda x, y: {case: leaves(f, x, y) for case, f in CASES.items()})
    return every(**values)


def test_every_row_has_a_case():
    assert {*CASES} | ELSEWHERE == {*_TABLE}


def test_what_computes_nothing_is_left_out():
    for keep in (once, lax.stop_gradient, lax.optimization_barrier):
        graph = traced(lambda x, y, keep=keep: keep((x + y, x * y)))
        assert {node.primitive for node in graph.nodes} == {"add", "mul"}


def given(graph, values):
    return {name: values[name] for name in graph.inputs}


def test_rows_in_onnx(values, expected):
    import onnxruntime

    for case, f in CASES.items():
        graph = traced(f)
        names = {node.primitive for node in graph.nodes}
        assert case in names or case in ("expand_dims", "sign"), (case, names)
        model = onnx_model(graph, {}).SerializeToString()
        session = onnxruntime.InferenceSession(model)
        compare(session.run(None, given(graph, values)), expected[case], case)


def test_rows_in_numpy(values, expected, tmp_path):
    for case, f in CASES.items():
        graph, file = traced(f), tmp_path / f"{case}.py"
        file.with_suffix(".json").write_text("{}")
        write_numpy(file, graph)
        spec = importlib.util.spec_from_file_location("policy", file)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        found = module.run(given(graph, values)).values()
        assert all(x.dtype == np.float32 for x in found), case
        compare(found, expected[case], case)


@pytest.mark.skipif(not TORCH, reason="needs PyTorch")
def test_rows_in_torch(values, expected):
    import torch

    for case, f in CASES.items():
        graph = traced(f)
        module = torch_module(graph)
        out = module(*[torch.from_numpy(x) for x in given(graph, values).values()])
        out = out if len(expected[case]) > 1 else (out,)
        compare([x.numpy() for x in out], expected[case], case)


def test_constants_are_folded():
    """What does not depend on inputs is computed once, and unused inputs are dropped."""
    weight = jnp.ones(SHAPE, jnp.float32)

    def f(x, y):
        bounded = jnp.isfinite(weight)
        scale = jnp.sqrt(jnp.exp(weight) + 1.0)
        return jax.jit(lambda x: jnp.where(bounded, x * scale, 0.0))(x) + 0.0 * weight

    graph = traced(f)
    assert [node.primitive for node in graph.nodes] == ["mul", "add"]
    assert [*graph.inputs] == ["x"]


def test_a_policy_may_be_constant(tmp_path):
    import onnxruntime

    graph = traced(lambda x, y: jnp.ones(2, jnp.float32))
    assert not graph.inputs and not graph.nodes
    session = onnxruntime.InferenceSession(onnx_model(graph, {}).SerializeToString())
    assert session.run(None, {})[0].tolist() == [1.0, 1.0]
