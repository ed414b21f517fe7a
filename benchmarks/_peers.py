"""The same simulation in eqsim and other simulators.

A `Peer` is created for one robot. `prepare` converts states and controls, and returns
`run`: `run(n)` takes `n` control steps from the initial states and returns the last
coordinates, `(batch, nq)`.
"""

import os
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import mujoco
import mujoco.rollout
import numpy as np
from _driven import Driven, nothing
from _models import model_file, mujoco_model, NotInstalled, package
from _starts import Start, SUBSTEPS
from jax import lax
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import eqsim


Run = Callable[[int], Any]


class Peer(NamedTuple):
    """A simulator with its settings.

    `fixed`: true if `run` supports only the full length; `alone`: true if it can run
    when the devices do not divide the batch.
    """

    label: str
    prepare: Callable[[Start], Run]
    fixed: bool = False
    alone: bool = True


def eqsim_rollout(sys: eqsim.System) -> Peer:
    """Run `eqsim.rollout`, on all devices."""

    def prepare(start):
        env = Driven(sys, SUBSTEPS)
        first = jax.vmap(env.begin)(_state(sys, start))

        def run(length):
            _, (last, _) = eqsim.rollout(
                env, start.policy, start.keys, length, start=first, collect=nothing
            )
            return last.q

        return run

    return Peer("eqsim", prepare, fixed=True)


def eqsim_plain(sys: eqsim.System, *, spread: bool) -> Peer:
    """Run the compiled step from Python for each control step.

    **Arguments:**

    - `spread`: true to shard the states over all devices, false for one device.
    """

    def prepare(start):
        env, state = Driven(sys, SUBSTEPS), _state(sys, start)
        actions = [jnp.asarray(a, state.q.dtype) for a in start.ctrl.swapaxes(0, 1)]
        if spread:
            split = NamedSharding(_mesh(), PartitionSpec("batch"))
            state, actions = jax.device_put((state, actions), split)
        step = eqx.filter_jit(eqx.filter_vmap(env.step))

        def run(length):
            now = state
            for action in actions[:length]:
                now, _ = step(now, action)
            return now.q

        return run

    label = "eqsim, plain jit" + (", all cores" if spread else "")
    return Peer(label, prepare, alone=not spread)


def mujoco_c(model: mujoco.MjModel) -> Peer:
    """Run `mujoco.rollout` with one thread per core, with preallocated output."""
    threads = os.cpu_count() or 1
    pool = mujoco.rollout.Rollout(nthread=threads)
    data = [mujoco.MjData(model) for _ in range(threads)]

    def prepare(start):
        begin = start.mujoco(model)
        held = np.repeat(start.ctrl, SUBSTEPS, axis=1)
        outs: dict[int, np.ndarray] = {}

        def run(length):
            steps = length * SUBSTEPS
            shape = (len(begin), steps, begin.shape[1])
            out = outs.setdefault(length, np.empty(shape))
            control = np.ascontiguousarray(held[:, :steps])
            pool.rollout(model, data, begin, control, nstep=steps, state=out)
            return out

        return run

    return Peer("MuJoCo C", prepare)


def mjx(model: mujoco.MjModel, iterations: int | None = None) -> Peer:
    """Run MJX on all devices, with the iterations of the file or a given number.

    **Raises:** `NotInstalled`.
    """
    step, mjx_model, init = mjx_step(model, iterations)

    def simulate(mjx_model, q, qd, ctrl, length):
        data = jax.vmap(init)(q, qd)
        body = jax.vmap(lambda data, ctrl: step(mjx_model, data, ctrl))
        return _held(body, data, ctrl, length).qpos

    label = "MJX" if iterations is None else f"MJX ({iterations} it.)"
    return _jax_peer(label, simulate, mjx_model)


def mjx_step(model: mujoco.MjModel, iterations: int | None = None):
    """Return MJX as `step(model, data, ctrl)`, its model, and `init(q, qd)`."""
    package("mujoco.mjx")
    import mujoco.mjx

    changed = model.opt.iterations
    model.opt.iterations = changed if iterations is None else iterations
    mjx_model, empty = mujoco.mjx.put_model(model), mujoco.mjx.make_data(model)
    model.opt.iterations = changed
    step = lambda m, data, ctrl: mujoco.mjx.step(m, data.replace(ctrl=ctrl))
    return step, mjx_model, lambda q, qd: empty.replace(qpos=q, qvel=qd)


def brax(name: str) -> Peer:
    """Run Brax's generalized pipeline on all devices.

    **Raises:** `NotInstalled`.
    """
    step, sys, init = brax_step(name)

    def simulate(sys, q, qd, ctrl, length):
        state = jax.vmap(lambda q, qd: init(sys, q, qd))(q, qd)
        body = jax.vmap(lambda state, ctrl: step(sys, state, ctrl))
        return _held(body, state, ctrl, length).q

    return _jax_peer("Brax generalized", simulate, sys)


def brax_step(name: str):
    """Return Brax as `step(sys, state, ctrl)`, its system, and `init(sys, q, qd)`."""
    package("brax")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from brax.generalized import pipeline
        from brax.io import mjcf

        return pipeline.step, mjcf.load(model_file(name)), pipeline.init


def _held(body, state, ctrl, length):
    """Take control steps of `SUBSTEPS` steps each; `length` may be traced."""

    def control_step(i, state):
        now = lax.dynamic_index_in_dim(ctrl, i, axis=1, keepdims=False)
        return lax.fori_loop(0, SUBSTEPS, lambda _, state: body(state, now), state)

    return lax.fori_loop(0, length, control_step, state)


def _jax_peer(label, simulate, model):
    """Create a peer that is sharded over the devices like eqsim: each has its own
    batch."""
    split, whole = PartitionSpec("batch"), PartitionSpec()
    spread = jax.shard_map(
        simulate,
        mesh=_mesh(),
        in_specs=(whole, split, split, split, whole),
        out_specs=split,
        check_vma=False,
    )
    alone, shared = jax.jit(simulate), jax.jit(spread)
    everywhere = jax.device_put(model, NamedSharding(_mesh(), whole))

    def prepare(start):
        dtype = jnp.result_type(float)
        arrays = [jnp.asarray(x, dtype) for x in (start.q, start.qd, start.ctrl)]
        if len(start.q) % len(jax.devices()):
            return lambda length: alone(model, *arrays, jnp.asarray(length))
        return lambda length: shared(everywhere, *arrays, jnp.asarray(length))

    return Peer(label, prepare)


def _mesh():
    return jax.make_mesh((len(jax.devices()),), ("batch",), (AxisType.Auto,))


def _state(sys, start):
    dtype = sys.links.mass.dtype
    act = jnp.zeros((len(start.q), sys.na), dtype)
    q, qd = jnp.asarray(start.q, dtype), jnp.asarray(start.qd, dtype)
    return jax.vmap(eqsim.State)(q, qd, act)


def peers_of(name: str, chosen: list[str], say: Callable[[str], None]) -> list[Peer]:
    """Return the peers of the given names for a robot; missing ones are skipped with a
    message.

    **Arguments:**

    - `chosen`: names from `"mujoco"`, `"mjx"` (with the iterations of the file, and
        with one) and `"brax"`.
    - `say`: function that prints which peers are skipped.
    """
    model = mujoco_model(name, euler=True)
    makers = {
        "mujoco": [lambda: mujoco_c(model)],
        "mjx": [lambda: mjx(model), lambda: mjx(model, 1)],
        "brax": [lambda: brax(name)],
    }
    found = []
    for peer in chosen:
        try:
            found += [make() for make in makers[peer]]
        except (NotInstalled, NotImplementedError) as error:
            say(f"{name}: {peer} is left out: {error}")
    return list({peer.label: peer for peer in found}.values())
