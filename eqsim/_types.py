"""Names for shapes that appear in many signatures."""

from collections.abc import Callable
from typing import Any

from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree


Key = PRNGKeyArray
Scalar = Float[Array, ""]

__all__ = ["Any", "Array", "Callable", "Float", "Int", "Key", "PyTree", "Scalar"]
