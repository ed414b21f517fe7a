"""An ONNX graph that grows operator by operator."""

import importlib.util
from typing import Any

import numpy as np


OPSET, IR_VERSION = 18, 8
"""Versions of operators and of the file, which ONNX Runtime reads since 1.14."""


def check_installed(*packages: str) -> None:
    """Raise `ImportError` unless packages of the extra `export` are installed."""
    for package in packages:
        if importlib.util.find_spec(package) is None:
            raise ImportError(
                f"ONNX files need {package}. Run `pip install 'eqsim-zoo[export]'`."
            )


class OnnxGraph:
    """Operators and constants of a graph.

    `nodes` and `initializers` are messages of ONNX, in the order in which they were added.
    """

    def __init__(self):
        check_installed("onnx")
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []
        self._constants: dict[tuple, str] = {}

    def op(self, kind: str, *inputs: str, number: int = 0, **attributes: Any) -> Any:
        """Add an operator.

        **Arguments:**

        - `kind`: name of the operator.
        - `number`: number of outputs, of which names are then returned as a list; 0 for a
            single one, whose name is returned.
        """
        from onnx import helper

        outputs = [f"{kind}_{len(self.nodes)}_{k}" for k in range(max(number, 1))]
        self.nodes.append(helper.make_node(kind, inputs, outputs, **attributes))
        return outputs if number else outputs[0]

    def constant(self, value: Any, dtype: Any = None) -> str:
        """Return the name of a constant, which is stored once."""
        from onnx import numpy_helper

        array = np.asarray(value, dtype)
        key = array.shape, array.dtype.str, array.tobytes()
        if key not in self._constants:
            name = f"constant_{len(self._constants)}"
            self._constants[key] = name
            self.initializers.append(numpy_helper.from_array(array, name))
        return self._constants[key]

    def integers(self, *values: int) -> str:
        """Return the name of a constant vector of integers, such as a shape."""
        return self.constant(values, np.int64)

    def cast(self, x: str, dtype: np.dtype) -> str:
        """Convert a value to a type."""
        return self.op("Cast", x, to=onnx_type(dtype))


def onnx_type(dtype: np.dtype) -> int:
    """Return the number by which ONNX knows a type."""
    from onnx import helper

    return helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
