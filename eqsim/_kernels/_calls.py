"""Mere calls, whose derivatives of their own do not matter here."""

from ._scalarize import called, rule, Unsupported


@rule(
    "jit",
    "pjit",
    "closed_call",
    "core_call",
    "remat2",
    "remat",
    "checkpoint",
    "custom_jvp_call",
    "custom_vjp_call",
    "custom_vjp_call_jaxpr",
)
def _call(walk, eqn, *operands):
    inner = called(eqn)
    if inner is None:
        raise Unsupported(f"a call of `{eqn.primitive.name}` without a program")
    return walk.closed(inner, list(operands))


@rule("custom_linear_solve")
def _linear_solve(walk, eqn, *operands):
    lengths, solve = eqn.params["const_lengths"], eqn.params["jaxprs"].solve
    first = lengths.matvec + lengths.vecmat
    last = first + lengths.solve
    right = operands[last + lengths.transpose_solve :]
    return walk.closed(solve, [*operands[first:last], *right])
