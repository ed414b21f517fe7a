"""Forward mode of arithmetic, of what is linear, and of mere calls."""

import functools

from ._elementwise import elementwise
from ._forward import Forward, forward_rule
from ._partials import Entry, PARTIALS
from ._scalarize import called, dtype_of
from ._smooth import CALLS, is_float


@forward_rule(*PARTIALS)
def _elementwise(forward: Forward, eqn, operands, tangents, *_):
    partials, aval = PARTIALS[eqn.primitive.name], eqn.outvars[0].aval
    moving = []
    for partial, var, rate in zip(partials, eqn.invars, tangents, strict=True):
        if rate is None:
            continue
        if partial is None or var.aval.shape != aval.shape:
            return None
        moving.append((partial, rate))
    (out,) = forward.walk.apply(eqn, operands)
    graph, dtype, count = forward.graph, dtype_of(aval), len(operands)

    def at(out, *entries):
        entry = Entry(graph, dtype, eqn.params, out, entries[:count])
        pairs = zip(moving, entries[count:], strict=True)
        terms = [partial(entry, rate) for (partial, _), rate in pairs]
        return functools.reduce(lambda a, b: entry("add", a, b), terms)

    given = (out, *operands, *(rate for _, rate in moving))
    return [out], [elementwise(forward.walk, aval.shape, dtype, given, at)]


# Linear in all operands that are floats.


_LINEAR = (
    *("reshape", "expand_dims", "squeeze", "broadcast_in_dim", "transpose", "rev"),
    *("slice", "split", "unstack", "concatenate", "stack", "tile", "pad"),
    *("reduce_sum", "cumsum", "dynamic_slice", "dynamic_update_slice", "scatter-add"),
    *("copy", "copy_p", "optimization_barrier", "name", "convert_element_type"),
    *("select_n", "gather", "scatter"),
)


@forward_rule(*_LINEAR)
def _linear(forward: Forward, eqn, operands, tangents, *_):
    if "FILL" in str(eqn.params.get("mode")) and eqn.primitive.name == "gather":
        # What lies outside has no tangent, whatever fills its place.
        return None
    given = []
    for var, x, rate in zip(eqn.invars, operands, tangents, strict=True):
        floats = is_float(var.aval)
        given.append(forward.zeros(var.aval) if floats and rate is None else rate)
        if not floats:
            given[-1] = x
    walk = forward.walk
    return walk.apply(eqn, operands), list(walk.apply(eqn, given))


@forward_rule("dot_general")
def _dot(forward: Forward, eqn, operands, tangents, *_):
    walk, aval = forward.walk, eqn.outvars[0].aval
    (x, y), (dx, dy) = operands, tangents
    terms = []
    if dx is not None:
        terms += walk.apply(eqn, [dx, y])
    if dy is not None:
        terms += walk.apply(eqn, [x, dy])
    add = functools.partial(forward.plus, aval)
    return walk.apply(eqn, operands), [functools.reduce(add, terms)]


@forward_rule(*CALLS)
def _call(forward: Forward, eqn, operands, tangents, wanted):
    inner = called(eqn)
    return None if inner is None else forward.closed(inner, operands, tangents, wanted)
