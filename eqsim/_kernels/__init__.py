"""The kernel compiler: functions of one environment, compiled for batches on the CPU.

A jaxpr becomes a lane graph (`_scalarize` and the rules beside it), in which each scalar
stands for one SIMD vector of W environments; the graph becomes LLVM IR (`_schedule`,
`_emit`), which LLVM compiles (`_compile`) and XLA calls (`_lowering`). Nothing here knows
of robots.
"""

from ._compile import CompileError as CompileError
from ._lowering import (
    call as call,
    enabled as enabled,
    fallbacks as fallbacks,
    note as note,
    Program as Program,
    recorded_fallbacks as recorded_fallbacks,
)
from ._scalarize import Unsupported as Unsupported
