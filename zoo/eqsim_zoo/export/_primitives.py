"""One row for each primitive of JAX: how it is written in ONNX, NumPy and TorchScript.

A row has a function for ONNX, which adds operators to a graph and returns the name of the
result, and two functions that return the text of an expression, in NumPy and in TorchScript.
Rows of elementwise operations are an operator and two templates. An operation with several
results returns a list of names, and texts of sequences.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ._graphs import Node, OnnxGraph


Text = Callable[[Node, Sequence[str]], str]


class Row(NamedTuple):
    """How a primitive is written.

    **Arguments:**

    - `onnx`: `(graph, node, names of inputs) -> name of the result`.
    - `numpy`, `torch`: `(node, texts of inputs) -> text`.
    """

    onnx: Callable[[OnnxGraph, Node, Sequence[str]], Any]
    numpy: Text
    torch: Text


class Unsupported(Exception):
    """A primitive cannot be written with these parameters."""


def _row(operator: str, numpy: str, torch: str, **attributes: Any) -> Row:
    """Return the row of an operation with an operator of ONNX and templates."""
    onnx = lambda g, node, x: g.op(operator, *x, **attributes)
    return Row(onnx, *(lambda node, x, t=t: t.format(*x) for t in (numpy, torch)))


def _function(operator: str, numpy: str, torch: str = "") -> Row:
    """Return the row of a function of one or two arguments."""
    torch = torch or numpy
    call = lambda name: lambda node, x: f"{name}({', '.join(x)})"
    onnx = lambda g, node, x: g.op(operator, *x)
    return Row(onnx, call(f"np.{numpy}"), call(f"torch.{torch}"))


def _infix(operator: str, symbol: str) -> Row:
    """Return the row of an infix operator."""
    template = f"{{0}} {symbol} {{1}}"
    return _row(operator, template, template)


def _composed(
    onnx: Callable[[OnnxGraph, Sequence[str]], str], numpy: str, torch: str
) -> Row:
    """Return the row of an operation that is several operators of ONNX."""
    texts = (lambda node, x, t=t: t.format(*x) for t in (numpy, torch))
    return Row(lambda g, node, x: onnx(g, x), *texts)


def _number(g: OnnxGraph, value: float) -> str:
    return g.constant(value, np.float32)


# Elementwise.


def _is_finite(g: OnnxGraph, x: Sequence[str]) -> str:
    return g.op("Not", g.op("Or", g.op("IsInf", x[0]), g.op("IsNaN", x[0])))


def _quotient(node: Node) -> None:
    if node.forms[0].dtype.kind != "f":
        raise Unsupported("of integers")


def _checked(row: Row, check: Callable[[Node], None]) -> Row:
    """Return a row that refuses some parameters."""

    def onnx(g, node, x):
        check(node)
        return row.onnx(g, node, x)

    def text(write: Text) -> Text:
        def checked(node, x):
            check(node)
            return write(node, x)

        return checked

    return Row(onnx, text(row.numpy), text(row.torch))


def _only_to_even(node: Node) -> None:
    if int(node.params["rounding_method"]) != 1:
        raise Unsupported("away from zero")


def _power(node: Node, x: Sequence[str]) -> str:
    return f"{x[0]} ** {node.params['y']}"


def _integer_pow(g: OnnxGraph, node: Node, x: Sequence[str]) -> str:
    return g.op("Pow", x[0], g.constant(node.params["y"], node.forms[0].dtype))


def _logical(node: Node) -> None:
    if node.forms[0].dtype != np.bool_:
        raise Unsupported("of integers")


def _two_cases(node: Node) -> None:
    if node.sources[0].dtype != np.bool_:
        raise Unsupported("of several cases")


_SELECT = Row(
    lambda g, node, x: g.op("Where", x[0], x[2], x[1]),
    lambda node, x: f"np.where({x[0]}, {x[2]}, {x[1]})",
    lambda node, x: f"torch.where({x[0]}, {x[2]}, {x[1]})",
)
_CONVERT = Row(
    lambda g, node, x: g.cast(x[0], node.forms[0].dtype),
    lambda node, x: f"np.asarray({x[0]}, np.{_type(node)})",
    lambda node, x: f"{x[0]}.to(torch.{_type(node)})",
)


def _type(node: Node) -> str:
    """Return the name of the type of the result, which NumPy and PyTorch share."""
    return node.forms[0].dtype.name


# Shapes.


def _shape(node: Node) -> list[int]:
    return [*node.forms[0].shape]


_RESHAPE = Row(
    lambda g, node, x: g.op("Reshape", x[0], g.integers(*_shape(node))),
    lambda node, x: f"np.reshape({x[0]}, {tuple(_shape(node))})",
    lambda node, x: f"torch.reshape({x[0]}, {_ints(_shape(node))})",
)


def _ints(values: Sequence[int]) -> str:
    """Return a list of integers as text; an empty one with its type, for TorchScript."""
    shown = ", ".join(str(int(x)) for x in values)
    return f"[{shown}]" if shown else "torch.jit.annotate(List[int], [])"


def _aligned(node: Node) -> list[int]:
    """Return the shape of the operand with axes of length one for the new ones."""
    shape = [1] * len(node.forms[0].shape)
    for axis, size in zip(node.params["broadcast_dimensions"], node.sources[0].shape):
        shape[axis] = size
    return shape


def _broadcast(g: OnnxGraph, node: Node, x: Sequence[str]) -> str:
    aligned = g.op("Reshape", x[0], g.integers(*_aligned(node)))
    if _aligned(node) == _shape(node):
        return aligned
    return g.op("Expand", aligned, g.integers(*_shape(node)))


_BROADCAST = Row(
    _broadcast,
    lambda node, x: (
        f"np.broadcast_to(np.reshape({x[0]}, {tuple(_aligned(node))}), "
        f"{tuple(_shape(node))})"
    ),
    lambda node, x: (
        f"torch.reshape({x[0]}, {_ints(_aligned(node))}).expand({_ints(_shape(node))})"
    ),
)
_TRANSPOSE = Row(
    lambda g, node, x: g.op("Transpose", x[0], perm=[*node.params["permutation"]]),
    lambda node, x: f"np.transpose({x[0]}, {tuple(node.params['permutation'])})",
    lambda node, x: f"{x[0]}.permute({_ints(node.params['permutation'])})",
)
_CONCATENATE = Row(
    lambda g, node, x: g.op("Concat", *x, axis=node.params["dimension"]),
    lambda node, x: f"np.concatenate([{', '.join(x)}], {node.params['dimension']})",
    lambda node, x: f"torch.cat([{', '.join(x)}], dim={node.params['dimension']})",
)


def _stack(g: OnnxGraph, node: Node, x: Sequence[str]) -> str:
    axis = int(node.params["axis"])
    parts = [g.op("Unsqueeze", part, g.integers(axis)) for part in x]
    return g.op("Concat", *parts, axis=axis)


_STACK = Row(
    _stack,
    lambda node, x: f"np.stack([{', '.join(x)}], {node.params['axis']})",
    lambda node, x: f"torch.stack([{', '.join(x)}], dim={node.params['axis']})",
)


def _unstack(g: OnnxGraph, node: Node, x: Sequence[str]) -> list[str]:
    axis, number = int(node.params["axis"]), len(node.outputs)
    ones = g.integers(*[1] * number)
    parts = g.op("Split", x[0], ones, number=number, axis=axis)
    return [g.op("Squeeze", part, g.integers(axis)) for part in parts]


_UNSTACK = Row(
    _unstack,
    lambda node, x: f"np.moveaxis({x[0]}, {node.params['axis']}, 0)",
    lambda node, x: f"torch.unbind({x[0]}, dim={node.params['axis']})",
)
_TILE = Row(
    lambda g, node, x: g.op("Tile", x[0], g.integers(*map(int, node.params["reps"]))),
    lambda node, x: f"np.tile({x[0]}, {tuple(map(int, node.params['reps']))})",
    lambda node, x: f"torch.tile({x[0]}, {_ints(node.params['reps'])})",
)


def _bounds(node: Node) -> list[tuple[int, int, int]]:
    start, limit = node.params["start_indices"], node.params["limit_indices"]
    steps = node.params["strides"] or [1] * len(start)
    return [(int(a), int(b), int(c)) for a, b, c in zip(start, limit, steps)]


def _slice(g: OnnxGraph, node: Node, x: Sequence[str]) -> str:
    starts, ends, steps = zip(*_bounds(node))
    axes = g.integers(*range(len(starts)))
    parts = g.integers(*starts), g.integers(*ends), axes, g.integers(*steps)
    return g.op("Slice", x[0], *parts)


def _sliced(node: Node, x: Sequence[str]) -> str:
    return f"{x[0]}[{', '.join(f'{a}:{b}:{c}' for a, b, c in _bounds(node))}]"


def _reverse(g: OnnxGraph, node: Node, x: Sequence[str]) -> str:
    axes = node.params["dimensions"]
    every = lambda value: g.integers(*[value] * len(axes))
    least = np.iinfo(np.int64).min
    return g.op("Slice", x[0], every(-1), every(least), g.integers(*axes), every(-1))


_REVERSE = Row(
    _reverse,
    lambda node, x: f"np.flip({x[0]}, {tuple(node.params['dimensions'])})",
    lambda node, x: f"torch.flip({x[0]}, {_ints(node.params['dimensions'])})",
)


def _sides(node: Node) -> list[tuple[int, int]]:
    config = node.params["padding_config"]
    if any(inner or min(low, high) < 0 for low, high, inner in config):
        raise Unsupported("between entries, or negative")
    return [(int(low), int(high)) for low, high, _ in config]


def _pad(g: OnnxGraph, node: Node, x: Sequence[str]) -> str:
    low, high = zip(*_sides(node))
    return g.op("Pad", x[0], g.integers(*low, *high), x[1])


_PAD = Row(
    _pad,
    lambda node, x: f"np.pad({x[0]}, {_sides(node)}, constant_values={x[1]})",
    lambda node, x: (
        f"torch.nn.functional.pad({x[0]}, {_ints(_torch_sides(_sides(node)))}, "
        f"value=float({x[1]}))"
    ),
)


def _torch_sides(sides: Sequence[tuple[int, int]]) -> list[int]:
    """Return paddings as PyTorch has them: the last axis first."""
    return [x for pair in reversed(sides) for x in pair]


def _split(g: OnnxGraph, node: Node, x: Sequence[str]) -> list[str]:
    sizes = [int(x) for x in node.params["sizes"]]
    axis = node.params["axis"]
    return g.op("Split", x[0], g.integers(*sizes), number=len(sizes), axis=axis)


_SPLIT = Row(
    _split,
    lambda node, x: (
        f"np.split({x[0]}, {np.cumsum(node.params['sizes'])[:-1].tolist()}, "
        f"{node.params['axis']})"
    ),
    lambda node, x: (
        f"torch.split({x[0]}, {_ints(node.params['sizes'])}, dim={node.params['axis']})"
    ),
)


# Entries at computed places.


def _taken_axis(node: Node) -> int:
    """Return the axis of a gather that takes whole slices along one axis."""
    numbers, sizes = node.params["dimension_numbers"], node.params["slice_sizes"]
    operand, indices, out = node.sources[0], node.sources[1], node.forms[0]
    rank = len(indices.shape) - 1
    (axis,) = numbers.start_index_map if len(numbers.start_index_map) == 1 else (-1,)
    rest = [d for k, d in enumerate(operand.shape) if k != axis]
    offset = [k for k in range(len(out.shape)) if not axis <= k < axis + rank]
    whole = [*sizes] == [1 if k == axis else d for k, d in enumerate(operand.shape)]
    batched = numbers.operand_batching_dims or numbers.start_indices_batching_dims
    if (
        axis < 0
        or batched
        or not whole
        or [*numbers.collapsed_slice_dims] != [axis]
        or [*numbers.offset_dims] != offset
        or len(rest) != len(offset)
    ):
        raise Unsupported("of other than slices along one axis")
    return axis


def _gather(g: OnnxGraph, node: Node, x: Sequence[str]) -> str:
    axis = _taken_axis(node)
    shape = node.sources[1].shape[:-1]
    indices = g.op("Reshape", g.cast(x[1], np.dtype(np.int64)), g.integers(*shape))
    return g.op("Gather", x[0], indices, axis=axis)


_GATHER = Row(
    _gather,
    lambda node, x: f"np.take({x[0]}, {x[1]}[..., 0], {_taken_axis(node)})",
    lambda node, x: (
        f"torch.index_select({x[0]}, {_taken_axis(node)}, "
        f"torch.reshape({x[1]}, [-1]).to(torch.int64))"
        f".reshape({_ints(_shape(node))})"
    ),
)


def _room(node: Node) -> list[int]:
    """Return the largest start of a dynamic slice on each axis."""
    return [a - b for a, b in zip(node.sources[0].shape, node.params["slice_sizes"])]


def _window(g: OnnxGraph, node: Node, x: Sequence[str]) -> str:
    one, sizes = g.integers(1), node.params["slice_sizes"]
    whole = [g.cast(start, np.dtype(np.int64)) for start in x[1:]]
    starts = g.op("Concat", *[g.op("Reshape", s, one) for s in whole], axis=0)
    inside = g.op("Min", g.op("Max", starts, g.integers(0)), g.integers(*_room(node)))
    ends = g.op("Add", inside, g.integers(*sizes))
    return g.op("Slice", x[0], inside, ends, g.integers(*range(len(sizes))))


def _window_numpy(node: Node, x: Sequence[str]) -> str:
    starts = ", ".join(
        f"min(max(int({s}), 0), {r})" for s, r in zip(x[1:], _room(node))
    )
    return f"_window({x[0]}, [{starts}], {[*node.params['slice_sizes']]})"


def _window_torch(node: Node, x: Sequence[str]) -> str:
    text = x[0]
    for axis, (start, room) in enumerate(zip(x[1:], _room(node))):
        inside = f"int(torch.clamp({start}, 0, {room}))"
        size = node.params["slice_sizes"][axis]
        text = f"torch.narrow({text}, {axis}, {inside}, {size})"
    return text


# Sums, products, maxima.


def _reduction(operator: str, numpy: str, torch: str) -> Row:
    axes = lambda node: [*node.params["axes"]]
    # Until version 18, sums and maxima passed the axes in two ways.
    onnx = lambda g, node, x: g.op(operator, x[0], g.integers(*axes(node)), keepdims=0)
    return Row(
        onnx,
        lambda node, x: f"np.{numpy}({x[0]}, {tuple(axes(node))})",
        lambda node, x: f"torch.{torch}({x[0]}, dim={_ints(axes(node))})",
    )


def _of_truths(operator: str, numpy: str, torch: str) -> Row:
    """Return the row of a reduction of truth values, which ONNX reduces as integers."""
    plain = _reduction(operator, numpy, torch)

    def onnx(g, node, x):
        whole = g.cast(x[0], np.dtype(np.int32))
        return g.cast(plain.onnx(g, node, [whole]), np.dtype(np.bool_))

    def text(node, x):
        return f"torch.{torch}({x[0]}.to(torch.int32), dim={_ints(node.params['axes'])}) > 0"

    return Row(onnx, plain.numpy, text)


def _largest(operator: str, name: str) -> Row:
    axis = lambda node: int(node.params["axes"][0])

    def onnx(g, node, x):
        found = g.op(operator, x[0], axis=axis(node), keepdims=0)
        return g.cast(found, node.forms[0].dtype)

    return Row(
        onnx,
        lambda node, x: f"np.{name}({x[0]}, {axis(node)})",
        lambda node, x: f"torch.{name}({x[0]}, dim={axis(node)})",
    )


def _forwards(node: Node) -> None:
    if node.params["reverse"]:
        raise Unsupported("from the end")


_CUMSUM = Row(
    lambda g, node, x: g.op("CumSum", x[0], g.constant(node.params["axis"], np.int64)),
    lambda node, x: f"np.cumsum({x[0]}, {node.params['axis']})",
    lambda node, x: f"torch.cumsum({x[0]}, dim={node.params['axis']})",
)


def _is_product(node: Node) -> bool:
    """Return true for the product of vectors or matrices without batch axes."""
    (left, right), (batch, _) = node.params["dimension_numbers"]
    ranks = [len(form.shape) for form in node.sources]
    plain = (*left,) == (ranks[0] - 1,) and (*right,) == (0,) and not batch
    return plain and 1 <= ranks[0] <= 2 and 1 <= ranks[1] <= 2


def _equation(node: Node) -> str:
    """Return a general product in Einstein's notation."""
    (left, right), (left_batch, right_batch) = node.params["dimension_numbers"]
    ranks = [len(form.shape) for form in node.sources]
    letters = iter("abcdefghijklmnopqrstuvwxyz")
    one, two = [""] * ranks[0], [""] * ranks[1]
    for a, b in [*zip(left_batch, right_batch), *zip(left, right)]:
        one[a] = two[b] = next(letters)
    one, two = [[x or next(letters) for x in side] for side in (one, two)]
    free = [one[k] for k in range(ranks[0]) if k not in (*left, *left_batch)]
    free += [two[k] for k in range(ranks[1]) if k not in (*right, *right_batch)]
    batch = [one[k] for k in left_batch]
    return f"{''.join(one)},{''.join(two)}->{''.join(batch + free)}"


def _dot(g: OnnxGraph, node: Node, x: Sequence[str]) -> str:
    if _is_product(node):
        return g.op("MatMul", *x)
    return g.op("Einsum", *x, equation=_equation(node))


def _product(package: str, close: str) -> Text:
    """Return the text of a product; `close` is what follows the operands of `einsum`."""

    def text(node: Node, x: Sequence[str]) -> str:
        if _is_product(node):
            return f"{x[0]} @ {x[1]}"
        open_, end = ("[", "]") if package == "torch" else ("", "")
        return f"{package}.einsum('{_equation(node)}', {open_}{x[0]}, {x[1]}{end})"

    return text


# Images.


class _Convolution(NamedTuple):
    """A convolution of two spatial axes: axes of the operands in the order (batch, channel,
    row, column) and (output, input, row, column), axes of the result, and parameters."""

    image: tuple[int, ...]
    kernel: tuple[int, ...]
    result: tuple[int, ...]
    strides: tuple[int, ...]
    sides: tuple[tuple[int, int], ...]
    dilation: tuple[int, ...]
    groups: int


def _convolution(node: Node) -> _Convolution:
    params = node.params
    if node.primitive == "convolve":  # Of `eqsim_zoo.vision`: channels last.
        layout, groups = ((0, 3, 1, 2), (3, 2, 0, 1), (0, 3, 1, 2)), 1
    else:
        numbers = params["dimension_numbers"]
        layout = numbers.lhs_spec, numbers.rhs_spec, numbers.out_spec
        groups = params["feature_group_count"]
        if params["batch_group_count"] != 1:
            raise Unsupported("with groups of the batch")
        params = params | {"strides": params["window_strides"]}
    plain = all(x == 1 for x in params["lhs_dilation"]) and len(layout[0]) == 4
    if not plain or min(min(pair) for pair in params["padding"]) < 0:
        raise Unsupported("transposed, or not of images")
    result = tuple(int(x) for x in np.argsort(layout[2]))
    sides = tuple((int(a), int(b)) for a, b in params["padding"])
    where = tuple(layout[0]), tuple(layout[1]), result
    return _Convolution(
        *where, tuple(params["strides"]), sides, tuple(params["rhs_dilation"]), groups
    )


def _conv(g: OnnxGraph, node: Node, x: Sequence[str]) -> str:
    c = _convolution(node)
    image = g.op("Transpose", x[0], perm=c.image)
    kernel = g.op("Transpose", x[1], perm=c.kernel)
    low, high = zip(*c.sides)
    found = g.op(
        "Conv",
        image,
        kernel,
        strides=c.strides,
        pads=[*low, *high],
        dilations=c.dilation,
        group=c.groups,
    )
    return g.op("Transpose", found, perm=c.result)


def _conv_numpy(node: Node, x: Sequence[str]) -> str:
    c = _convolution(node)
    image = f"np.transpose({x[0]}, {c.image})"
    kernel = f"np.transpose({x[1]}, {c.kernel})"
    found = (
        f"_conv({image}, {kernel}, {c.strides}, {c.sides}, {c.dilation}, {c.groups})"
    )
    return f"np.transpose({found}, {c.result})"


def _conv_torch(node: Node, x: Sequence[str]) -> str:
    c = _convolution(node)
    image = f"{x[0]}.permute({_ints(c.image)})"
    padded = f"torch.nn.functional.pad({image}, {_ints(_torch_sides(c.sides))})"
    kernel = f"{x[1]}.permute({_ints(c.kernel)})"
    more = f"stride={_ints(c.strides)}, dilation={_ints(c.dilation)}, groups={c.groups}"
    found = f"torch.conv2d({padded}, {kernel}, {more})"
    return f"{found}.permute({_ints(c.result)})"


class _Pool(NamedTuple):
    """A maximum over windows of three axes."""

    shape: tuple[int, ...]
    window: tuple[int, ...]
    strides: tuple[int, ...]
    sides: tuple[tuple[int, int], ...]


def _pool(node: Node) -> _Pool:
    params, shape = node.params, node.sources[0].shape
    dilated = (*params["base_dilation"], *params["window_dilation"])
    more = 3 - len(shape)
    if any(x != 1 for x in dilated) or more < 0:
        raise Unsupported("dilated, or of more than three axes")
    ones = (1,) * more
    sides = tuple((int(a), int(b)) for a, b in params["padding"])
    window = (*ones, *params["window_dimensions"])
    strides = (*ones, *params["window_strides"])
    return _Pool((*ones, *shape), window, strides, ((0, 0),) * more + sides)


def _max_pool(g: OnnxGraph, node: Node, x: Sequence[str]) -> str:
    p = _pool(node)
    image = g.op("Reshape", x[0], g.integers(1, 1, *p.shape))
    low, high = zip(*p.sides)
    found = g.op(
        "MaxPool", image, kernel_shape=p.window, strides=p.strides, pads=[*low, *high]
    )
    return g.op("Reshape", found, g.integers(*_shape(node)))


def _pool_numpy(node: Node, x: Sequence[str]) -> str:
    p = _pool(node)
    image = f"np.reshape({x[0]}, {p.shape})"
    found = f"_max_pool({image}, {p.window}, {p.strides}, {p.sides})"
    return f"np.reshape({found}, {tuple(_shape(node))})"


def _pool_torch(node: Node, x: Sequence[str]) -> str:
    p = _pool(node)
    image = f"torch.reshape({x[0]}, {_ints((1, 1, *p.shape))})"
    sides = _ints(_torch_sides(p.sides))
    padded = f"torch.nn.functional.pad({image}, {sides}, value=-float('inf'))"
    found = f"torch.max_pool3d({padded}, {_ints(p.window)}, {_ints(p.strides)})"
    return f"torch.reshape({found}, {_ints(_shape(node))})"


# The table.

_TABLE: dict[str, Row] = {
    "abs": _function("Abs", "abs"),
    "acos": _function("Acos", "arccos"),
    "acosh": _function("Acosh", "arccosh"),
    "add": _infix("Add", "+"),
    "and": _checked(_infix("And", "&"), _logical),
    "argmax": _largest("ArgMax", "argmax"),
    "argmin": _largest("ArgMin", "argmin"),
    "asin": _function("Asin", "arcsin"),
    "asinh": _function("Asinh", "arcsinh"),
    "atan": _function("Atan", "arctan"),
    "atanh": _function("Atanh", "arctanh"),
    "broadcast_in_dim": _BROADCAST,
    "ceil": _function("Ceil", "ceil"),
    "clamp": _composed(
        lambda g, x: g.op("Min", g.op("Max", x[1], x[0]), x[2]),
        "np.minimum(np.maximum({1}, {0}), {2})",
        "torch.minimum(torch.maximum({1}, {0}), {2})",
    ),
    "concatenate": _CONCATENATE,
    "conv_general_dilated": Row(_conv, _conv_numpy, _conv_torch),
    "convert_element_type": _CONVERT,
    "convolve": Row(_conv, _conv_numpy, _conv_torch),
    "cos": _function("Cos", "cos"),
    "cosh": _function("Cosh", "cosh"),
    "cumsum": _checked(_CUMSUM, _forwards),
    "div": _checked(_infix("Div", "/"), _quotient),
    "dot_general": Row(_dot, _product("np", ""), _product("torch", "")),
    "dynamic_slice": Row(_window, _window_numpy, _window_torch),
    "eq": _infix("Equal", "=="),
    "erf": _row("Erf", "_erf({0})", "torch.erf({0})"),
    "exp": _function("Exp", "exp"),
    "exp2": _composed(
        lambda g, x: g.op("Pow", _number(g, 2.0), x[0]),
        "np.exp2({0})",
        "torch.exp2({0})",
    ),
    "expand_dims": _RESHAPE,
    "expm1": _composed(
        lambda g, x: g.op("Sub", g.op("Exp", x[0]), _number(g, 1.0)),
        "np.expm1({0})",
        "torch.expm1({0})",
    ),
    "floor": _function("Floor", "floor"),
    "gather": _GATHER,
    "ge": _infix("GreaterOrEqual", ">="),
    "gt": _infix("Greater", ">"),
    "integer_pow": Row(_integer_pow, _power, _power),
    "is_finite": _composed(_is_finite, "np.isfinite({0})", "torch.isfinite({0})"),
    "le": _infix("LessOrEqual", "<="),
    "log": _function("Log", "log"),
    "log1p": _composed(
        lambda g, x: g.op("Log", g.op("Add", x[0], _number(g, 1.0))),
        "np.log1p({0})",
        "torch.log1p({0})",
    ),
    "logistic": _row(
        "Sigmoid", "0.5 * (1.0 + np.tanh(0.5 * {0}))", "torch.sigmoid({0})"
    ),
    "lt": _infix("Less", "<"),
    "max": _function("Max", "maximum"),
    "min": _function("Min", "minimum"),
    "mul": _infix("Mul", "*"),
    "ne": _composed(
        lambda g, x: g.op("Not", g.op("Equal", *x)), "{0} != {1}", "{0} != {1}"
    ),
    "neg": _row("Neg", "-{0}", "-{0}"),
    "not": _checked(
        _row("Not", "np.logical_not({0})", "torch.logical_not({0})"), _logical
    ),
    "or": _checked(_infix("Or", "|"), _logical),
    "pad": _PAD,
    "pow": _row("Pow", "{0} ** {1}", "{0} ** {1}"),
    "reduce_and": _of_truths("ReduceMin", "all", "amin"),
    "reduce_max": _reduction("ReduceMax", "max", "amax"),
    "reduce_min": _reduction("ReduceMin", "min", "amin"),
    "reduce_or": _of_truths("ReduceMax", "any", "amax"),
    "reduce_sum": _reduction("ReduceSum", "sum", "sum"),
    "reduce_window_max": Row(_max_pool, _pool_numpy, _pool_torch),
    "rem": _row("Mod", "np.fmod({0}, {1})", "torch.fmod({0}, {1})", fmod=1),
    "reshape": _RESHAPE,
    "rev": _REVERSE,
    "round": _checked(_function("Round", "round"), _only_to_even),
    "rsqrt": _composed(
        lambda g, x: g.op("Reciprocal", g.op("Sqrt", x[0])),
        "1.0 / np.sqrt({0})",
        "torch.rsqrt({0})",
    ),
    "select_n": _checked(_SELECT, _two_cases),
    "sign": _function("Sign", "sign"),
    "sin": _function("Sin", "sin"),
    "sinh": _function("Sinh", "sinh"),
    "slice": Row(_slice, _sliced, _sliced),
    "split": _SPLIT,
    "sqrt": _function("Sqrt", "sqrt"),
    "square": _composed(
        lambda g, x: g.op("Mul", x[0], x[0]), "np.square({0})", "torch.square({0})"
    ),
    "squeeze": _RESHAPE,
    "stack": _STACK,
    "sub": _infix("Sub", "-"),
    "tan": _function("Tan", "tan"),
    "tanh": _function("Tanh", "tanh"),
    "tile": _TILE,
    "transpose": _TRANSPOSE,
    "unstack": _UNSTACK,
    "xor": _checked(_infix("Xor", "^"), _logical),
}


def write_nodes(
    nodes: Sequence[Node], write: Callable[[Row, Node], None], target: str
) -> None:
    """Write the operations of a graph in order.

    **Arguments:**

    - `write`: writes an operation by its row; raises `Unsupported` if it cannot.
    - `target`: name of the format in the message.

    **Raises:** `ValueError` with the names of all primitives that cannot be written.
    """
    wrong: dict[str, None] = {}
    for node in nodes:
        try:
            if node.primitive not in _TABLE:
                wrong[f"`{node.primitive}`"] = None
                continue
            write(_TABLE[node.primitive], node)
        except Unsupported as error:
            wrong[f"`{node.primitive}` {error}"] = None
    if wrong:
        raise ValueError(
            f"The policy computes what cannot be written as {target}: {', '.join(wrong)}. "
            "Compute it in the environment, or use other operations; "
            f"supported are {', '.join(sorted(_TABLE))}."
        )
