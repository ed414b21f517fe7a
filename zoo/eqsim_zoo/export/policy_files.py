"""Files of policies: what they tell about themselves, how they are written and run.

`PolicyMetadata` is stored in each file; `export_policy` writes one; `OnnxPolicy` reads an ONNX
model and runs it.
"""

import json
import os
import pathlib
from collections.abc import Mapping
from importlib import metadata
from typing import Any, Literal, NamedTuple

import numpy as np

from eqsim import AbstractAgent, AbstractEnv
from eqsim.bridges import check_type
from eqsim.envs import check_deployment, Deployment, ObservationPart, Reference
from eqsim.wrappers import deployment_of

from ..runs.folders import env_name
from ..runs.offline import kind_of
from ._formats import write_numpy, write_onnx, write_torch
from ._graphs import check_installed, policy_graph, PolicyGraph


FORMAT = "eqsim-policy-1"


class PolicyMetadata(NamedTuple):
    """What is written beside a policy.

    **Arguments:**

    - `version`: version of eqsim that wrote the file.
    - `env`, `agent`: names of environment and agent.
    - `start`: memory at the start of an episode, by name of the input; empty for policies
        without memory.
    - `deployment`: the deployment of the task; None if there is none.
    - `reason`: the reason why there is none.
    """

    version: str
    env: str
    agent: str
    start: dict[str, np.ndarray]
    deployment: Deployment | None
    reason: str = ""


def metadata_of(
    agent: AbstractAgent, env: AbstractEnv, graph: PolicyGraph, name: str = ""
) -> PolicyMetadata:
    """Collect what is written beside a policy.

    **Arguments:**

    - `agent`, `env`, `graph`: the agent, its environment, and its policy.
    - `name`: name of the environment; by default those of its classes.
    """
    kind = kind_of(agent).__name__
    about = metadata.version("eqsim"), name or env_name(env), kind
    try:
        deployment, reason = deployment_of(env), ""
        _check_input(deployment, graph)
    except ValueError as error:
        deployment, reason = None, str(error)
    return PolicyMetadata(*about, graph.start, deployment, reason)


def _check_input(deployment: Deployment, graph: PolicyGraph) -> None:
    """Raise `ValueError` unless the policy reads one vector, which the deployment
    describes."""
    read = {k: form.shape for k, form in graph.inputs.items() if k not in graph.start}
    size = sum(part.size for part in deployment.observation)
    if [*read.values()] != [(size,)]:
        raise ValueError(
            f"`Deployment.observation` has {size} entries, but the policy reads {read} "
            "(shapes by name)."
        )


def encoded(about: PolicyMetadata) -> dict[str, Any]:
    """Return metadata in types that JSON supports."""
    deployment = about.deployment
    values = None
    if deployment is not None:
        parts = [part._asdict() for part in deployment.observation]
        motion = deployment.reference
        reference = None if motion is None else motion._asdict()
        values = deployment._asdict() | {"observation": parts, "reference": reference}
    start = {name: x.tolist() for name, x in about.start.items()}
    return {
        "format": FORMAT,
        **about._asdict(),
        "start": start,
        "deployment": _plain(values),
    }


def _plain(value: Any) -> Any:
    """Return numbers and tuples in types that JSON supports."""
    if isinstance(value, Mapping):
        return {str(k): _plain(x) for k, x in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(x) for x in value]
    if isinstance(value, str | None):
        return value
    number = np.asarray(value)
    return number.tolist()


def as_properties(about: PolicyMetadata) -> dict[str, str]:
    """Return metadata as texts by name, as ONNX has them: JSON, except for texts."""
    text = lambda x: x if isinstance(x, str) else json.dumps(x)
    return {name: text(value) for name, value in encoded(about).items()}


def from_properties(properties: Mapping[str, str]) -> PolicyMetadata:
    """Invert `as_properties`.

    **Raises:** `ValueError` if it is not what `eqsim export` writes.
    """
    if properties.get("format") != FORMAT:
        raise ValueError(
            f"The file has no metadata of the format {FORMAT!r}, got "
            f"{properties.get('format')!r}. Write it with `eqsim export RUN --out FILE`."
        )
    try:
        text = json.loads(properties["deployment"])
        deployment = None if text is None else _deployment(text)
        start = json.loads(properties["start"])
        return PolicyMetadata(
            properties["version"],
            properties["env"],
            properties["agent"],
            {name: np.asarray(x, np.float32) for name, x in start.items()},
            deployment,
            properties["reason"],
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"The metadata of the policy is damaged ({error}).") from error


def _deployment(values: dict[str, Any]) -> Deployment:
    """Return a deployment that was written as JSON."""
    fixed: dict[str, Any] = {
        name: tuple(x) if isinstance(x, list) else x for name, x in values.items()
    }
    fixed["observation"] = tuple(ObservationPart(**x) for x in values["observation"])
    fixed["scan"] = tuple((float(x), float(y)) for x, y in values.get("scan", ()))
    limits = values.get("target_range", ())
    fixed["target_range"] = tuple((float(x), float(y)) for x, y in limits)
    if values.get("reference") is not None:
        rows = lambda x: tuple(map(tuple, x)) if isinstance(x, list) else x
        motion: dict[str, Any] = {k: rows(x) for k, x in values["reference"].items()}
        fixed["reference"] = Reference(**motion)
    found = Deployment(**fixed)
    check_deployment(found)
    return found


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


class OnnxPolicy:
    """A policy of an ONNX file that `export_policy` wrote, with its memory.

    `metadata` is what the file says about it, and `inputs` the shapes of its observations
    by name.

    **Raises:** `ImportError` without onnxruntime; `FileNotFoundError` if there is no such
    file; `ValueError` if it is no ONNX file, or not written by `eqsim export`.
    """

    metadata: PolicyMetadata
    inputs: dict[str, tuple[int, ...]]

    def __init__(self, file: str | os.PathLike):
        check_installed("onnxruntime")
        import onnxruntime

        if not pathlib.Path(file).is_file():
            raise FileNotFoundError(f"There is no policy file {str(file)!r}.")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1  # A small network, one observation.
        options.log_severity_level = 3
        try:
            self._session: Any = onnxruntime.InferenceSession(str(file), options)
        except Exception as error:  # ONNX Runtime has a class for each of its errors.
            raise ValueError(f"{str(file)!r} is no ONNX file ({error}).") from error
        self.metadata = from_properties(
            self._session.get_modelmeta().custom_metadata_map
        )
        described = self._session.get_inputs()
        start = self.metadata.start
        self.inputs = {x.name: (*x.shape,) for x in described if x.name not in start}
        kinds = {x.name: x.type.removeprefix("tensor(")[:-1] for x in described}
        self._types = {k: {"float": "float32"}.get(x, x) for k, x in kinds.items()}
        self._outputs = [x.name for x in self._session.get_outputs()]
        self.reset()

    def reset(self) -> None:
        """Begin an episode."""
        self._memory = dict(self.metadata.start)

    def act(self, obs: np.ndarray | Mapping[str, np.ndarray]) -> np.ndarray:
        """Compute the action of an observation, and keep the memory.

        **Arguments:**

        - `obs`: a vector, or the parts that the policy reads, by name.
        """
        named = obs if isinstance(obs, Mapping) else dict.fromkeys(self.inputs, obs)
        parts = {name: named[name] for name in self.inputs} | self._memory
        given = {k: np.asarray(x, self._types[k]) for k, x in parts.items()}
        out = dict(zip(self._outputs, self._session.run(None, given)))
        self._memory = {name: out[f"next_{name}"] for name in self._memory}
        return out["action"]
