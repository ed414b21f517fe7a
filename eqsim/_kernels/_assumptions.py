"""Numbers that are assumed to be zero, one or minus one.

Many parameters of a robot are: axes, unit rotations, missing offsets. Code in which they
are literals is shorter by a third. But parameters are values, which anybody may change:
a kernel compares them in every call, bit for bit, and where one differs it hands the call
to a kernel without assumptions, which is compiled when it is needed for the first time.

A pattern says what is assumed of an array: one character for each element.
"""

import ctypes
from collections.abc import Callable, Sequence

import numpy as np

from ._ffi import API, FRAME, INTERNAL, NEW_ERROR


_NUMBERS = {b"0": 0.0, b"1": 1.0, b"-": -1.0}
_OTHER = b"."


LARGEST = 4096
"""Elements of the largest array with a pattern: larger ones are tables, of which a call
reads few entries and should not compare all."""


def pattern_of(array) -> bytes | None:
    """Return the pattern of an array of floats; None if there is nothing to assume, or the
    array has more than `LARGEST` elements."""
    array = np.asarray(array)
    if array.dtype.kind != "f" or array.size > LARGEST:
        return None
    flat = array.reshape(-1)
    codes = np.full(flat.shape, _OTHER)
    for code, number in _NUMBERS.items():
        codes[flat == number] = code
    codes[(flat == 0) & np.signbit(flat)] = _OTHER
    pattern = codes.tobytes()
    return pattern if set(pattern) - set(_OTHER) else None


def number(pattern: bytes | None, index: int) -> float | None:
    """Return the assumption about an element, or None."""
    return None if pattern is None else _NUMBERS.get(pattern[index : index + 1])


# Comparison, as LLVM IR.

_WORD = {"f4": "i32", "f8": "i64"}


def comparison(
    patterns: Sequence[bytes | None], dtypes: Sequence[str]
) -> tuple[list[str], list[str]]:
    """Compare all arguments with the assumptions.

    **Arguments:**

    - `patterns`: assumptions about each argument.
    - `dtypes`: their types.

    **Returns:** definitions, and lines of the handler, where the numbers of argument `k`
    begin at `%ak.data`. Where numbers differ, they call the kernel without assumptions.
    """
    tables, lines, last = [], [], "false"
    used = {k: pattern for k, pattern in enumerate(patterns) if pattern is not None}
    for k, pattern in used.items():
        dtype, count = dtypes[k], len(pattern)
        word = _WORD[dtype]
        expected, mask = _words(pattern, dtype)
        array = f"[{count} x {word}]"
        tables += [
            f"@expected{k} = internal constant {array} [{_listed(word, expected)}]",
            f"@mask{k} = internal constant {array} [{_listed(word, mask)}]",
        ]
        lines += [
            f"  %own_differs{k} = call i1 @differs_{word}(ptr %a{k}.data, "
            f"ptr @expected{k}, ptr @mask{k}, i64 {count})",
            f"  %differs{k} = or i1 {last}, %own_differs{k}",
        ]
        last = f"%differs{k}"
    words = sorted({_WORD[dtypes[k]] for k in used})
    lines.append(f"  %differs = or i1 {last}, false")
    return [*_DEFINITIONS, *tables, *map(_differs, words)], [*lines, _OTHERWISE]


def _words(pattern: bytes, dtype: str) -> tuple[list[int], list[int]]:
    """Return the bits of the assumed numbers, and a mask of the bits that count."""
    unsigned = f"u{dtype[1:]}"
    known = [number(pattern, k) for k in range(len(pattern))]
    floats = np.array([0.0 if x is None else x for x in known], dtype)
    every = np.iinfo(unsigned).max
    mask = [0 if x is None else every for x in known]
    return floats.view(unsigned).tolist(), mask


def _listed(word: str, numbers: list[int]) -> str:
    return ", ".join(f"{word} {x}" for x in numbers)


_AT_ONCE = 8


def _differs(word: str) -> str:
    vector = f"<{_AT_ONCE} x {word}>"
    reduced = f"@llvm.vector.reduce.or.v{_AT_ONCE}{word}"
    size = int(word[1:]) // 8
    return f"""
declare {word} {reduced}({vector})

define internal i1 @differs_{word}(ptr %data, ptr %expected, ptr %mask, i64 %count) {{
entry:
  br label %blocks
blocks:
  %k = phi i64 [ 0, %entry ], [ %kn, %block ]
  %found = phi {vector} [ zeroinitializer, %entry ], [ %both, %block ]
  %kn = add i64 %k, {_AT_ONCE}
  %whole = icmp sle i64 %kn, %count
  br i1 %whole, label %block, label %rest
block:
  %p0 = getelementptr {word}, ptr %data, i64 %k
  %p1 = getelementptr {word}, ptr %expected, i64 %k
  %p2 = getelementptr {word}, ptr %mask, i64 %k
  %x0 = load {vector}, ptr %p0, align {size}
  %x1 = load {vector}, ptr %p1, align {size}
  %x2 = load {vector}, ptr %p2, align {size}
  %change = xor {vector} %x0, %x1
  %counts = and {vector} %change, %x2
  %both = or {vector} %found, %counts
  br label %blocks
rest:
  %one = call {word} {reduced}({vector} %found)
  br label %single
single:
  %j = phi i64 [ %k, %rest ], [ %jn, %each ]
  %so_far = phi {word} [ %one, %rest ], [ %next, %each ]
  %more = icmp slt i64 %j, %count
  br i1 %more, label %each, label %end
each:
  %q0 = getelementptr {word}, ptr %data, i64 %j
  %q1 = getelementptr {word}, ptr %expected, i64 %j
  %q2 = getelementptr {word}, ptr %mask, i64 %j
  %y0 = load {word}, ptr %q0
  %y1 = load {word}, ptr %q1
  %y2 = load {word}, ptr %q2
  %own = xor {word} %y0, %y1
  %own_counts = and {word} %own, %y2
  %next = or {word} %so_far, %own_counts
  %jn = add i64 %j, 1
  br label %single
end:
  %result = icmp ne {word} %so_far, 0
  ret i1 %result
}}
"""


# The kernel without assumptions.

REQUEST = "request"
"""Name of the variable that holds the address of the function which makes it."""

_FAILURE = "A kernel of eqsim cannot be compiled: the log says why."

_DEFINITIONS = [
    f"@{REQUEST} = global ptr null",
    "@general = internal global ptr null",
    f'@failure = internal constant [{len(_FAILURE) + 1} x i8] c"{_FAILURE}\\00"',
]

_OTHERWISE = f"""
  br i1 %differs, label %other, label %assumed
other:
  %made = load atomic ptr, ptr @general acquire, align 8
  %missing = icmp eq ptr %made, null
  br i1 %missing, label %order, label %general
order:
  %request = load ptr, ptr @{REQUEST}
  %ordered = call ptr %request()
  store atomic ptr %ordered, ptr @general release, align 8
  %failed = icmp eq ptr %ordered, null
  br i1 %failed, label %fail, label %general
general:
  %function = phi ptr [ %made, %other ], [ %ordered, %order ]
  %passed_on = call ptr %function(ptr %frame)
  ret ptr %passed_on
fail:
  %fail.api.at = {FRAME.at("%frame", "api")}
  %fail.api = load ptr, ptr %fail.api.at
  %create.at = {API.at("%fail.api", "error_create")}
  %create = load ptr, ptr %create.at
  %new = alloca {NEW_ERROR.name}
  %new.size = {NEW_ERROR.at("%new", "size")}
  store i64 {NEW_ERROR.size}, ptr %new.size
  %new.extension = {NEW_ERROR.at("%new", "extension")}
  store ptr null, ptr %new.extension
  %new.message = {NEW_ERROR.at("%new", "message")}
  store ptr @failure, ptr %new.message
  %new.code = {NEW_ERROR.at("%new", "code")}
  store i32 {INTERNAL}, ptr %new.code
  %report = call ptr %create(ptr %new)
  ret ptr %report
assumed:
"""


def maker(make: Callable[[], int]):
    """Return a C function that calls `make`. Keep it as long as it may be called."""
    return ctypes.CFUNCTYPE(ctypes.c_void_p)(make)
