"""A policy file, run by ONNX Runtime."""

import os
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from ._onnx_graph import check_installed
from .policy_metadata import from_properties, PolicyMetadata


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
        parts = {name: named[name] for name in self.inputs}
        given = {k: np.asarray(x, np.float32) for k, x in parts.items()}
        out = dict(zip(self._outputs, self._session.run(None, given | self._memory)))
        self._memory = {name: out[f"next_{name}"] for name in self._memory}
        return out["action"]
