"""`eqsim.rollout`: the only loop over `env.step`."""

import os
import subprocess
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from helpers import check_gradients, tree_allclose
from toys import Rail

import eqsim


# Two masses, a spring between them, and a motor on the first: it compiles at once.
ENV = Rail(motors=1, spring=5.0, edge=0.3)
MASSES = lambda env: env.sys.links.mass
# As the `in_axes` of `eqx.filter_vmap`: the masses have an axis of environments.
MASS_AXES = eqx.tree_at(
    MASSES, jax.tree.map(lambda _: None, ENV), 0, is_leaf=lambda x: x is None
)


class Gains(eqx.Module):
    """A linear policy with noise."""

    gains: jax.Array
    noise: float = 0.1

    def __call__(self, obs, key):
        return (self.gains @ obs + self.noise * jr.normal(key, ()))[None]


POLICY = Gains(jnp.array([0.1, 0.5, 0.2, 0.1]))


@pytest.fixture(scope="module")
def fleet():
    """Pendulums of different masses."""
    scales = jnp.array([0.8, 1.0, 1.3])
    return eqx.filter_vmap(lambda x: eqx.tree_at(MASSES, ENV, x * MASSES(ENV)))(scales)


def member(fleet, k):
    return eqx.tree_at(MASSES, ENV, MASSES(fleet)[k])


# Compiled once for all tests; one by one, a step is traced anew each time.
RESET = eqx.filter_jit(lambda env, key: env.reset(key))
BEGIN = eqx.filter_jit(lambda env, state: env.begin(state))
STEP = eqx.filter_jit(lambda env, state, action: env.step(state, action))


def by_hand(env, policy, key, length, state=None):
    """The same with a Python loop."""
    key_reset, key_policy = jr.split(key)
    now = RESET(env, key_reset) if state is None else BEGIN(env, state)
    rows = []
    for key in jr.split(key_policy, length):
        state, timestep = now
        action = policy(timestep.obs, key)
        now = STEP(env, state, action)
        rows.append((state, timestep.obs, action, now[1], jnp.array(True)))
    rows = jax.tree.map(lambda *x: jnp.stack(x), *rows)
    return eqsim.Trajectory(*rows, now, eqsim.RESULTS.successful, jnp.int32(-1))


def test_is_a_loop():
    key = jr.key(0)
    expected = by_hand(ENV, POLICY, key, 5)
    got = eqsim.rollout(ENV, POLICY, key, 5)
    assert tree_allclose(got, expected, rtol=1e-10, atol=1e-12)
    assert got.action.shape == (5, 1) and got.state.q.shape == (5, 2)
    assert np.array_equal(got.reward, got.timestep.reward)
    assert not np.allclose(got.action[0], got.action[1])


def test_given_state():
    state = ENV.pipeline.init(ENV.sys, jnp.array([0.1, 0.05]), jnp.array([0.2, 0.3]))
    got = eqsim.rollout(ENV, POLICY, jr.key(1), 4, start=ENV.begin(state))
    expected = by_hand(ENV, POLICY, jr.key(1), 4, state)
    assert tree_allclose(got, expected, rtol=1e-10, atol=1e-12)
    assert np.array_equal(got.state.q[0], state.q)


def test_keys_and_a_fleet(fleet):
    """One environment per key: of one robot, of a batch of robots, from given states."""
    keys = jr.split(jr.key(2), 3)
    one = eqsim.rollout(ENV, POLICY, keys, 4)
    many = eqsim.rollout(fleet, POLICY, keys, 4, env_axes=eqx.if_array(0))
    place = lambda q: ENV.begin(ENV.pipeline.init(ENV.sys, q))
    starts = jax.vmap(place)(0.01 * jnp.ones((3, 2)))
    given = eqsim.rollout(ENV, POLICY, keys, 4, start=starts)
    for k, key in enumerate(keys):
        at = lambda tree: jax.tree.map(lambda x: x[k], tree)
        start, _ = at(starts)
        close = lambda a, b: tree_allclose(at(a), b, rtol=1e-10, atol=1e-12)
        assert close(one, by_hand(ENV, POLICY, key, 4))
        assert close(many, by_hand(member(fleet, k), POLICY, key, 4))
        assert close(given, by_hand(ENV, POLICY, key, 4, start))
    assert not np.allclose(one.last[0].qd, many.last[0].qd, rtol=1e-6)
    assert not np.allclose(one.state.q[0], one.state.q[1])


def test_axes_of_some_leaves(fleet):
    """Only the masses carry an axis."""
    keys = jr.split(jr.key(2), 3)
    some = eqx.tree_at(MASSES, ENV, MASSES(fleet))
    got = eqsim.rollout(some, POLICY, keys, 4, env_axes=MASS_AXES)
    expected = eqsim.rollout(fleet, POLICY, keys, 4, env_axes=eqx.if_array(0))
    assert tree_allclose(got, expected, rtol=1e-10, atol=1e-12)


def test_axes_that_do_not_fit(fleet):
    keys = jr.split(jr.key(2), 4)
    with pytest.raises(
        ValueError, match=r"links.mass. has shape \(3, 2\).*`key`, \(4,\)"
    ):
        eqsim.rollout(fleet, POLICY, keys, 1, env_axes=MASS_AXES)


def test_collect():
    whole = eqsim.rollout(ENV, POLICY, jr.key(3), 4)
    keep = lambda state, action, timestep: {"q": state.q, "r": timestep.reward}
    kept, last = eqsim.rollout(ENV, POLICY, jr.key(3), 4, collect=keep)
    expected = {"q": whole.state.q, "r": whole.timestep.reward}
    assert tree_allclose((kept, last), (expected, whole.last))


def total(masses, gains, key, length=6):
    """A sum of rewards that feels every mass: far from upright, and how far."""
    env = eqx.tree_at(MASSES, ENV, masses)
    policy = eqx.tree_at(lambda p: p.gains, POLICY, gains)
    out = eqsim.rollout(env, policy, key, length)
    distance = jnp.sum(out.last[0].q ** 2) + jnp.sum(out.timestep.obs[:, 1] ** 2)
    return jnp.sum(out.timestep.reward) + distance


def test_checkpoints():
    """The same gradient in less memory."""
    key, length = jr.key(4), 4096

    def compiled(every):
        def fn(gains):
            policy = eqx.tree_at(lambda p: p.gains, POLICY, gains)
            kept, _ = eqsim.rollout(
                ENV,
                policy,
                key,
                length,
                collect=lambda state, action, timestep: timestep.obs[1],
                checkpoint_every=every,
            )
            return jnp.sum(kept[:20] ** 2)

        return jax.jit(jax.grad(fn)).lower(POLICY.gains).compile()

    whole, less = compiled(None), compiled(64)
    assert tree_allclose(less(POLICY.gains), whole(POLICY.gains), rtol=1e-9)
    taken = [fn.memory_analysis().temp_size_in_bytes for fn in (whole, less)]
    assert taken[1] < taken[0] / 2
    with pytest.raises(ValueError, match="must divide the length 4096.*instance 64"):
        eqsim.rollout(ENV, POLICY, key, length, checkpoint_every=11)


def test_gradient():
    masses, key = MASSES(ENV), jr.key(4)
    fn = lambda masses, gains: total(masses, gains, key)
    largest = check_gradients(fn, masses, POLICY.gains)
    assert all(x > 0 for x in largest.values())
    # Inside another transformation it is an ordinary function.
    value = eqx.filter_jit(total)(masses, POLICY.gains, key)
    np.testing.assert_allclose(value, total(masses, POLICY.gains, key), rtol=1e-12)


def test_compiled_once():
    traces = 0

    def policy(obs, key):
        nonlocal traces
        traces += 1
        return 0.1 * obs[:1]

    eqsim.rollout(ENV, policy, jr.key(0), 3)
    first = traces
    heavier = eqx.tree_at(MASSES, ENV, 2.0 * MASSES(ENV))
    eqsim.rollout(heavier, policy, jr.key(1), 3)
    eqsim.rollout(Rail(motors=1, spring=5.0, edge=0.3), policy, jr.key(1), 3)
    assert traces == first > 0


def nothing(obs, key):
    return jnp.zeros(1)


def not_a_number(obs, key):
    return jnp.where(obs[:1] > -jnp.inf, jnp.nan, 0.0)


@pytest.mark.parametrize("shape", ((), (2,)), ids=("one", "batch"))
def test_older_keys(shape):
    """`PRNGKey` and `key` of one seed draw the same numbers, here and in `reset`."""
    split = lambda key: jr.split(key, shape) if shape else key
    run = lambda key: eqsim.rollout(ENV, POLICY, key, 3)
    assert tree_allclose(
        run(split(jr.PRNGKey(1))), run(split(jr.key(1))), rtol=0, atol=0
    )
    assert tree_allclose(
        RESET(ENV, jr.PRNGKey(1)), RESET(ENV, jr.key(1)), rtol=0, atol=0
    )


def test_wrong_calls():
    with pytest.raises(
        ValueError, match="`length` must be an integer of at least 1, got 0"
    ):
        eqsim.rollout(ENV, nothing, jr.key(0), 0)
    with pytest.raises(ValueError, match=r"`action`.*\(nu,\) = \(1,\).*\(3,\)"):
        eqsim.rollout(ENV, lambda obs, key: obs[:3], jr.key(0), 1)
    state, timestep = ENV.reset(jr.key(0))
    with pytest.raises((TypeError, ValueError), match="start"):
        eqsim.rollout(ENV, nothing, jr.key(0), 1, start=state)  # pyright: ignore
    keys = jr.split(jr.key(0), 2)
    with pytest.raises(ValueError, match=r"timesteps of shape \(\).*shape \(2,\)"):
        eqsim.rollout(ENV, nothing, keys, 1, start=(state, timestep))
    with pytest.raises(ValueError, match="one key runs one environment"):
        eqsim.rollout(ENV, nothing, jr.key(0), 1, env_axes=eqx.if_array(0))
    heavy = eqx.tree_at(MASSES, ENV, jnp.array([jnp.nan, 1.0]))
    with pytest.raises(ValueError, match="mass"):
        eqsim.rollout(heavy, nothing, jr.key(0), 1)


GEAR = ENV.sys.actuators.gear


class Fragile(eqx.Module):
    """Forces that become NaN, or huge, at a step of its own for each start."""

    factor: float

    def __call__(self, obs, key):
        far = jnp.abs(obs[:1]) > 0.5
        return jnp.where(far, self.factor, 10.0 * jnp.sign(obs[:1]))


def test_not_finite():
    with pytest.raises(FloatingPointError, match="^At step 0: An action is NaN"):
        eqsim.rollout(ENV, not_a_number, jr.key(0), 2)
    with pytest.raises(
        FloatingPointError, match="In 2 of 2 environments, first in 0 at"
    ):
        eqsim.rollout(ENV, not_a_number, jr.split(jr.key(0), 2), 2)
    out = eqsim.rollout(ENV, not_a_number, jr.key(0), 2, throw=False)
    assert np.all(np.isnan(out.last[0].q)) and np.all(out.timestep.terminated)
    assert out.result == eqsim.RESULTS.nonfinite_action and int(out.failed_step) == 0


@pytest.mark.slow
def test_first_failing_step():
    """Of many environments the one that failed first, and when."""
    keys, nan = jr.split(jr.key(1), (2, 3)), float("nan")
    out = eqsim.rollout(ENV, Fragile(nan), keys, 40, throw=False)
    finite = np.all(np.isfinite(out.action), axis=-1)
    first = np.where(finite.all(-1), -1, np.argmin(finite, axis=-1))
    assert np.array_equal(out.failed_step, first) and np.max(first) > 0
    step = np.min(first[first >= 0])
    index = tuple(int(k) for k in np.argwhere(first == step)[0])
    with pytest.raises(FloatingPointError) as error:
        eqsim.rollout(ENV, Fragile(nan), keys, 40)
    assert f"first in {index} at step {step}: An action" in str(error.value)
    # A force that is too large makes the state overflow, not the action.
    strong = eqx.tree_at(lambda env: env.sys.actuators.gear, ENV, GEAR * 1e308)
    with pytest.raises(FloatingPointError, match="A state became NaN.*reduce `sys.dt`"):
        eqsim.rollout(strong, Fragile(1.0), keys, 40)


def test_report_that_is_not_finite():
    class Broken(Rail):
        def rewards(self, state, action, new):
            return {"place": jnp.log(-jnp.abs(new.q[0]))}

    with pytest.raises(
        FloatingPointError, match="At step 0: A reward or an observation"
    ):
        eqsim.rollout(Broken(motors=1), nothing, jr.key(0), 2)


def test_stop():
    """An environment stands still once the condition is met."""
    keys = jr.split(jr.key(6), 4)
    whole = eqsim.rollout(ENV, POLICY, keys, 60)
    out = eqsim.rollout(ENV, POLICY, keys, 60, stop=lambda timestep: timestep.done)
    ended = np.asarray(whole.timestep.terminated)
    last = np.where(ended.any(-1), np.argmax(ended, axis=-1), 59)
    expected = np.arange(60)[None] <= last[:, None]
    assert np.array_equal(out.valid, expected) and not np.all(expected)
    valid = np.asarray(out.valid)
    close = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14)
    close(out.state.q[valid], whole.state.q[valid])
    for k in range(4):
        after = int(last[k]) + 1
        if after < 60:
            close(out.last[0].q[k], whole.state.q[k, after])
    episodes = out.episodes()
    assert np.array_equal(np.sum(episodes.ended, axis=-1), ended.any(-1))
    assert np.array_equal(np.max(episodes.length, axis=-1), last + 1)


@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
@pytest.mark.quick_cases("shape0")
def test_going_on(shape):
    """Two rollouts, the second from where the first ended, or one with a bar."""
    key = jr.split(jr.key(8), shape) if shape else jr.key(8)
    run = lambda **options: eqsim.rollout(ENV, POLICY, key, 6, **options)
    whole, shown = run(), run(progress=True)
    assert tree_allclose(shown, whole, rtol=1e-12, atol=1e-14)
    next_ = run(start=whole.last)
    first = jax.tree.map(lambda x: x[..., 0, :], next_.state.q)
    assert np.array_equal(first, whole.last[0].q)
    assert whole.state.q.shape == (*shape, 6, 2)


PROGRAM = """
import jax, sys
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_num_cpu_devices", int(sys.argv[1]))
import equinox as eqx, jax.numpy as jnp, jax.random as jr, numpy as np, eqsim

env = eqsim.make(sys.argv[3])
scales = jnp.linspace(0.8, 1.3, 4)
masses = jax.vmap(lambda x: x * env.sys.links.mass)(scales)
where = lambda env: env.sys.links.mass
none = jax.tree.map(lambda _: None, env)
axes = eqx.tree_at(where, none, 0, is_leaf=lambda x: x is None)
fleet = eqx.tree_at(where, env, masses)
policy = lambda obs, key: 0.1 * jr.normal(key, (1,))
run = lambda env, **options: eqsim.rollout(env, policy, jr.split(jr.key(0), 4), 5,
    **options).last[0].q
shared = run(env)
assert len(shared.devices()) == int(sys.argv[1]), shared.devices()
place = lambda q: env.begin(env.pipeline.init(env.sys, q))
states, reports = jax.vmap(place)(0.01 * jnp.ones((4, env.sys.nq)))
out = [shared, run(fleet, env_axes=axes), run(env, start=(states, reports))]

# As one writes it by hand, with the states spread over the devices.
mesh = jax.make_mesh((len(jax.devices()),), ("batch",), (jax.sharding.AxisType.Auto,))
spec = jax.sharding.PartitionSpec("batch")
args = jax.device_put(
    (states, jnp.linspace(-1.0, 1.0, 4)[:, None]), jax.sharding.NamedSharding(mesh, spec)
)


def loss(masses, states, actions):
    one = lambda *xs: eqx.tree_at(where, env, masses).step(*xs)[0]
    new = eqx.filter_vmap(one)(states, actions)
    return jnp.sum(new.q**2) + jnp.sum(new.qd**2), new.q


grad = jax.jit(jax.grad(loss, (0, 2), has_aux=True))
(by_mass, by_action), q = grad(where(env), *args)
assert len(q.devices()) == len(by_action.devices()) == len(jax.devices())
out += [q, by_action + 0 * q, by_mass[None] + 0 * q]

# A product with the Hessian, and robots that lie on one device beside states on all.
bend = jax.jit(lambda m, v: jax.jvp(lambda m: grad(m, *args)[0][0], (m,), (v,))[1])
own = jax.jit(lambda masses, states, actions: jax.vmap(
    lambda m, s, u: eqx.tree_at(where, env, m).step(s, u)[0].q)(masses, states, actions))
out += [bend(where(env), jnp.ones_like(where(env)))[None] + 0 * q, own(masses, *args)]
np.save(sys.argv[2], np.stack(out))
"""


@pytest.mark.slow  # tests/zoo/test_parallel.py is the quick one with several devices.
@pytest.mark.parametrize("name", ["point_mass", "inverted_pendulum"])
def test_devices(name, tmp_path):
    """Two devices share the work, and give what one gives, also under plain `jit`."""
    out = []
    for count in ("1", "2"):
        file = tmp_path / f"{count}.npy"
        command = [sys.executable, "-c", PROGRAM, count, str(file), name]
        done = subprocess.run(command, env=os.environ, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        out.append(np.load(file))
    np.testing.assert_allclose(out[0], out[1], rtol=1e-12)
    assert not np.allclose(out[0][0], out[0][1], rtol=1e-6)
