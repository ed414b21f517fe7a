"""The kernel compiler: functions of one environment, compiled for batches on the CPU."""

from ._assumptions import pattern_of as pattern_of
from ._compile import CompileError as CompileError
from ._passes import Function as Function
from ._programs import (
    call as call,
    enabled as enabled,
    fallbacks as fallbacks,
    note as note,
    Program as Program,
    recorded_fallbacks as recorded_fallbacks,
    resulting_patterns as resulting_patterns,
)
from ._translation import dependence as dependence, Unsupported as Unsupported
