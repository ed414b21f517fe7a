"""The conformance kit for environments, pipelines, agents, colliders, constraints and
actuator models, and what tests of differentiable code need.

`check_conformance` checks an object; `parametrize_with_checks` turns the same checks into
tests of pytest, and `eqsim plugins check NAME` runs them for an installed plugin.
`check_gradients` and `tree_allclose` are for tests of any function.

Files in reading order: `conformance` (how checks are called and reported), `comparisons`
(what laws require: equal trees, unchanged programs, derivatives that agree with finite
differences), then the laws: `_environment_laws`, `_pipeline_laws`, `_agent_laws` with
`probes` (environments with known solutions), and `component_laws` (colliders, constraints
and actuator models). `random_system` (in `_random_system`, on `_random_parts` and
`_random_actuators`) generates robots for tests of functions that take one. Only tests,
plugins and the command line import this package.
"""

from . import probes as probes
from ._random_system import (
    random_configuration as random_configuration,
    random_system as random_system,
)
from .comparisons import (
    check_gradients as check_gradients,
    tree_allclose as tree_allclose,
)
from .component_laws import check_kernels as check_kernels
from .conformance import (
    check_actuator_model as check_actuator_model,
    check_collider as check_collider,
    check_conformance as check_conformance,
    check_constraint as check_constraint,
    ConformanceError as ConformanceError,
    parametrize_with_checks as parametrize_with_checks,
)
