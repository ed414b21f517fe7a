"""Conformance kit for environments, pipelines, agents, constraints and colliders."""

from . import probes as probes
from ._agent import agent_checks as agent_checks, check_agent as check_agent
from ._check import (
    Check as Check,
    ConformanceError as ConformanceError,
    NotApplicable as NotApplicable,
    Outcome as Outcome,
    outcomes as outcomes,
    Report as Report,
    Status as Status,
)
from ._collider import (
    check_collider as check_collider,
    collider_checks as collider_checks,
)
from ._compare import Comparison as Comparison, tree_allclose as tree_allclose
from ._constraint import (
    check_constraint as check_constraint,
    constraint_checks as constraint_checks,
)
from ._env import check_env as check_env, env_checks as env_checks
from ._gradients import check_gradients as check_gradients
from ._kernels import check_kernels as check_kernels
from ._parametrize import (
    checks_of as checks_of,
    parametrize_with_checks as parametrize_with_checks,
)
from ._pipeline import (
    check_pipeline as check_pipeline,
    pipeline_checks as pipeline_checks,
)
from ._random_system import (
    random_configuration as random_configuration,
    random_system as random_system,
)
