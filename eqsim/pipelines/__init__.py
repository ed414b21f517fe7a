"""Pipelines: physics engines that compute the next state."""

from ._body_constants import PreparedBodies as PreparedBodies
from ._contacts import (
    contact_wrenches as contact_wrenches,
    Contacts as Contacts,
    deepest_contacts as deepest_contacts,
)
from ._forward import Prepared as Prepared
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
)
from ._positional import Positional as Positional
from ._solved import Solved as Solved
from ._spring import Spring as Spring
