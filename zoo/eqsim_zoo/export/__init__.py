"""Policies that leave the simulator: files that need no JAX, and their replay in MuJoCo.

`export_policy` writes the deterministic policy of an agent for ONNX Runtime, NumPy or
PyTorch. Files in reading order:

- `_policy_graph`: the policy as a graph, by tracing `agent.act`;
- `_primitives`: the table of primitives, how each is written in the three formats, and
  `_onnx_graph`, what its rows for ONNX add operators to;
- `_onnx_policy`, `_numpy_policy`, `_torch_policy`: the writers;
- `policy_metadata`: what is written beside a policy, such as the deployment of its task;
- `policy_export`: `export_policy`;
- `_onnx_runner`: a policy file run by ONNX Runtime, `mujoco_robot`: a robot in MuJoCo C that
  is driven and observed as a deployment says, and `mujoco_replay`: `replay`.

The package `jax2onnx` converts to ONNX alone, and would install Flax, Orbax, Netron and 30
other packages; the table here serves three formats and needs `onnx` only.

Below are runs, agents and blocks; the commands import this package.
"""

from ._onnx_runner import OnnxPolicy as OnnxPolicy
from ._policy_graph import NoPolicyGraph as NoPolicyGraph
from .mujoco_replay import Replay as Replay, replay as replay
from .mujoco_robot import MujocoRobot as MujocoRobot
from .policy_export import (
    export_policy as export_policy,
    PolicyFormat as PolicyFormat,
)
from .policy_metadata import PolicyMetadata as PolicyMetadata
