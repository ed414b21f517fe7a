"""Control: linear models of the dynamics."""

from ._linearize import (
    Linearization as Linearization,
    linearize as linearize,
    linearize_step as linearize_step,
)
