"""What is written beside a policy: names, memory, and how it is deployed."""

import json
from collections.abc import Mapping
from importlib import metadata
from typing import Any, NamedTuple

import numpy as np

from eqsim import AbstractAgent, AbstractEnv
from eqsim.envs import check_deployment, Deployment, ObservationPart
from eqsim.wrappers import deployment_of

from ..runs.folders import env_name
from ._policy_graph import PolicyGraph


FORMAT = "eqsim-policy-1"


class PolicyMetadata(NamedTuple):
    """What is written beside a policy.

    **Arguments:**

    - `version`: version of eqsim that wrote the file.
    - `env`, `agent`: names of environment and agent.
    - `start`: memory at the start of an episode, by name of the input; empty for policies
        without memory.
    - `deployment`: what a controller needs to know; None if the environment cannot be
        deployed.
    - `reason`: why it cannot.
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
    about = metadata.version("eqsim"), name or env_name(env), type(agent).__name__
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
        values = deployment._asdict() | {"observation": parts}
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
    found = Deployment(**fixed)
    check_deployment(found)
    return found
