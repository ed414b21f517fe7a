"""Graphs of policies: that of a policy as it is traced, and that of an ONNX model.

`policy_graph` traces a policy to a list of `Node`s, with calls inlined and constants folded;
`OnnxGraph` collects the nodes of a model.
"""

import importlib.util
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
from jax.extend.core import Jaxpr, Literal

from eqsim import AbstractAgent, AbstractController, AbstractEnv, AbstractRecurrentAgent

from ..blocks.hyperparameters import cast_floats
from ..blocks.observations import named


class Form(NamedTuple):
    """Shape and type of a value."""

    shape: tuple[int, ...]
    dtype: np.dtype


Value: TypeAlias = str | np.ndarray
"""A value of a graph: a name, or a constant."""


class Node(NamedTuple):
    """An operation.

    **Arguments:**

    - `primitive`: name of the primitive of JAX.
    - `inputs`, `outputs`: values that it reads, and names of those that it computes.
    - `sources`, `forms`: shapes and types of inputs and outputs.
    - `params`: parameters of the primitive.
    """

    primitive: str
    inputs: tuple[Value, ...]
    outputs: tuple[str, ...]
    sources: tuple[Form, ...]
    forms: tuple[Form, ...]
    params: dict[str, Any]


class PolicyGraph(NamedTuple):
    """A policy.

    **Arguments:**

    - `inputs`: shapes and types of the inputs by name: `obs`, or the parts of the
        observation that the policy reads, then `memory_0`, `memory_1`, ...
    - `nodes`: operations in the order of their computation.
    - `outputs`: `action`, then `next_memory_0`, ..., by name.
    - `output_forms`: shapes and types of the outputs by name.
    - `start`: memory at the start of an episode, by name.
    """

    inputs: dict[str, Form]
    nodes: tuple[Node, ...]
    outputs: dict[str, Value]
    output_forms: dict[str, Form]
    start: dict[str, np.ndarray]


class NoPolicyGraph(ValueError):
    """The policy of an agent is no graph of operations on observations and memory."""


# Tracing an agent.


def policy_graph(agent: AbstractAgent, state: Any, env: AbstractEnv) -> PolicyGraph:
    """Trace the deterministic policy of an agent, in single precision.

    **Arguments:**

    - `agent`, `state`: agent and state of one member.
    - `env`: environment that the agent acts in, of which the observation matters.

    **Raises:** `NoPolicyGraph` if the policy reads the state of the robot or draws random
    numbers.
    """
    agent, state = cast_floats((agent, state), jnp.float32)
    inner, timestep = eqx.filter_eval_shape(lambda env: env.reset(jr.key(0)), env)
    obs = _single(timestep.obs)
    if not isinstance(agent, AbstractRecurrentAgent):
        act = lambda obs: agent.act(state, obs)
        traced = _trace(act, (obs,), _names(obs))
        return _policy(traced, _names(obs), ("action",), {}, type(agent).__name__)
    robot = eqx.filter_eval_shape(lambda env, x: env.physics(x), env, inner)
    return _with_memory(agent.controller(state), obs, _single(robot))


def _with_memory(controller: AbstractController, obs: Any, robot: Any) -> PolicyGraph:
    """Trace a step of a controller."""
    key = jax.eval_shape(lambda: jr.key_data(jr.key(0)))
    init = lambda robot, key: controller.init(robot, jr.wrap_key_data(key))
    shapes = jax.eval_shape(init, robot, key)
    others = [f"state_{k}" for k, _ in enumerate(jtu.tree_leaves((robot, key)))]
    about = type(controller).__name__
    begun = _policy(
        _trace(init, (robot, key), others),
        (),
        _numbered("memory", shapes),
        {},
        f"{about}.init",
    )
    start = {}
    for name, value in begun.outputs.items():
        assert not isinstance(value, str), "the start depends on no input"
        start[name] = value

    def step(obs, memory, robot, key):
        kept, action = controller.act(memory, robot, obs, jr.wrap_key_data(key))
        return action, kept

    names = [*_names(obs), *start]
    traced = _trace(step, (obs, shapes, robot, key), [*names, *others])
    outputs = ("action", *_numbered("next_memory", shapes))
    # A memory that the policy does not read is still passed to it.
    found = _policy(traced, names, outputs, start, f"{about}.act")
    return found._replace(inputs=found.inputs | _forms(start))


def _single(tree: Any) -> Any:
    """Return shapes with floating-point numbers in single precision."""

    def cast(x):
        inexact = jnp.issubdtype(x.dtype, jnp.inexact)
        return jax.ShapeDtypeStruct(x.shape, jnp.float32 if inexact else x.dtype)

    return jtu.tree_map(cast, tree)


def _names(obs: Any) -> list[str]:
    parts = named(obs)
    if any(not isinstance(x, jax.ShapeDtypeStruct) for x in parts.values()):
        raise NoPolicyGraph(
            "An exported policy observes an array or a dictionary of arrays, got "
            f"{jtu.tree_structure(obs)}."
        )
    return sorted(parts)


def _numbered(name: str, tree: Any) -> tuple[str, ...]:
    return tuple(f"{name}_{k}" for k, _ in enumerate(jtu.tree_leaves(tree)))


def _forms(values: dict[str, np.ndarray]) -> dict[str, Form]:
    return {name: Form(x.shape, x.dtype) for name, x in values.items()}


def _policy(
    traced: PolicyGraph,
    allowed: Sequence[str],
    outputs: Sequence[str],
    start: dict[str, np.ndarray],
    about: str,
) -> PolicyGraph:
    """Name the outputs, and refuse inputs that a policy outside does not have."""
    for name in traced.inputs:
        if name not in allowed:
            raise NoPolicyGraph(
                f"`{about}` reads the state of the robot or a random key, so it cannot "
                "be exported. A policy reads observations and its memory."
            )
    values = dict(zip(outputs, traced.outputs.values()))
    forms = dict(zip(outputs, traced.output_forms.values()))
    return traced._replace(outputs=values, output_forms=forms, start=start)


# From a jaxpr to a graph.

# Primitives that call a jaxpr, with the name of the parameter that holds it.
_CALLS = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "core_call": "call_jaxpr",
    "checkpoint": "jaxpr",
    "remat2": "jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "custom_lin": "call_jaxpr",
}
# Primitives that return what they are given, in this world without derivatives.
_SAME = ("copy", "copy_p", "once", "optimization_barrier", "stop_gradient")
# Primitives that return their operand, if that has the right shape and type.
_SAME_FORM = ("reshape", "broadcast_in_dim", "squeeze", "convert_element_type")


def _trace(fn: Callable, args: tuple, names: Sequence[str]) -> PolicyGraph:
    """Trace a function of shapes; outputs are numbered.

    **Arguments:**

    - `names`: names of the leaves of `args`.
    """
    closed = jax.make_jaxpr(fn)(*args)
    forms = {k: _form(var.aval) for k, var in zip(names, closed.jaxpr.invars)}
    nodes: list[Node] = []
    found = _inlined(closed.jaxpr, closed.consts, list(names), nodes)
    outputs = {str(k): _array(x) for k, x in enumerate(found)}
    output_forms = {str(k): _form(v.aval) for k, v in enumerate(closed.jaxpr.outvars)}
    kept = _needed(nodes, outputs.values())
    used = {x for node in kept for x in node.inputs if isinstance(x, str)}
    used |= {x for x in outputs.values() if isinstance(x, str)}
    inputs = {name: form for name, form in forms.items() if name in used}
    return PolicyGraph(inputs, kept, outputs, output_forms, {})


def _form(aval: Any) -> Form:
    dtype = aval.dtype
    # Random keys are constants, whose type NumPy does not know.
    known = not jnp.issubdtype(dtype, jax.dtypes.extended)
    return Form(tuple(aval.shape), np.dtype(dtype if known else np.uint32))


def _array(value: Any) -> Any:
    return value if isinstance(value, str) else np.asarray(value)


def _inlined(
    jaxpr: Jaxpr, consts: Sequence[Any], args: Sequence[Any], nodes: list[Node]
) -> list[Any]:
    """Append the operations of a jaxpr to `nodes`, and return the values of its outputs:
    names or arrays."""
    values = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *args]))
    read = lambda x: x.val if isinstance(x, Literal) else values[x]
    for eqn in jaxpr.eqns:
        name, inputs = eqn.primitive.name, [read(x) for x in eqn.invars]
        if name in _CALLS:
            called: Any = eqn.params[_CALLS[name]]
            inner = called.jaxpr if isinstance(called.jaxpr, Jaxpr) else called
            found = _inlined(inner, called.consts, inputs, nodes)
        elif not any(isinstance(x, str) for x in inputs):
            out = eqn.primitive.bind(*inputs, **eqn.params)
            found = list(out) if eqn.primitive.multiple_results else [out]
        else:
            found = _simplified(name, eqn, inputs)
        if found is None:
            found = [f"v{len(nodes)}_{k}" for k, _ in enumerate(eqn.outvars)]
            forms = [_form(x.aval) for x in eqn.outvars]
            sources = [_form(x.aval) for x in eqn.invars]
            arrays = tuple(map(_array, inputs))
            parts = tuple(found), tuple(sources), tuple(forms), eqn.params
            nodes.append(Node(name, arrays, *parts))
        values |= zip(eqn.outvars, found)
    return [read(x) for x in jaxpr.outvars]


def _simplified(name: str, eqn: Any, inputs: Sequence[Any]) -> list[Any] | None:
    """Return the values of an operation that computes nothing; None for others."""
    if name in _SAME:
        return list(inputs)
    forms = [_form(x.aval) for x in (eqn.invars[0], eqn.outvars[0])]
    if name in _SAME_FORM and forms[0] == forms[1]:
        return [inputs[0]]
    if name == "select_n" and not isinstance(inputs[0], str):
        which = np.unique(np.asarray(inputs[0]))
        chosen = inputs[1 + int(which[0])]
        if len(which) == 1:
            return [chosen]
    return None


def _needed(nodes: Sequence[Node], outputs: Any) -> tuple[Node, ...]:
    """Return the operations that outputs depend on."""
    wanted, kept = {x for x in outputs if isinstance(x, str)}, []
    for node in reversed(nodes):
        if wanted.intersection(node.outputs):
            kept.append(node)
            wanted |= {x for x in node.inputs if isinstance(x, str)}
    return tuple(reversed(kept))


OPSET, IR_VERSION = 18, 8
"""Versions of operators and of the file, which ONNX Runtime reads since 1.14."""


def check_installed(*packages: str) -> None:
    """Raise `ImportError` unless packages of the extra `export` are installed."""
    for package in packages:
        if importlib.util.find_spec(package) is None:
            raise ImportError(
                f"ONNX files need {package}. Run `pip install 'eqsim-zoo[export]'`."
            )


class OnnxGraph:
    """Operators and constants of a graph.

    `nodes` and `initializers` are messages of ONNX, in the order in which they were added.
    """

    def __init__(self):
        check_installed("onnx")
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []
        self._constants: dict[tuple, str] = {}

    def op(self, kind: str, *inputs: str, number: int = 0, **attributes: Any) -> Any:
        """Add an operator.

        **Arguments:**

        - `kind`: name of the operator.
        - `number`: number of outputs, of which names are then returned as a list; 0 for a
            single one, whose name is returned.
        """
        from onnx import helper

        outputs = [f"{kind}_{len(self.nodes)}_{k}" for k in range(max(number, 1))]
        self.nodes.append(helper.make_node(kind, inputs, outputs, **attributes))
        return outputs if number else outputs[0]

    def constant(self, value: Any, dtype: Any = None) -> str:
        """Return the name of a constant, which is stored once."""
        from onnx import numpy_helper

        array = np.asarray(value, dtype)
        key = array.shape, array.dtype.str, array.tobytes()
        if key not in self._constants:
            name = f"constant_{len(self._constants)}"
            self._constants[key] = name
            self.initializers.append(numpy_helper.from_array(array, name))
        return self._constants[key]

    def integers(self, *values: int) -> str:
        """Return the name of a constant vector of integers, such as a shape."""
        return self.constant(values, np.int64)

    def cast(self, x: str, dtype: np.dtype) -> str:
        """Convert a value to a type."""
        return self.op("Cast", x, to=onnx_type(dtype))


def onnx_type(dtype: np.dtype) -> int:
    """Return the number by which ONNX knows a type."""
    from onnx import helper

    return helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
