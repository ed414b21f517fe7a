"""Pipelines: physics engines that compute the next state.

`_pipeline` has the interface and what all pipelines report. `Generalized` is MuJoCo's model
in joint coordinates: `_generalized` (its methods), `forward_dynamics` (all stages up to the
accelerations, in order), `_integrators` (they call it, and go from accelerations to the next
state), `_sensing` (contacts, forces and sensors from the solution). `_inactive` finds
parameters without influence on its motion. `maximal` holds `Spring` and `Positional`.
`docs/step.md` follows a step through these files. Environments and all packages above may
import this one.
"""

from ._generalized import Generalized as Generalized
from ._inactive import Inactive as Inactive, inactive_parameters as inactive_parameters
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
