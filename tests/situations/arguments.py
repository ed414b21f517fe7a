"""Counts, coordinates, action ranges, and batches."""

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
from counts import COUNTS
from jax import lax
from zoo.agents import AGENTS, init

from eqsim import Generalized, load_mjcf, Positional, Spring
from eqsim.testing import probes
from eqsim_zoo import blocks
from eqsim_zoo.runs.members import members_of


COMPILED = "length", "checkpoint_every"
"""Counts of functions that compile a program for each number."""


def outcome(make, *args) -> Any:
    """Return the result, or the kind and the text of the error."""
    try:
        return make(*args)
    except (TypeError, ValueError) as error:
        return type(error), str(error)


def count(rng) -> None:
    """A count is an integer, of Python or NumPy; anything else is refused by name."""
    name = str(rng.choice([*COUNTS]))
    make, number = COUNTS[name], int(rng.integers(1, 7))
    if name not in COMPILED:
        kind = rng.choice([np.int8, np.int32, np.int64, np.uint16])
        one, other = outcome(make, number), outcome(make, kind(number))
        assert bool(eqx.tree_equal(one, other)), (name, number, kind, one, other)
    wrong = [float(number), number + 0.5, np.float32(number), True, str(number)]
    wrong += [jnp.asarray(number), np.nan, np.inf, [number], 0.1 * number / 0.1]
    given = wrong[rng.integers(len(wrong))]
    if name == "TimeLimit.length" and isinstance(given, jax.Array):
        given = given + 0.5  # A batch of lengths is an array of integers.
    found = outcome(make, given)
    words = f"`{name.split(',')[0]}` must be an integer of at least "
    assert isinstance(found, tuple) and found[0] is ValueError, (name, given, found)
    assert words in found[1], (name, given, found)


BALL = """
<mujoco><option timestep=".002"/><worldbody><body><joint name="x" type="slide" axis="1 0 0"/>
  <joint name="y" axis="0 1 0"/><geom size=".1" mass="1" pos=".1 0 0"/></body></worldbody>
  <actuator><motor joint="y" ctrlrange="-1 1"/></actuator></mujoco>"""
PIPELINES = Generalized(), Positional(), Spring()


@functools.cache
def ball():
    return load_mjcf(BALL)


@eqx.filter_jit
def _moved(pipeline, sys, state, ctrl):
    step = lambda now, _: (pipeline.step(sys, now, ctrl), None)
    return lax.scan(step, state, None, 3)[0].q


FORMS = {
    "list": lambda x: x.tolist(),
    "tuple": lambda x: tuple(x.tolist()),
    "numpy": np.asarray,
    "jax": jnp.asarray,
    "single": lambda x: jnp.asarray(x, jnp.float32),
    "numpy single": lambda x: np.asarray(x, np.float32),
    "half": lambda x: jnp.asarray(x, jnp.float16),
    "integers": lambda x: np.floor(x).astype(np.int64),
    "too many": lambda x: np.append(x, 0.0),
    "text": lambda x: np.array([str(y) for y in x]),
    "complex": lambda x: jnp.asarray(x, complex),
}
ACCEPTED = {"numpy", "jax", "single", "numpy single", "half"}


def coordinates(rng) -> None:
    """Coordinates, velocities and controls of any precision are converted to that of the
    robot; anything else is refused by name."""
    pipeline, sys = PIPELINES[rng.integers(3)], ball()
    exact = rng.integers(-2, 3, 5) / 4.0
    exact = dict(zip(("q", "qd", "ctrl"), np.split(exact, [2, 4])))
    forms = {name: str(rng.choice([*FORMS])) for name in exact}
    if forms["ctrl"] == "text":
        forms["ctrl"] = "complex"  # `_moved` is compiled, and JAX refuses text before.
    if rng.random() < 0.5:
        forms = {name: str(rng.choice([*ACCEPTED])) for name in exact}
    given = {name: FORMS[form](exact[name]) for name, form in forms.items()}

    def moved(q, qd, ctrl):
        return _moved(pipeline, sys, pipeline.init(sys, q, qd), ctrl)

    found = outcome(lambda: moved(**given))
    if isinstance(found, tuple):
        wrong = [name for name, form in forms.items() if form not in ACCEPTED]
        assert any(f"`{name}`" in found[1] for name in wrong), (forms, found)
        return
    assert {*forms.values()} <= ACCEPTED, (forms, found)
    expected = moved(*map(jnp.asarray, exact.values()))
    assert found.dtype == expected.dtype, (forms, found.dtype)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12, err_msg=str(forms))


@functools.cache
def training_env():
    return blocks.training_env(probes.point_mass(), 5, 0, jr.key(0))


def action_range(rng) -> None:
    """An agent refuses a range, by the name of the actuator, or acts within it."""
    name = str(rng.choice([*AGENTS]))
    agent, env = AGENTS[name], training_env()
    ends = np.array([-np.inf, -3e38, -1.0, 0.0, 1.0, 3e38, np.inf, np.nan])
    span = rng.choice(ends, 2) if rng.random() < 0.7 else rng.normal(size=2)
    if rng.random() < 0.3:
        span = np.sort(span)
    where = lambda env: env.sys.actuators.ctrl_range
    env = eqx.tree_at(where, env, where(env).at[0].set(jnp.asarray(span)))
    found = outcome(lambda: members_of(agent, 0, 1).skeleton(env))
    infinite = np.isinf(span).any() and span[0] < span[1]
    with np.errstate(all="ignore"):
        scalable = bool(0.0 < span[1] - span[0] < np.inf)
    accepted = scalable or ("ppo" in name and infinite)
    if not accepted:
        assert isinstance(found, tuple) and found[0] is ValueError, (name, span, found)
        assert "actuator 'x'" in found[1], (name, span, found)
        return
    assert not (isinstance(found, tuple) and found[0] is ValueError), (name, found)
    action = agent.act(_state(name, env), rng.normal(size=4), key=jr.key(0))
    low, high = span
    assert np.isfinite(action).all(), (name, span, action)
    assert low - 1e-9 <= action[0] <= high + 1e-9, (name, span, action)


def _state(name: str, env=None):
    return init(AGENTS[name], jr.key(0), training_env() if env is None else env)


@functools.cache
def _usual(name: str):
    return _state(name)


def batch_of_observations(rng) -> None:
    """Actions of a batch are those of its rows, with keys those of the keys of rows."""
    name = str(rng.choice([*AGENTS]))
    agent, state = AGENTS[name], _usual(name)
    batch = tuple(int(n) for n in rng.integers(0, 4, rng.integers(4)))
    obs = rng.normal(size=(*batch, 4)) * 10.0 ** rng.integers(-2, 3)
    given = (jnp.asarray, np.asarray)[rng.integers(2)]
    key = jr.key(int(rng.integers(99))) if rng.random() < 0.5 else None
    found = agent.act(state, given(obs), key=key)
    assert found.shape == (*batch, 2), (name, batch, found.shape)
    rows = obs.reshape(-1, 4)
    keys = [key] if key is not None and not batch else None
    keys = jr.split(key, len(rows)) if key is not None and batch else keys
    each = [
        agent.act(state, jnp.asarray(row), key=None if keys is None else keys[k])
        for k, row in enumerate(rows)
    ]
    expected = np.array(each).reshape(found.shape)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
    stacked = jtu.tree_map(lambda x: jnp.stack([x, x]) if eqx.is_array(x) else x, state)
    refused = outcome(lambda: agent.act(stacked, given(obs)))
    assert isinstance(refused, tuple) and "one member" in refused[1], (name, refused)


@eqx.filter_jit
def _step(pipeline, sys, q, ctrl):
    return pipeline.step(sys, pipeline.init(sys, q, jnp.ones_like(q)), ctrl).q


def batch_of_states(rng) -> None:
    """A batch of steps, of any rank, with robots that differ or not, equals its rows."""
    pipeline, sys = PIPELINES[rng.integers(3)], ball()
    batch = tuple(int(n) for n in rng.integers(1, 4, rng.integers(1, 3)))
    q, ctrl = rng.normal(size=(*batch, 2)), rng.normal(size=(*batch, 1))
    mass = rng.uniform(0.5, 2.0, (*batch, *sys.links.mass.shape))
    where = lambda s: s.links.mass
    step = lambda q, ctrl, mass: _step(pipeline, eqx.tree_at(where, sys, mass), q, ctrl)
    mapped = step
    for _ in batch:
        mapped = jax.vmap(mapped)
    found = mapped(*map(jnp.asarray, (q, ctrl, mass)))
    for index in np.ndindex(*batch):
        args = (jnp.asarray(x[index]) for x in (q, ctrl, mass))
        np.testing.assert_allclose(found[index], step(*args), rtol=1e-9, atol=1e-12)
