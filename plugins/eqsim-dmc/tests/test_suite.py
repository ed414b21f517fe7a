"""Beside dm_control: models, starts, observations and rewards."""

import inspect

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jax.test_util import check_grads

import eqsim


pytest.importorskip("dm_control")

import eqsim_dmc
from _dm_control import flat, ours, programs, stacked, TASKS, Theirs
from eqsim_dmc import RandomGains


slow = pytest.mark.slow
# With and without contacts, with drawn targets and gains, and sparse rewards.
QUICK = "cartpole_swingup_sparse cheetah_run point_mass_hard reacher_easy".split()
NAMES = [
    name if name.removeprefix("dmc_") in QUICK else pytest.param(name, marks=slow)
    for name in TASKS
]


def task_of(env):
    """The task inside of what draws targets or gains."""
    if isinstance(env, eqsim.DomainRandomization | RandomGains):
        return env.env
    return env


def close(ours, theirs, tolerance=1e-8):
    np.testing.assert_allclose(ours, theirs, tolerance, tolerance)


TRACED = "manipulator", "quadruped", "stacker", "humanoid_CMU"
FIRST = {domain: name for name, (domain, _) in reversed(TASKS.items())}.values()
INTERFACES = [
    n
    if n in FIRST and not n.removeprefix("dmc_").startswith(TRACED)
    else pytest.param(n, marks=slow)
    for n in TASKS
]


def test_all_tasks_are_made():
    """Each name makes a task whose control step and range are those of the suite."""
    for name in TASKS:
        env, theirs = eqsim.make(name), Theirs(name)
        assert float(env.dt) == pytest.approx(theirs.env.control_timestep()), name
        close(env.action_range, theirs.action_range, 0.0)


def test_options_of_presets():
    """Numbers of a preset are options with its default; what defines it is none."""
    options = inspect.signature(eqsim_dmc.walker_run).parameters
    assert options["speed"].default == 8.0 and options["sys"].default is None
    assert float(eqsim.make("dmc_walker_run", speed=3.0).speed) == 3.0
    for name, option in (("cartpole_balance", "swing_up"), ("walker_run", "sped")):
        with pytest.raises(TypeError, match=f"no option '{option}'.* Options: sys"):
            eqsim.make(f"dmc_{name}", **{option: False})
    with pytest.raises(TypeError, match="no option 'sparse'"):
        eqsim_dmc.acrobot_swingup_sparse(sparse=False)


@pytest.mark.parametrize("name", INTERFACES)
def test_interface(name):
    """Control step, range of actions, and names and sizes of the parts seen."""
    env, theirs = eqsim.make(name), Theirs(name)
    assert float(env.dt) == pytest.approx(theirs.env.control_timestep())
    close(env.action_range, theirs.action_range, 0.0)
    task, parts = task_of(env), theirs.reset()
    state, action = task.pipeline.init(task.sys), jnp.zeros(task.sys.nu)
    sizes = lambda parts: [(name, part.shape) for name, part in parts.items()]
    # JAX sorts the keys of what a traced function returns; here they are as they were.
    seen = []
    jax.eval_shape(lambda *args: seen.extend(sizes(task.parts(*args))), state, action)
    assert seen == sizes(parts)


@pytest.mark.parametrize("name", NAMES)
def test_step(name):
    """Observation of a start; observation and reward of steps from states on the way;
    with actions beyond the range in some."""
    rng, count = np.random.default_rng(0), 5
    starts, actions, seen, reports = [], [], [], []
    for seed in range(count):
        theirs = Theirs(name, seed)
        theirs.reset()
        for _ in range(8 * seed):
            theirs.step(theirs.draw_action(rng))
        start = theirs.state()
        starts.append(start)
        seen.append(flat(theirs.place(start.q, start.qd, start.act)))
        actions.append(theirs.draw_action(rng) * (1.0 + 0.5 * (seed % 2)))
        parts, reward = theirs.step(actions[-1])
        reports.append((flat(parts), reward))
    begin, step = programs(ours(name))
    state, first = begin(stacked(starts))
    _, timestep = step(state, jnp.asarray(np.stack(actions)))
    for k in range(count):
        close(first.obs[k], seen[k])
        close(timestep.obs[k], reports[k][0])
        close(timestep.reward[k], reports[k][1])
    close(timestep.terms["task"], timestep.reward, 0.0)
    assert not np.any(timestep.terminated | timestep.truncated | timestep.first)
    assert np.all(first.first) and not np.any(first.reward)


SUCCESS = {
    "dmc_acrobot_swingup_sparse": ([0.03, 0.05], [1.0, 0.5]),
    "dmc_ball_in_cup_catch": ([0.01, 0.02, 0.02, 0.36], [0.01, 0.02, 0.02, 0.4]),
    "dmc_cartpole_balance_sparse": ([0.2, 0.08], [0.26, 0.08]),
    "dmc_humanoid_CMU_stand": (
        [0, 0, 1.2, 0.7, 0.72, 0.02, 0, *[0.05] * 56],
        [0, 0, 0.9, 0.7, 0.3, 0.02, 0, *[0.05] * 56],
    ),
    "dmc_pendulum_swingup": ([0.13], [0.3]),
    "dmc_point_mass_easy": ([0.01, 0.012], [0.04, 0.0]),
    "dmc_hopper_stand": ([0, 0, 0, 0, 0, 0.1, 0], [0, 0, 0, 0, -2.5, 2.5, 0]),
    "dmc_quadruped_escape": (
        [20, -18, 1, 1, 0.1, 0, 0, *[0] * 16],
        [9, 5, 1, 1, 0.1, 0.5, 0, *[0] * 16],
    ),
    "dmc_walker_run": ([0.1, 0, 0.1, 0, 0, 0, 0, 0, 0], [-0.4, 0, 2, 0, 0, 0, 0, 0, 0]),
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=slow)
        if n in ("dmc_quadruped_escape", "dmc_humanoid_CMU_stand")
        else n
        for n in SUCCESS
    ],
)
def test_reward_of_poses(name):
    """Of a pose that earns more, and one that earns less, which random actions may never
    come to."""
    task, theirs, got = task_of(eqsim.make(name)), Theirs(name), []

    @jax.jit
    def reward(q, qd, action):
        return task.reward(task.pipeline.init(task.sys, q, qd), action)

    theirs.reset()
    for pose in SUCCESS[name]:
        for scale in (0.0, 0.5, 3.0):
            q, qd = np.asarray(pose, float), scale * np.ones(theirs.model.nv)
            theirs.place(q, qd, np.zeros(theirs.model.na))
            action = np.full(theirs.model.nu, 0.3 * scale)
            theirs.task.before_step(action, theirs.physics)
            got.append(float(theirs.task.get_reward(theirs.physics)))
            close(reward(*map(jnp.asarray, (q, qd, action))), got[-1], 1e-12)
    assert max(got[:3]) > 0.4 and min(got[3:]) < max(got[:3])


@eqx.filter_jit
def earned(task, q, qd):
    """The reward of a task in a state, without action."""
    state = task.pipeline.init(task.sys, q, qd)
    return task.reward(state, jnp.zeros(task.sys.nu))


def test_target():
    """Reached if the fingertip touches it, with either radius."""
    for name, radius in (("dmc_reacher_easy", 0.05), ("dmc_reacher_hard", 0.015)):
        task, theirs = eqsim.make(name).env, Theirs(name)
        theirs.reset()
        pos = task.sys.geoms.pos
        target = theirs.state().numbers.reshape(pos.shape)
        target = target[task.sys.geoms.names.index("target")]
        sys = eqx.tree_at(
            lambda s: s.geoms.pos,
            task.sys,
            pos.at[task.sys.geoms.names.index("target")].set(target),
        )
        task, values = eqx.tree_at(lambda t: t.sys, task, sys), []
        for gap in (-0.012, -0.008, 0.008, 0.012):
            # The elbow that brings the tip to this distance from the origin.
            away = np.linalg.norm(target[:2])
            far = away + (radius + gap) * (-1.0 if away > 0.1 else 1.0)
            bend = np.arccos((far**2 - 0.12**2 - 0.12**2) / (2 * 0.12 * 0.12))
            turn = np.arctan2(target[1], target[0]) - bend / 2
            q = np.array([turn, bend])
            theirs.place(q, np.zeros(2))
            values.append(float(theirs.task.get_reward(theirs.physics)))
            found = earned(task, jnp.asarray(q), jnp.zeros(len(q)))
            close(found, values[-1])
        assert set(values) == {0.0, 1.0}


def test_spinner():
    """The tip is in the target or beside it, and the hinge fast enough or not."""
    for name in ("dmc_finger_turn_easy", "dmc_finger_turn_hard"):
        task, theirs, values = eqsim.make(name).env, Theirs(name), []
        theirs.reset()
        pos = jnp.asarray(theirs.state().numbers).reshape(task.sys.sites.pos.shape)
        task = eqx.tree_at(lambda t: t.sys.sites.pos, task, pos)
        x, _, z = pos[task.sys.sites.names.index("target")]
        for turn in (-0.6, -0.3, -0.1, 0.0, 0.2, 0.4, 0.7):
            hinge = turn - np.arctan2(x - 0.2, z - 0.4)
            q = np.array([-1.0, 0.5, hinge])
            theirs.place(q, np.zeros(3))
            values.append(float(theirs.task.get_reward(theirs.physics)))
            found = earned(task, jnp.asarray(q), jnp.zeros(len(q)))
            close(found, values[-1])
        assert set(values) == {0.0, 1.0}
    task, theirs, values = eqsim.make("dmc_finger_spin"), Theirs("dmc_finger_spin"), []
    theirs.reset()
    for speed in (-20.0, -15.0, -14.9, 20.0):
        q, qd = np.array([-1.0, 0.5, 0.0]), np.array([0.0, 0.0, speed])
        theirs.place(q, qd)
        values.append(float(theirs.task.get_reward(theirs.physics)))
        close(earned(task, jnp.asarray(q), jnp.asarray(qd)), values[-1])
    assert values == [1.0, 1.0, 0.0, 0.0]


QUICK_STARTS = "ball_in_cup_catch cartpole_balance fish_swim".split()
QUICK_STARTS += "point_mass_hard reacher_easy swimmer_swimmer6".split()
STARTS = [
    n if n.removeprefix("dmc_") in QUICK_STARTS else pytest.param(n, marks=slow)
    for n in TASKS
]


@pytest.mark.parametrize("name", STARTS)
def test_starts_are_drawn_alike(name):
    """The distribution of each number of a start, by Kolmogorov and Smirnov."""
    # A cheetah settles for 200 steps; the suite loads a model for each set of springs.
    few = name.startswith(("dmc_cheetah", "dmc_lqr"))
    count = 60 if few else 300
    theirs, env, drawn = Theirs(name, 0, refreshed=False), ours(name), []
    # Of a terrain, some heights.
    every = 1009 if name == "dmc_quadruped_escape" else 1
    for seed in range(count):
        if name.startswith("dmc_lqr"):
            theirs = Theirs(name, seed, refreshed=False)
        theirs.reset()
        *start, numbers = theirs.state()
        drawn.append(np.concatenate([*start, np.ravel(numbers)[::every]]))

    def start(key):
        state = env.reset(key)[0]
        numbers = []
        if isinstance(env, eqsim.DomainRandomization):
            numbers = [env.context(state)[::every]]
        if name == "dmc_point_mass_easy":
            numbers = [jnp.eye(2).ravel()]
        if isinstance(env, RandomGains):
            numbers = [state.gains.ravel()]
        robot = env.physics(state)
        return jnp.concatenate([robot.q, robot.qd, robot.act, *numbers])

    options = {"xla_backend_optimization_level": 0}
    many = jax.jit(jax.vmap(start), compiler_options=options)
    mine = np.asarray(many(jr.split(jr.key(0), 3 * count)))
    limit = 1.95 * np.sqrt((1 + 1 / 3) / count)
    for a, b in zip(mine.T, np.stack(drawn).T, strict=True):
        values = np.sort(np.concatenate([a, b]))
        share = lambda x: np.searchsorted(np.sort(x), values + 1e-12) / len(x)
        assert np.max(np.abs(share(a) - share(b))) < limit


def test_gains_are_not_parallel():
    """Whatever is drawn, each control has a direction of its own."""
    env = eqsim.make("dmc_point_mass_hard")
    gains = jax.jit(jax.vmap(lambda key: env.reset(key)[0].gains))(
        jr.split(jr.key(0), 500)
    )
    close(jnp.sum(gains**2, axis=2), 1.0, 1e-12)
    parallel = np.abs(np.sum(gains[:, 0] * gains[:, 1], axis=1))
    assert np.max(parallel) <= 0.9 + 1e-12 and np.max(parallel) > 0.85


@pytest.mark.parametrize(
    "name", ["dmc_acrobot_swingup", pytest.param("dmc_walker_run", marks=slow)]
)
def test_gradient_of_reward(name):
    """By coordinates, velocities and masses, where it is smooth."""
    task, rng = eqsim.make(name), np.random.default_rng(0)
    q, qd = (jnp.asarray(0.3 * rng.normal(size=task.sys.nv)) for _ in range(2))
    # Off the target, and as fast as is rewarded in part.
    q, qd = q + 0.3, qd + 5.0

    @jax.jit
    def reward(q, qd, factor):
        heavier = lambda t: t.sys.links.mass
        other = eqx.tree_at(heavier, task, heavier(task) * factor)
        return other.reward(
            other.pipeline.init(other.sys, q, qd), jnp.zeros(task.sys.nu)
        )

    factor = jnp.asarray(rng.uniform(0.5, 1.5, task.sys.nlink))
    check_grads(reward, (q, qd, factor), order=1, modes=("fwd", "rev"), rtol=1e-5)
    assert np.max(np.abs(jax.grad(reward)(q, qd, factor))) > 1e-3


@slow
@pytest.mark.parametrize("name", ["dmc_cartpole_balance", "dmc_point_mass_hard"])
def test_gradient_of_return(name):
    """By actions and by masses, against differences."""
    env = eqsim.make(name)
    start = {"q": jnp.asarray([0.02, 0.015]), "qd": jnp.asarray([0.1, -0.2])}
    state, _ = env.reset(jr.key(3), start)

    @jax.jit
    def earned(actions, factor):
        heavier = lambda e: task_of(e).sys.links.mass
        other = eqx.tree_at(heavier, env, heavier(env) * factor)
        step = lambda s, a: (lambda pair: (pair[0], pair[1].reward))(other.step(s, a))
        return jnp.sum(eqsim.scan(step, state, actions)[1])

    actions = 0.3 * jr.normal(jr.key(0), (5, env.sys.nu))
    point = actions, jnp.ones(())
    found = jax.grad(earned, argnums=(0, 1))(*point)
    direction = jr.normal(jr.key(1), actions.shape), jnp.asarray(0.7)
    inner = lambda a, b: jnp.sum(a[0] * b[0]) + a[1] * b[1]
    move = lambda h: earned(*(x + h * d for x, d in zip(point, direction)))
    expected = (move(1e-5) - move(-1e-5)) / 2e-5
    close(inner(found, direction), expected, 1e-6)
    _, forward = jax.jvp(earned, point, direction)
    close(forward, expected, 1e-6)
    assert abs(float(expected)) > 1e-6


def test_rollout():
    """Through the loop of eqsim, with the time limit of the suite."""
    env = eqsim.TimeLimit(eqsim.make("dmc_reacher_hard"), 1000)
    keep = lambda state, action, timestep: (timestep.reward, timestep.truncated)
    policy = lambda obs, key: jnp.ones(2)
    rewards, truncated = eqsim.rollout(env, policy, jr.key(0), 1000, collect=keep)[0]
    assert truncated[-1] and not np.any(truncated[:-1])
    assert set(np.unique(rewards)) <= {0.0, 1.0}
