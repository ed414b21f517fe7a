"""Pipelines: physics engines that compute the next state."""

from ._generalized import Generalized as Generalized
from ._integrators import (
    AbstractIntegrator as AbstractIntegrator,
    AbstractOneSolve as AbstractOneSolve,
    Euler as Euler,
    Implicit as Implicit,
    ImplicitFast as ImplicitFast,
    RungeKutta4 as RungeKutta4,
)
from ._pipeline import (
    AbstractPipeline as AbstractPipeline,
    AbstractPrepared as AbstractPrepared,
    contact_wrenches as contact_wrenches,
    Contacts as Contacts,
    deepest_contacts as deepest_contacts,
    Solved as Solved,
)
from .forward_dynamics import Prepared as Prepared
from .maximal import (
    Positional as Positional,
    PreparedBodies as PreparedBodies,
    Spring as Spring,
)
