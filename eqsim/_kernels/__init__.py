"""The kernel compiler: functions of one environment, compiled for batches on the CPU.

A function of one environment is a jaxpr on small arrays. A kernel computes it for a batch:
each scalar of the function becomes one SIMD vector of W environments. The list of the passes
is `KERNEL_PASSES` in `_passes.py`:

1. *Translate* the jaxpr to a graph of scalars, or its Jacobian-vector or vector-Jacobian
   product. Small arrays are arrays of nodes, on which moving elements costs nothing;
   constants are folded and equal nodes merged as they are made.
2. *Order* the nodes that the results need, depth first, and cut them into chunks.
3. *Place* the values that one chunk leaves for another in scratch memory.
4. *Emit* LLVM IR: a function for each chunk, loops and branches around them, and the runtime,
   which moves numbers in and out and shares the work among threads.

LLVM compiles the result without passes of its own; XLA calls it by its foreign-function
interface. The files, in reading order:

- `_programs.py`: `call`, the entry for the rest of eqsim: the layout of a batch, kernels in
  memory and on disk, fallbacks to XLA.
- `_passes.py`: the list of passes, and what goes through them.
- `_graph.py`: the graph of scalars; `print(graph)` shows it, one line an operation.
- `_operations.py`: the table of scalar operations: value, simplification, instruction and
  partial derivatives.
- `_arrays.py`: arrays of nodes, arrays in memory, and indices.
- `_translation.py`: the walk over a jaxpr, and which results depend on which axes of the batch.
- `_jax_primitives.py`, `_reductions.py`, `_control_flow.py`: rules for JAX's primitives.
- `_derivatives.py`, `_forward.py`, `_reverse.py`, `_reverse_rules.py`: forward and reverse mode.
- `_callees.py`: calls of functions with machine code of their own.
- `_schedule.py`: order, and places in scratch memory.
- `_llvm.py`, `_emit.py`: LLVM IR of scalar operations and of chunks.
- `_ffi.py`, `_runtime.py`, `_transfers.py`: XLA's structures; what XLA calls, threads, loops
  over the batch, how numbers are moved, and which environments share a vector.
- `_influence.py`: which elements of its arguments a function varies with.
- `_assumptions.py`: numbers of a robot that are assumed to be 0, 1 or -1.
- `_compile.py`, `_object.py`: LLVM, the store of machine code, and its keys.

Nothing here knows of robots. Only `_batching`, `_primitive`, `_separate` and `testing`
import it, by the names below.
"""

from ._assumptions import pattern_of as pattern_of
from ._compile import CompileError as CompileError
from ._influence import influences as influences
from ._passes import Function as Function
from ._programs import (
    call as call,
    enabled as enabled,
    fallbacks as fallbacks,
    note as note,
    Program as Program,
    recorded_fallbacks as recorded_fallbacks,
    resulting_patterns as resulting_patterns,
    without_collection as without_collection,
)
from ._translation import dependence as dependence, Unsupported as Unsupported
