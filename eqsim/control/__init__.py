"""Control: linear models of the dynamics, and plans by sampling."""

from ._linearize import (
    Linearization as Linearization,
    linearize as linearize,
    linearize_step as linearize_step,
)
from ._mppi import MPPI as MPPI
