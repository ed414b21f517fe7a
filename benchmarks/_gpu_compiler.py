"""Ahead-of-time compilation for a GPU that is not present."""

import importlib.util
from typing import Any

import jax
from _models import NotInstalled
from jax.experimental import topologies


# XLA's description of an NVIDIA H200.
_TARGET = """
platform_name: "CUDA"
device_description_str: "NVIDIA H200"
runtime_version { major: 12 minor: 9 }
dnn_version_info { major: 9 minor: 10 }
gpu_device_info {
  cuda_compute_capability { major: 9 }
  core_count: 132
  fpus_per_core: 128
  clock_rate_ghz: 1.98
  threads_per_warp: 32
  threads_per_block_limit: 1024
  threads_per_core_limit: 2048
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
  shared_memory_per_block: 49152
  shared_memory_per_block_optin: 232448
  shared_memory_per_core: 233472
  l2_cache_size: 52428800
  memory_bandwidth: 4800000000000
  device_memory_size: 150000000000
}
"""
DEVICE = "NVIDIA H200"


def require_compiler() -> None:
    """Raise `NotInstalled` if no compiler for GPUs is installed."""
    plugins = ("jax_plugins.xla_cuda12", "jax_plugins.xla_cuda13")
    if not any(map(_is_installed, plugins)):
        version = jax.__version__
        raise NotInstalled(
            "No compiler for GPUs is installed: pip install --no-deps "
            f"jax-cuda12-plugin=={version} jax-cuda12-pjrt=={version} "
            "(no GPU, driver or CUDA toolkit is needed)"
        )


def gpu() -> Any:
    """Return a device to compile for; it cannot run programs."""
    found = topologies.get_topology_desc(
        "h200", platform="cuda", target_config=_TARGET, topology="1x1x1"
    )
    return found.devices[0]


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False
