"""The kernel compiler: functions of one environment, compiled for batches on the CPU.

A jaxpr becomes a lane graph (`_scalarize` and the rules beside it), in which each scalar
stands for one SIMD vector of W environments; the graph becomes LLVM IR (`_schedule`,
`_emit`), which LLVM compiles (`_compile`, `_programs`) and XLA calls (`_lowering`). Kernels
share functions of their own machine code (`_callees`).
Nothing here knows of robots.
"""

from ._assumptions import pattern_of as pattern_of
from ._compile import CompileError as CompileError
from ._lowering import (
    call as call,
    enabled as enabled,
    fallbacks as fallbacks,
    note as note,
    recorded_fallbacks as recorded_fallbacks,
)
from ._programs import (
    Function as Function,
    Program as Program,
    resulting_patterns as resulting_patterns,
)
from ._scalarize import dependence as dependence, Unsupported as Unsupported
