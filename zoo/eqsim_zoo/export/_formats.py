"""Writers of a policy graph: a NumPy module, an ONNX model, a TorchScript module.

Each goes through the nodes of the graph and writes them by the table of `_primitives`.
"""

import importlib
import pathlib
import re
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ._graphs import (
    check_installed,
    Form,
    IR_VERSION,
    onnx_type,
    OnnxGraph,
    OPSET,
    PolicyGraph,
    Value,
)
from ._primitives import write_nodes


_HEAD = '''"""A policy for NumPy, written by `eqsim export`.

`act(obs)` computes the deterministic action of one observation, an array or a dictionary
of arrays. A policy with memory takes and returns it: `action, memory = act(obs, memory)`,
beginning with `START`.
"""

import json
import math
import pathlib

import numpy as np


_FILE = pathlib.Path(__file__)
with np.load(_FILE.with_suffix(".npz")) as _file:
    _DATA = {name: _file[name] for name in _file.files}
METADATA = json.loads(_FILE.with_suffix(".json").read_text())
'''

_HELPERS = {
    "_window": """
def _window(x, starts, sizes):
    return x[tuple(slice(a, a + n) for a, n in zip(starts, sizes))]
""",
    "_erf": """
def _erf(x):
    return np.vectorize(math.erf, otypes=[np.float32])(x)
""",
    "_conv": '''
def _conv(x, kernel, strides, sides, dilation, groups):
    """Cross-correlate (batch, input, row, column) and (output, input, row, column)."""
    x = np.pad(x, ((0, 0), (0, 0), *sides))
    spans = [(k - 1) * d + 1 for k, d in zip(kernel.shape[2:], dilation)]
    windows = np.lib.stride_tricks.sliding_window_view(x, spans, (2, 3))
    windows = windows[:, :, :: strides[0], :: strides[1], :: dilation[0], :: dilation[1]]
    pairs = zip(np.split(windows, groups, 1), np.split(kernel, groups, 0))
    return np.concatenate(
        [np.einsum("bihwrc,oirc->bohw", w, k, optimize=True) for w, k in pairs], 1
    )
''',
    "_max_pool": """
def _max_pool(x, window, strides, sides):
    x = np.pad(x, sides, constant_values=-np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(x, window)
    a, b, c = strides
    return windows[::a, ::b, ::c].max((3, 4, 5))
""",
}

_TAIL = '''
def act(obs, memory=None):
    """Compute the action of an observation; with memory also the next memory."""
    inputs = dict(obs) if isinstance(obs, dict) else {{"obs": obs}}
    if not START:
        return run(inputs)["action"]
    out = run(inputs | dict(START if memory is None else memory))
    return out["action"], {{name: out["next_" + name] for name in START}}
'''.replace("{{", "{").replace("}}", "}")


def numpy_module(graph: PolicyGraph) -> tuple[str, dict[str, np.ndarray]]:
    """Return the source of a module, and the constants that it reads, by name.

    **Raises:** `ValueError` if primitives have no row.
    """
    constants: dict[str, np.ndarray] = {}
    names = {name: f"x{k}" for k, name in enumerate(graph.inputs)}
    known: dict[tuple, str] = {}

    def read(x: Value) -> str:
        if isinstance(x, str):
            return names.get(x, x)
        key = x.shape, x.dtype.str, x.tobytes()
        if key not in known:
            known[key] = f"c{len(known)}"
            constants[known[key]] = x
        return known[key]

    lines = [
        f"    {names[name]} = np.asarray(inputs[{name!r}], np.{form.dtype.name})"
        for name, form in graph.inputs.items()
    ]

    def write(row, node):
        text = row.numpy(node, [read(x) for x in node.inputs])
        lines.append(f"    {', '.join(node.outputs)} = {text}")

    write_nodes(graph.nodes, write, "NumPy")
    found = (f"{name!r}: {read(x)}" for name, x in graph.outputs.items())
    lines.append(f"    return {{{', '.join(found)}}}")
    for name, x in graph.start.items():
        constants[f"start_{name}"] = x
    return _source(graph, lines, [*known.values()]), constants


def _source(graph: PolicyGraph, lines: Sequence[str], constants: Sequence[str]) -> str:
    body = "\n".join(lines)
    start = "".join(f'    {x!r}: _DATA["start_{x}"],\n' for x in graph.start)
    parts = [_HEAD, f"START = {{\n{start}}}\n" if start else "START = {}\n"]
    parts += [f'{name} = _DATA["{name}"]\n' for name in constants]
    for name, text in _HELPERS.items():
        if f" {name}(" in body or f"({name}(" in body:
            parts.append("\n" + text)
    about = '    """Compute the outputs of inputs, both by name."""'
    parts.append(
        f"\n\n@np.errstate(all='ignore')\ndef run(inputs):\n{about}\n{body}\n\n{_TAIL}"
    )
    return "".join(parts)


def write_numpy(file: pathlib.Path, graph: PolicyGraph) -> None:
    """Write a policy as a module, with its constants in a file of the same name that ends
    with `.npz`, see `numpy_module`."""
    source, constants = numpy_module(graph)
    arrays: dict[str, Any] = constants
    # A file object, as NumPy would change the name of a path.
    with open(file.with_suffix(".npz"), "wb") as out:
        np.savez(out, **arrays)
    file.write_text(source)


def onnx_model(graph: PolicyGraph, properties: Mapping[str, str]) -> Any:
    """Convert a policy to an `onnx.ModelProto`, and check it.

    **Arguments:**

    - `properties`: metadata by name.

    **Raises:** `ImportError` without onnx; `ValueError` if primitives have no row.
    """
    check_installed("onnx")
    import onnx
    from onnx import helper

    out, names = OnnxGraph(), {name: name for name in graph.inputs}
    read = lambda x: out.constant(x) if isinstance(x, np.ndarray) else names.get(x, x)

    def write(row, node):
        found = row.onnx(out, node, [read(x) for x in node.inputs])
        found = [found] if isinstance(found, str) else found
        names.update(zip(node.outputs, found))

    write_nodes(graph.nodes, write, "ONNX")
    for name, value in graph.outputs.items():
        _name_output(out, read, name, value)
    described = lambda forms: [_described(k, form) for k, form in forms.items()]
    inputs, outputs = described(graph.inputs), described(graph.output_forms)
    made = helper.make_graph(out.nodes, "policy", inputs, outputs, out.initializers)
    model = helper.make_model(
        made,
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="eqsim",
    )
    helper.set_model_props(model, dict(properties))
    onnx.checker.check_model(model, full_check=True)
    return model


def _name_output(out: OnnxGraph, read: Any, name: str, value: Value) -> None:
    out.op("Identity", read(value))
    out.nodes[-1].output[0] = name


def _described(name: str, form: Form) -> Any:
    from onnx import helper

    return helper.make_tensor_value_info(name, onnx_type(form.dtype), form.shape)


def write_onnx(
    file: pathlib.Path, graph: PolicyGraph, properties: Mapping[str, str]
) -> None:
    """Write a policy as an ONNX file, see `onnx_model`."""
    file.write_bytes(onnx_model(graph, properties).SerializeToString())


def torch_module(graph: PolicyGraph) -> Any:
    """Compile a policy to a `torch.jit.ScriptModule`, whose constants are buffers.

    Arguments of the module are the inputs in order; it returns the action, or a tuple of
    action and next memory.

    **Raises:** `ImportError` without PyTorch; `ValueError` if primitives have no row.
    """
    try:
        torch: Any = importlib.import_module("torch")
    except ImportError as error:
        raise ImportError(
            "TorchScript files need PyTorch. Run `pip install torch`."
        ) from error
    # A class of its own, as PyTorch compiles modules of one class once.
    holder = type("Policy", (torch.nn.Module,), {})()
    names = {name: _identifier(name) for name in graph.inputs}
    known: dict[tuple, str] = {}

    def read(x: Value) -> str:
        if isinstance(x, str):
            return names.get(x, x)
        key = x.shape, x.dtype.str, x.tobytes()
        if key not in known:
            known[key] = f"c{len(known)}"
            holder.register_buffer(known[key], torch.from_numpy(np.array(x)))
        return f"self.{known[key]}"

    lines = [
        f"    {names[name]} = {names[name]}.to(torch.{form.dtype.name})"
        for name, form in graph.inputs.items()
    ]

    def write(row, node):
        text = row.torch(node, [read(x) for x in node.inputs])
        lines.append(f"    {', '.join(node.outputs)} = {text}")

    write_nodes(graph.nodes, write, "TorchScript")
    lines.append(f"    return {', '.join(map(read, graph.outputs.values()))}")
    with warnings.catch_warnings():
        # Robots run TorchScript, which PyTorch advises against since version 2.10.
        warnings.simplefilter("ignore", DeprecationWarning)
        module: Any = torch.jit.script(holder)
    head = f"def forward(self, {', '.join(names.values())}):"
    module.define("\n".join([head, *lines, ""]))
    return module


def _identifier(name: str) -> str:
    """Return the name of an input as an argument; operations are called `v...`."""
    return "x_" + re.sub(r"\W", "_", name)


def write_torch(file: pathlib.Path, graph: PolicyGraph) -> None:
    """Write a policy as a TorchScript file, see `torch_module`."""
    torch_module(graph).save(str(file))
