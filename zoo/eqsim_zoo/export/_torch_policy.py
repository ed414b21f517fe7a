"""A policy as a TorchScript module."""

import importlib
import pathlib
import re
import warnings
from typing import Any

import numpy as np

from ._policy_graph import PolicyGraph, Value
from ._primitives import write_nodes


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
