"""Write the policy of an agent to a file that needs no JAX."""

import json
import os
import pathlib
from typing import Any, Literal

from eqsim import AbstractAgent, AbstractEnv
from eqsim.bridges import check_type

from ._numpy_policy import write_numpy
from ._onnx_policy import write_onnx
from ._policy_graph import policy_graph
from ._torch_policy import write_torch
from .policy_metadata import as_properties, encoded, metadata_of, PolicyMetadata


PolicyFormat = Literal["onnx", "numpy", "torchscript"]
"""Formats of policies, see `export_policy`."""

_SUFFIXES = {"onnx": ".onnx", "numpy": ".py", "torchscript": ".pt"}


def export_policy(
    agent: AbstractAgent,
    state: Any,
    env: AbstractEnv,
    file: str | os.PathLike,
    *,
    format: PolicyFormat = "onnx",
    name: str = "",
) -> PolicyMetadata:
    """Write the deterministic policy of an agent, `agent.act(state, obs)`, to a file.

    Normalization of observations, squashing and scaling of actions are included; numbers
    are in single precision. Inputs are `obs`, or the parts of a dictionary that the policy
    reads, without a batch axis; the output is `action`. A policy with memory has further
    inputs `memory_0`, ... and outputs `next_memory_0`, ..., which the caller passes from
    step to step; the first ones are `PolicyMetadata.start`.

    Formats:

    - `onnx`: an ONNX model, whose properties are the metadata. Extra: `export`.
    - `numpy`: a Python module that imports NumPy alone, with files that end with `.npz`
        (constants) and `.json` (metadata) beside it.
    - `torchscript`: a TorchScript module, with a file that ends with `.json` beside it.
        Needs PyTorch.

    **Arguments:**

    - `agent`, `state`: agent and state of one member, as of `Result.member`.
    - `env`: environment in which the agent acts.
    - `file`: file to write, which ends with `.onnx`, `.py` or `.pt`.
    - `name`: name of the environment for the metadata.

    **Returns:** the metadata.

    **Raises:** `ValueError` if the policy reads more than observations and memory
    (`NoPolicyGraph`), computes what the format lacks (all such primitives are listed), or
    the file name has another ending; `ImportError` if a package is missing.
    """
    check_type("agent", agent, AbstractAgent, "an agent", "Pass `agent, state`.")
    if format not in _SUFFIXES:
        raise ValueError(
            f"`format` must be one of {', '.join(_SUFFIXES)}, got {format!r}."
        )
    path, suffix = pathlib.Path(file), _SUFFIXES[format]
    if path.suffix != suffix:
        raise ValueError(
            f"A policy for {format} ends with {suffix!r}, got {str(file)!r}. Choose "
            "another file or another format."
        )
    graph = policy_graph(agent, state, env)
    about = metadata_of(agent, env, graph, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    if format == "onnx":
        write_onnx(path, graph, as_properties(about))
        return about
    write_numpy(path, graph) if format == "numpy" else write_torch(path, graph)
    shapes = lambda forms: {name: list(form.shape) for name, form in forms.items()}
    names = {"inputs": shapes(graph.inputs), "outputs": shapes(graph.output_forms)}
    text = json.dumps(encoded(about) | names, indent=2)
    path.with_suffix(".json").write_text(text + "\n")
    return about
