"""A policy as an ONNX model."""

import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from ._onnx_graph import check_installed, IR_VERSION, onnx_type, OnnxGraph, OPSET
from ._policy_graph import Form, PolicyGraph, Value
from ._primitives import write_nodes


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
