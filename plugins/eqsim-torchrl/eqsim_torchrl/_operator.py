"""JAX functions as PyTorch functions."""

import contextlib
import itertools
import weakref
from collections.abc import Callable, Sequence
from typing import Any, no_type_check

import jax
import jax.numpy as jnp
import torch

from ._arrays import jax_type, to_jax, to_torch, torch_type


Function = Callable[..., tuple[jax.Array, ...]]


class Compiled:
    """A compiled function, `f(fixed, *arrays) -> tuple of arrays`, and its derivatives,
    which operators share.

    - `f`: function without side effects.
    - `program`: `f`, compiled once for given shapes.
    """

    def __init__(self, f: Function):
        self.f, self.program = f, jax.jit(f)
        self.derived: dict[Any, Compiled] = {}

    def __reduce__(self) -> tuple[type, tuple]:
        return Compiled, (self.f,)

    @property
    def traces(self) -> int:
        """Number of combinations of shapes and types for which it was compiled."""
        return self.program._cache_size()

    def derive(self, key: Any, f: Function) -> "Compiled":
        """Return the function derived from this one; `f` if there is none yet."""
        return self.derived.setdefault(key, Compiled(f))

    def real(self, fixed: Any, args: tuple, by: tuple[bool, ...]) -> Function:
        """Return the real results, as a function of some arguments."""

        def of_some(*some):
            left = iter(some)
            given = (next(left) if new else x for x, new in zip(args, by))
            return tuple(filter(_is_real, self.f(fixed, *given)))

        return of_some


class Operator:
    """A JAX function of arrays, `f(fixed, *arrays) -> tuple of arrays`, as a function
    of tensors.

    The function, reverse mode and forward mode are each compiled once for given shapes;
    reverse mode for the arguments that need a derivative. The backward pass stores only
    the arguments and recomputes the function, so a graph of many steps needs little
    memory and can be used twice. `torch.func.grad`, `vjp`, `jvp` and `vmap`,
    derivatives of derivatives, and `torch.compile` are supported. As in PyTorch,
    integers and booleans have no derivatives.

    `copy.deepcopy` and `pickle` copy `f` and `fixed`; the copy compiles on first use.

    **Arguments:**

    - `f`: function without side effects; or a `Compiled` one, which is shared.
    - `fixed`: pytree of arrays that is passed to it, without derivatives.
    """

    def __init__(self, f: Function | Compiled, fixed: Any = None):
        self.compiled = f if isinstance(f, Compiled) else Compiled(f)
        self.f, self.fixed = self.compiled.f, fixed
        self._derived: dict[Any, Operator] = {}
        self.number = next(_numbers)
        _operators[self.number] = self

    def __reduce__(self) -> tuple[type, tuple]:
        return Operator, (self.f, self.fixed)

    @no_type_check  # Which `torch.compile` would have to look into.
    def __call__(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        if torch.compiler.is_compiling():
            return tuple(_opaque(self.number, list(tensors)))
        return _Apply.apply(self, *tensors)

    def run(self, tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """Call the function without derivatives."""
        program = self.compiled.program
        return tuple(map(to_torch, program(self.fixed, *map(to_jax, tensors))))

    @property
    def traces(self) -> int:
        """Number of combinations of shapes and types for which it was compiled."""
        return self.compiled.traces

    def backward(self, needed: Sequence[bool]) -> "Operator":
        """Compute derivatives with respect to the needed arguments, which are real,
        from all arguments and the derivatives with respect to the real results."""
        needed, real = tuple(needed), self.compiled.real

        def backward(fixed, *given):
            args, cotangents = given[: len(needed)], given[len(needed) :]
            by = tuple(itertools.compress(args, needed))
            with _naming("in reverse"):
                return jax.vjp(real(fixed, args, needed), *by)[1](cotangents)

        return self._derive(("backward", needed), backward)

    def ready(self, needed: Sequence[bool]) -> tuple[bool, ...]:
        """Return the arguments to request from `backward`: the needed ones; or more, if
        exactly those have not been compiled, but more have. The first of many steps,
        whose state needs no derivative, then needs no separate program."""
        needed = tuple(needed)
        derived = self.compiled.derived
        if ("backward", needed) in derived:
            return needed
        for key, known in list(derived.items()):
            if key[0] == "backward" and len(key[1]) == len(needed) and known.traces:
                if all(more or not need for more, need in zip(key[1], needed)):
                    return key[1]
        return needed

    def tangent(self, number: int) -> "Operator":
        """Compute tangents of the real results, from arguments and tangents of the real
        ones."""
        of_real = self.compiled.real

        def tangent(fixed, *given):
            args, tangents = given[:number], given[number:]
            real = tuple(filter(_is_real, args))
            by = tuple(map(_is_real, args))
            with _naming("forward"):
                return jax.jvp(of_real(fixed, args, by), real, tangents)[1]

        return self._derive(("tangent", number), tangent)

    def batched(self, axes: tuple[int | None, ...]) -> "Operator":
        """Add a batch axis, leading in the results, and at a given position in each
        argument."""
        return self._derive(("batched", axes), jax.vmap(self.f, (None, *axes)))

    def _derive(self, key: Any, f: Function) -> "Operator":
        if key not in self._derived:
            self._derived[key] = Operator(self.compiled.derive(key, f), self.fixed)
        return self._derived[key]


_numbers = itertools.count()
_operators: weakref.WeakValueDictionary[int, Operator] = weakref.WeakValueDictionary()


def _is_real(x: Any) -> bool:
    if isinstance(x, torch.Tensor):
        return x.is_floating_point()
    return jnp.issubdtype(x.dtype, jnp.floating)


@contextlib.contextmanager
def _naming(direction: str):
    """Add an explanation to errors of JAX for missing derivatives."""
    try:
        yield
    except (NotImplementedError, TypeError, ValueError) as error:
        raise RuntimeError(
            f"JAX cannot compute a derivative {direction}: {error} Pipelines that "
            "leave JAX, or loops without a bound, have no derivatives. Use another "
            "pipeline (all pipelines of eqsim have both derivatives), or leave "
            "`requires_grad` out."
        ) from error


class _Apply(torch.autograd.Function):
    @staticmethod
    def forward(operator: Operator, *tensors):
        return operator.run(tensors)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.operator, *tensors = inputs
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)
        ctx.real = [_is_real(x) for x in output]
        ctx.mark_non_differentiable(*(x for x in output if not _is_real(x)))

    @staticmethod
    def backward(ctx, *grads):
        needed = ctx.needs_input_grad[1:]
        given = [grad for grad, real in zip(grads, ctx.real) if real]
        call = lambda operator, given: operator(*given)
        return None, *_backward(call, ctx.operator, ctx.saved_tensors, needed, given)

    @staticmethod
    def jvp(ctx, _, *tangents):
        args = ctx.saved_tensors
        given = [
            torch.zeros_like(x) if tangent is None else tangent
            for x, tangent in zip(args, tangents)
            if _is_real(x)
        ]
        found = iter(ctx.operator.tangent(len(args))(*args, *given))
        return tuple(next(found) if real else None for real in ctx.real)

    @staticmethod
    def vmap(info, in_dims, operator: Operator, *tensors):
        out = operator.batched(tuple(in_dims[1:]))(*tensors)
        return out, (0,) * len(out)


def _backward(call: Callable, operator: Operator, args, needed, cotangents) -> list:
    """Return derivatives with respect to the arguments that need one; None for the
    others.

    - `call`: function `(operator, tensors) -> tensors`.
    - `cotangents`: derivatives with respect to the real results.
    """
    needed = [need and _is_real(x) for need, x in zip(needed, args)]
    if not any(needed):
        return [None] * len(needed)
    made = operator.ready(needed)
    found = iter(call(operator.backward(made), [*args, *cotangents]))
    every = [next(found) if x else None for x in made]
    return [x if need else None for x, need in zip(every, needed)]


@torch.library.custom_op("eqsim_torchrl::call", mutates_args=())
def _opaque(number: int, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    return list(_operators[number].run(tensors))


@_opaque.register_fake
def _(number: int, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    operator = _operators[number]
    shapes = [jax.ShapeDtypeStruct(x.shape, jax_type(x.dtype)) for x in tensors]
    out = jax.eval_shape(operator.f, operator.fixed, *shapes)
    return [tensors[0].new_empty(x.shape, dtype=torch_type(x.dtype)) for x in out]


def _setup(ctx, inputs, output):
    ctx.number, tensors = inputs
    ctx.save_for_backward(*tensors)
    ctx.real = [_is_real(x) for x in output]
    ctx.like = [(x.shape, x.dtype, x.device) for x in output]


def _opaque_backward(ctx, grads):
    operator, args = _operators[ctx.number], ctx.saved_tensors
    whole = [
        torch.zeros(shape, dtype=dtype, device=device) if grad is None else grad
        for grad, (shape, dtype, device) in zip(grads, ctx.like)
    ]
    given = [grad for grad, real in zip(whole, ctx.real) if real]
    call = lambda operator, given: _opaque(operator.number, given)
    return None, _backward(call, operator, args, ctx.needs_input_grad[1], given)


_opaque.register_autograd(_opaque_backward, setup_context=_setup)
