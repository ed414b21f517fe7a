"""Policies that leave the simulator: files that need no JAX, and their replay in MuJoCo.

`export_policy` writes the deterministic policy of an agent for ONNX Runtime, NumPy or
PyTorch. Files in reading order:

- `_graphs`: the policy as a graph, by tracing `agent.act`, and the graph of an ONNX model;
- `_primitives`: the table of primitives, how each is written in the three formats;
- `_formats`: the writers of the formats;
- `policy_files`: the metadata of a policy, such as the deployment of its task;
  `export_policy`; and `OnnxPolicy`, which runs a file by ONNX Runtime;
- `mujoco_replay`: a robot in MuJoCo C that is driven and observed as a deployment says, and
  `replay`.

The package `jax2onnx` converts to ONNX alone, and would install Flax, Orbax, Netron and 30
other packages; the table here serves three formats and needs `onnx` only.

Below are runs, agents and blocks; the commands import this package.
"""

from ._graphs import NoPolicyGraph as NoPolicyGraph
from .mujoco_replay import (
    MujocoRobot as MujocoRobot,
    Replay as Replay,
    replay as replay,
    terrain_scene as terrain_scene,
)
from .policy_files import (
    export_policy as export_policy,
    OnnxPolicy as OnnxPolicy,
    PolicyFormat as PolicyFormat,
    PolicyMetadata as PolicyMetadata,
)
