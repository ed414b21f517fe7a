"""Tracking of motions: files, references, errors, rewards, starts."""

import dataclasses
import functools as ft

import eqsim_locomotion as loco
import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import mujoco
import numpy as np
import pytest
from eqsim_locomotion._adaptive_starts import CarriedFailures
from eqsim_locomotion._motion import find_motion
from eqsim_locomotion._rewards import about_anchor, square_angle
from small_robots import humanoid as robot

import eqsim
from eqsim.kinematics import difference, forward, integrate
from eqsim.testing import parametrize_with_checks
from eqsim.wrappers import AutoReset, deployment_of, next_options, progress_of
from eqsim_zoo import runs
from eqsim_zoo.export import MujocoRobot


@ft.cache
def task():
    """Squats of a small humanoid, without noise."""
    return loco.MotionTracking(robot(), noise={}, start_noise={})


@ft.cache
def adaptive():
    """The same, with adaptive starts."""
    return loco.AdaptiveStarts(task(), bins=4)


# One program for all tests.
step = eqx.filter_jit(lambda env, state, action: env.step(state, action))
reset = eqx.filter_jit(lambda env, key, options=None: env.reset(key, options))


def at_frame(frame, env=None):
    """The state in a frame of the reference."""
    return reset(env or task(), jr.key(0), {"start": jnp.asarray(frame, jnp.int32)})


tracking = eqx.filter_jit(lambda env, state: env.tracking(state))
links_of = eqx.filter_jit(lambda env, robot: env._links(robot))
frame_of = eqx.filter_jit(lambda motion, sys, frame: motion.at(sys, frame))


@eqx.filter_jit
def solution(env, robot):
    """The solution at the end of a control step."""
    return env.advance(robot, env.pose)[1]


# Motions.


def drawn(getkey, sys, frames=7):
    """A smooth motion at random."""
    q = loco.squats(robot(), sys).q[0]
    rates = 0.1 * jr.normal(getkey(), (frames, sys.nv))
    motion = [q]
    for rate in rates[1:]:
        motion.append(integrate(sys, motion[-1], rate))
    return jnp.stack(motion)


def save_csv(path, q):
    order = [0, 1, 2, 4, 5, 6, 3, *range(7, q.shape[1])]
    np.savetxt(path, np.asarray(q)[:, order], delimiter=",")


def test_files_are_read_as_they_were_written(getkey, tmp_path):
    sys = task().sys
    q = drawn(getkey, sys)
    save_csv(tmp_path / "a.csv", q)
    names = [*reversed(sys.joints.names[1:]), "tail"]
    columns = np.concatenate([q[:, :7], q[:, 7:][:, ::-1], q[:, :1]], axis=1)
    np.savez(tmp_path / "a.npz", q=columns, fps=30, joints=names)
    np.savez(tmp_path / "b.npz", q=q, fps=30)
    for name in ("a.csv", "a.npz", "b.npz"):
        found = loco.load_motion(tmp_path / name, sys)
        np.testing.assert_allclose(found.q, q, atol=1e-12)
        np.testing.assert_allclose(found.period, 1 / 30)
    part = loco.load_motion(tmp_path / "a.csv", sys, fps=10, start=0.2, end=0.5)
    np.testing.assert_allclose(part.q, q[2:6], atol=1e-12)


@pytest.mark.parametrize(
    "change, text",
    (
        (lambda q: q[:, :-1], r"shape \(7, 14\), expected \(frames, 15\).*8 joints"),
        (lambda q: q.at[2, 9].set(jnp.nan), "finite, got nan in frame 2, coordinate 9"),
        (lambda q: q.at[3, 3].set(2.0), "unit quaternions.*in frame 3"),
        (lambda q: q[:1], "`start` and `end`"),
    ),
)
def test_what_is_wrong_with_a_file(getkey, tmp_path, change, text):
    sys = task().sys
    q, path = change(drawn(getkey, sys)), tmp_path / "motion.npz"
    np.savez(path, q=q, fps=30)
    with pytest.raises(ValueError, match=text) as error:
        loco.load_motion(path, sys)
    assert str(path) in str(error.value)


def test_files_that_are_no_motions(getkey, tmp_path):
    sys = task().sys
    q = drawn(getkey, sys)
    load = lambda name, **options: loco.load_motion(tmp_path / name, sys, **options)
    with pytest.raises(FileNotFoundError, match="no.csv"):
        load("no.csv")
    np.savez(tmp_path / "few.npz", q=q)
    with pytest.raises(ValueError, match="few.npz has no array 'fps', only 'q'"):
        load("few.npz")
    other = ["nose", *sys.joints.names[2:]]
    np.savez(tmp_path / "other.npz", q=q, fps=30, joints=other)
    missing = sys.joints.names[1]
    with pytest.raises(ValueError, match=f"other.npz has no joint {missing}.*nose"):
        load("other.npz")
    (tmp_path / "text.csv").write_text("x,y\n1,2\n")
    with pytest.raises(ValueError, match="text.csv must have only numbers"):
        load("text.csv")
    (tmp_path / "text.npz").write_text("x,y\n1,2\n")
    with pytest.raises(ValueError, match=r"Cannot read .*text.npz as an `.npz` file"):
        load("text.npz")
    (tmp_path / "empty.npz").write_bytes(b"")
    with pytest.raises(ValueError, match=r"Cannot read .*empty.npz as an `.npz` file"):
        load("empty.npz")
    for name, values in (("rates", {"q": q, "fps": [30, 30]}), ("words", {"q": ["a"]})):
        np.savez(tmp_path / f"{name}.npz", **{"fps": 30, **values})
        with pytest.raises(ValueError, match=f"{name}.npz: `q` must be numbers and"):
            load(f"{name}.npz")
    (tmp_path / "motion.bvh").write_text("")
    with pytest.raises(ValueError, match=r"motion.bvh: motions are files `.npz` or"):
        load("motion.bvh")
    save_csv(tmp_path / "good.csv", q)
    with pytest.raises(ValueError, match="good.csv takes 0.20 s.*0.5 and 0.1"):
        load("good.csv", start=0.5, end=0.1)
    with pytest.raises(ValueError, match="good.csv: `fps` must be positive, got 0"):
        load("good.csv", fps=0)
    with pytest.raises(ValueError, match="good.csv has 1 frame"):
        load("good.csv", start=0.1, end=0.101)
    with pytest.raises(
        ValueError, match="good.csv: a motion needs a robot with one free"
    ):
        loco.load_motion(tmp_path / "good.csv", eqsim.make("inverted_pendulum").sys)


def test_motions_that_do_not_fit():
    with pytest.raises(TypeError, match="`motion` must be a `ReferenceMotion`.*got 3"):
        find_motion(3, robot(), task().sys)
    short = loco.ReferenceMotion(jnp.zeros((4, 9)), 0.02)
    with pytest.raises(ValueError, match="`motion` has 9 coordinates.*has 15"):
        loco.MotionTracking(robot(), short)
    with pytest.raises(ValueError, match="`start` and `end` apply to motion files"):
        loco.MotionTracking(robot(), start=1.0)
    with pytest.raises(ValueError, match="at least two frames, got"):
        loco.ReferenceMotion(jnp.zeros((1, 15)), 0.02)
    with pytest.raises(ValueError, match="`bend` is zero for all joints of 'humanoid'"):
        loco.squats(robot(), task().sys, bend=0.0)
    for name, value in (("count", 0), ("seconds", 0), ("period", -1.0)):
        with pytest.raises(ValueError, match=f"`{name}` must be .*got {value}"):
            loco.squats(robot(), task().sys, **{name: value})


def test_resampling_keeps_speed_along_straight_motions(getkey):
    """A rotation about a fixed axis at constant rate stays one, at any period."""
    sys = task().sys
    rate = jr.normal(getkey(), (sys.nv,))
    start = drawn(getkey, sys)[0]
    at = lambda t: integrate(sys, start, t * rate)
    motion = loco.ReferenceMotion(jax.vmap(at)(jnp.arange(6) / 5), 0.2)
    new = motion.resampled(sys, 0.02)
    assert new.frames == 51
    for k in (0, 7, 33, 50):
        q, qd = new.at(sys, jnp.asarray(k))
        gap = difference(sys, q, at(0.02 * k))
        np.testing.assert_allclose(gap, 0.0, atol=1e-9)
        np.testing.assert_allclose(qd, rate, atol=1e-8)
    q, qd = new.at(sys, jnp.asarray(60))
    np.testing.assert_allclose(q, new.q[-1])
    np.testing.assert_array_equal(qd, 0.0)
    with pytest.raises(ValueError, match="takes 1 s, less than two frames"):
        motion.resampled(sys, 2.0)


def test_the_reference_keeps_the_time_step():
    """With another time step, velocities are those of frames that are that far apart."""
    env, frame = task(), jnp.asarray(30)
    faster = eqx.tree_at(lambda e: e.sys.dt, env, 0.5 * env.sys.dt)
    (q, qd), (same, twice) = env.reference(frame), faster.reference(frame)
    np.testing.assert_array_equal(q, same)
    np.testing.assert_allclose(twice, 2.0 * qd, rtol=1e-12)
    assert np.abs(qd).max() > 0.1
    state, _ = at_frame(30, faster)
    np.testing.assert_allclose(state.robot.qd, twice, rtol=1e-12)


def test_tasks_can_be_made_in_transformations():
    """Also where the time step is traced: the motion is then resampled to that of the
    description."""
    env = task()
    slow = env.motion.resampled(env.sys, 0.04)

    def velocity(dt, motion):
        sys = eqx.tree_at(lambda s: s.dt, env.sys, dt)
        made = loco.motion_tracking(robot(), motion, sys=sys).env
        assert made.motion.frames == env.motion.frames
        return made.reference(jnp.asarray(30))[1]

    dts = jnp.array([0.5, 1.0]) * env.sys.dt
    for motion in (env.motion, slow):
        fast, usual = jax.jit(jax.vmap(lambda dt: velocity(dt, motion)))(dts)
        np.testing.assert_allclose(fast, 2.0 * usual, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(
        jax.jit(lambda: velocity(env.sys.dt, env.motion))(),
        env.reference(jnp.asarray(30))[1],
        rtol=1e-9,
        atol=1e-12,
    )


def test_feet_of_squats_stay():
    env = task()
    poses = jax.vmap(lambda q: forward(env.sys, q))(env.motion.q)
    feet = [link for link, *_ in env.names.feet]
    for values in (poses.pos[:, feet], poses.rot[:, feet]):
        np.testing.assert_allclose(np.ptp(values, axis=0), 0.0, atol=1e-6)
    assert np.ptp(env.motion.q[:, 2]) > 0.05


# The task.


def test_the_reference_itself_has_no_error():
    env = task()
    for frame in (0, 30, 77):
        state, timestep = at_frame(frame)
        errors = tracking(env, state)
        np.testing.assert_allclose([x for _, x in errors.values()], 0.0, atol=1e-6)
        parts = np.split(timestep.obs, np.cumsum([8, 8, 3, 6, 3, 3, 8, 8]))
        q, qd = frame_of(env.motion, env.sys, jnp.asarray(frame + 1))
        np.testing.assert_allclose(parts[0], q[7:] - env.pose, atol=1e-6)
        np.testing.assert_allclose(parts[1], qd[6:], atol=1e-6)
        np.testing.assert_allclose(parts[6], state.robot.q[7:] - env.pose, atol=1e-6)
        np.testing.assert_allclose(parts[8], 0.0)


def test_terms_of_an_exact_step():
    """Tracking terms are 1 if the robot is in the frame of the reference."""
    env = task()
    state, _ = at_frame(20)
    solved = solution(env, state.robot)

    @eqx.filter_jit
    def terms(env, state, solved):
        q, qd = env.motion.at(env.sys, state.frame)
        links = env._links(state.robot)
        now = env._tracked(state, state.robot, solved, jnp.zeros(8), links, q, qd)
        every = loco.TRACKING_TERMS.items()
        return {name: term(now) for name, term in every}, now.failed

    values, failed = terms(env, state, solved)
    for name in env.sigmas:
        np.testing.assert_allclose(values[name], 1.0, atol=1e-9)
    assert not bool(failed)


def test_terms_are_their_equations(getkey):
    draw = lambda *shape: jr.normal(getkey(), shape)
    rot = lambda: jnp.linalg.qr(draw(3, 3, 3))[0]
    links = loco.LinkStates(draw(3, 3), rot(), draw(3, 3), draw(3, 3))
    target = loco.LinkStates(draw(3, 3), rot(), draw(3, 3), draw(3, 3))
    now = loco.TrackingStep(
        links, target, 1, draw(3, 3), rot(), draw(4), draw(4), draw(4),
        jnp.abs(draw(4)), draw(4), jnp.abs(draw(4)) + 1.0, draw(4), draw(4),
        jnp.asarray(True), {name: jnp.asarray(2.0) for name in task().sigmas},
    )  # fmt: skip
    m = jax.tree.map(np.asarray, now)
    near = lambda square: np.exp(-np.mean(square) / 4.0)
    gap = lambda a, b: ((a - b) ** 2).sum(axis=1)
    turn = lambda a, b: 3.0 - np.einsum("nij,nij->n", a, b)
    expected = {
        "anchor_position": near(gap(m.links.pos, m.target.pos)[1]),
        "anchor_orientation": near(turn(m.links.rot, m.target.rot)[1]),
        "link_positions": near(gap(m.links.pos, m.relative_pos)),
        "link_orientations": near(turn(m.links.rot, m.relative_rot)),
        "link_velocities": near(gap(m.links.lin, m.target.lin)),
        "link_rates": near(gap(m.links.ang, m.target.ang)),
        "joint_positions": near(m.angle_error**2),
        "joint_velocities": near(m.rate_error**2),
        "action_rate": ((m.action - m.last_action) ** 2).sum(),
        "joint_limits": m.beyond.sum(),
        "torques": ((m.torque / m.torque_limit) ** 2).sum(),
        "joint_acceleration": (m.acceleration**2).sum(),
        "failed": 1.0,
    }
    assert expected.keys() == loco.TRACKING_TERMS.keys()
    every = lambda now: {n: term(now) for n, term in loco.TRACKING_TERMS.items()}
    found = eqx.filter_jit(every)(now)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-10)


def test_square_angle_is_near_the_square_of_the_angle():
    for angle in (0.0, 0.01, 0.3):
        c, s = np.cos(angle), np.sin(angle)
        turn = jnp.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]])
        value, slope = jax.value_and_grad(square_angle)(turn, jnp.eye(3))
        np.testing.assert_allclose(value, angle**2, rtol=1e-2, atol=1e-12)
        assert np.all(np.isfinite(slope))


def test_about_the_anchor_only_heading_and_place_count(getkey):
    """A reference moved horizontally and turned about the vertical is the same one."""
    env = task()
    state, _ = at_frame(40)
    target = links_of(env, state.robot)
    links = at_frame(60)[0]
    links = links_of(env, links.robot)
    k = env.links.index(env.anchor)
    pos, rot = about_anchor(target, links.pos[k], links.rot[k], k)
    c, s = np.cos(2.0), np.sin(2.0)
    yaw = jnp.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]])
    moved = target._replace(
        pos=target.pos @ yaw.T + jnp.array([[3.0, -2.0, 0.0]]),
        rot=yaw[None] @ target.rot,
    )
    again = about_anchor(moved, links.pos[k], links.rot[k], k)
    np.testing.assert_allclose(again[0], pos, atol=1e-9)
    np.testing.assert_allclose(again[1], rot, atol=1e-9)
    np.testing.assert_allclose(pos[k, 2], target.pos[k, 2])
    # Upside down, there is no heading: numbers and derivatives stay finite.
    flip = target.rot[k] @ jnp.diag(jnp.array([1.0, -1.0, -1.0]))
    total = lambda r: sum(jnp.sum(x) for x in about_anchor(target, links.pos[k], r, k))
    assert np.all(np.isfinite(jax.jit(jax.grad(total))(flip)))


@pytest.mark.slow  # `test_derivatives_of_rewards` is the quick one.
def test_derivatives_of_a_step(getkey):
    """Forward, reverse and finite differences agree, by robot, reference and action."""
    env = task()
    state, _ = at_frame(33)
    # In the frame itself, soles are at a distance of zero, where contacts begin.
    state = eqx.tree_at(lambda s: s.robot.q, state, state.robot.q.at[2].add(-0.002))

    def loss(action, mass, pos, motion):
        changed = eqx.tree_at(
            lambda e: (e.sys.links.mass, e.sys.links.pos, e.motion.q),
            env,
            (mass, pos, motion),
        )
        new, timestep = changed.step(state, action)
        errors = changed.tracking(new).values()
        return timestep.reward + jnp.sum(timestep.obs) + sum(x for _, x in errors)

    at = 0.01 * jr.normal(getkey(), (8,)), env.sys.links.mass, env.sys.links.pos
    at = (*at, env.motion.q)
    way = jax.tree.map(lambda x: 0.1 * jr.normal(getkey(), x.shape), at)
    slope = eqx.filter_jit(lambda at: jax.jvp(loss, at, way))
    forward_mode = slope(at)[1]
    slopes = eqx.filter_jit(jax.grad(loss, argnums=(0, 1, 2, 3)))(*at)
    reverse = sum(jnp.vdot(a, b) for a, b in zip(slopes, way))
    np.testing.assert_allclose(forward_mode, reverse, rtol=1e-8)
    moved = lambda h: slope(tuple(x + h * y for x, y in zip(at, way)))[0]
    numeric = (moved(1e-6) - moved(-1e-6)) / 2e-6
    np.testing.assert_allclose(forward_mode, numeric, rtol=1e-4)


def test_derivatives_of_rewards(getkey):
    """By coordinates and velocities of the robot and its reference, and its links: on the
    reference, near it, and so far from it that episodes end."""
    env = task()
    state, _ = at_frame(20)
    solved = solution(env, state.robot)

    def total(q, qd, motion, pos):
        where = lambda e: (e.motion.q, e.sys.links.pos)
        new = eqx.tree_at(where, env, (motion, pos))
        robot = eqx.tree_at(lambda r: (r.q, r.qd), state.robot, (q, qd))
        links, target = new._links(robot), new.motion.at(new.sys, state.frame)
        now = new._tracked(state, robot, solved, env.pose, links, *target)
        return sum(term(now) for term in loco.TRACKING_TERMS.values()), now.failed

    exact = state.robot.q, state.robot.qd, env.motion.q, env.sys.links.pos
    slope = jax.jit(lambda at, way: jax.jvp(total, at, way, has_aux=True))
    slopes = jax.jit(jax.grad(total, argnums=(0, 1, 2, 3), has_aux=True))
    for scale in (0.0, 0.01, 0.3):
        draw = lambda x: jr.normal(getkey(), x.shape)
        at = jax.tree.map(lambda x: x + scale * draw(x), exact)
        way = jax.tree.map(draw, at)
        _, forward_mode, failed = slope(at, way)
        reverse = sum(jnp.vdot(a, b) for a, b in zip(slopes(*at)[0], way))
        np.testing.assert_allclose(forward_mode, reverse, rtol=1e-8, atol=1e-10)
        moved = lambda h: slope(tuple(x + h * y for x, y in zip(at, way)), way)[0]
        numeric = (moved(1e-6) - moved(-1e-6)) / 2e-6
        np.testing.assert_allclose(reverse, numeric, rtol=1e-5, atol=1e-7)
        assert (np.abs(reverse) > 1e-3) == (scale > 0.0)
        assert bool(failed) == (scale == 0.3)


@pytest.mark.slow
def test_derivatives_through_the_end_of_an_episode(getkey):
    """By actions of six steps: forward, reverse and finite differences agree, and rewards of
    the next episode do not depend on actions of the last one."""
    env = AutoReset(adaptive())
    state, _ = at_frame(task().motion.frames - 4, env)

    @jax.jit
    def rewards(actions):
        def once(state, action):
            new, timestep = env.step(state, action)
            return new, (timestep.reward, timestep.truncated)

        return jax.lax.scan(once, state, actions)[1]

    actions = 0.1 * jr.normal(getkey(), (6, 8))
    way = jr.normal(getkey(), actions.shape)
    (_, ended), (forward_mode, _) = jax.jvp(rewards, (actions,), (way,))
    np.testing.assert_array_equal(ended, [False, False, True, False, False, False])
    slopes = jax.jacrev(lambda x: rewards(x)[0])(actions)
    reverse = jnp.sum(slopes * way[None], axis=(1, 2))
    np.testing.assert_allclose(forward_mode, reverse, rtol=1e-7, atol=1e-10)
    step = 1e-6 * way
    numeric = (rewards(actions + step)[0] - rewards(actions - step)[0]) / 2e-6
    np.testing.assert_allclose(forward_mode, numeric, rtol=1e-4, atol=1e-8)
    reached = np.abs(slopes).max(axis=2) > 1e-9
    last, following = np.tri(6, dtype=bool), np.arange(6) >= 3
    expected = last & (following[:, None] == following[None])
    np.testing.assert_array_equal(reached, expected)


def test_errors_of_zero_have_derivatives():
    env = task()
    state, _ = at_frame(20)

    def total(q):
        now = eqx.tree_at(lambda s: s.robot.q, state, q)
        return sum(x for _, x in env.tracking(now).values())

    assert np.all(np.isfinite(jax.jit(jax.grad(total))(state.robot.q)))


def test_the_reference_follows_the_robot():
    """With longer shanks, the links of the reference are elsewhere."""
    env = task()
    state, _ = at_frame(25)
    pos = env.sys.links.pos.at[env.sys.links.names.index("left_foot"), 2].add(-0.1)
    longer = eqx.tree_at(lambda e: e.sys.links.pos, env, pos)
    np.testing.assert_allclose(tracking(longer, state)["links, m"][1], 0.0, atol=1e-6)


def only(env, name):
    """The task with one of its limits; the others are infinite."""
    limits = {
        k: x if k == name else jnp.full_like(x, jnp.inf) for k, x in env.limits.items()
    }
    return eqx.tree_at(lambda e: e.limits, env, limits)


def test_too_large_errors_end_episodes():
    """Each by its own limit."""
    env, state = task(), at_frame(0)[0]

    def ended_by(state):
        ends = lambda e: bool(step(e, state, jnp.zeros(8))[1].terminated)
        names = {name for name in env.limits if ends(only(env, name))}
        assert ends(env) == bool(names)
        return names

    lift = lambda z: eqx.tree_at(lambda s: s.robot.q, state, state.robot.q.at[2].add(z))
    assert ended_by(lift(0.2)) == set()
    assert "anchor_height" in ended_by(lift(0.3))
    lying = state.robot.q.at[3:7].set(jnp.array([1.0, 0.0, 1.0, 0.0]) / jnp.sqrt(2.0))
    lying = eqx.tree_at(lambda s: s.robot.q, state, lying)
    assert "anchor_tilt" in ended_by(lying)
    # With one leg stretched ahead, its foot is too high.
    leg = state.robot.q.at[jnp.asarray(env.names.q[:2])].set(jnp.array([-1.5, 0.0]))
    leg = eqx.tree_at(lambda s: s.robot.q, state, leg)
    assert ended_by(leg) == {"end_height"}


def test_noise_of_starts(getkey):
    """Within its half widths, and joint angles within their ranges."""
    env = loco.MotionTracking(robot(), noise={})
    keys = jr.split(getkey(), 500)
    first = {"start": jnp.zeros((), jnp.int32)}
    states = eqx.filter_jit(jax.vmap(lambda key: env.reset(key, first)[0]))(keys)
    q, qd = frame_of(env.motion, env.sys, jnp.asarray(0))
    off = np.abs(jax.vmap(lambda x: difference(env.sys, q, x))(states.robot.q))
    half = np.array([0.02, 0.02, 0.005, 0.05, 0.05, 0.1, *[0.05] * 8])
    assert np.all(off.max(axis=0) < 1.0001 * half)
    assert np.all(off.max(axis=0) > 0.95 * half)
    rates = np.abs(np.asarray(states.robot.qd) - np.asarray(qd)).max(axis=0)
    half = np.array([0.2, 0.2, 0.1, 0.2, 0.2, 0.3])
    assert np.all((rates[:6] > 0.95 * half) & (rates[:6] < 1.0001 * half))
    env = loco.MotionTracking(
        robot(), env.motion, env.sys, noise={}, start_noise={"joint_positions": 0.3}
    )
    angles = jax.jit(jax.vmap(lambda key: env._initial(key, first["start"])[0]))(keys)
    angles = np.asarray(angles[:, 7:])
    low, high = np.asarray(env.sys.joints.range[1:]).T
    assert np.all((angles >= low - 1e-12) & (angles <= high + 1e-12))
    assert np.any(np.abs(angles - low) < 1e-12)


@pytest.mark.parametrize(
    "option, value",
    (
        ("links", ("wing",)),
        ("ends", ("wing",)),
        ("observation", ("wing",)),
        ("anchor", "wing"),
        *((n, {"wing": 1.0}) for n in ("noise", "start_noise", "weights", "sigmas")),
        ("limits", {"wing": 1.0}),
    ),
)
def test_unknown_names(option, value):
    with pytest.raises(ValueError, match=f"`{option}` names 'wing'. Choose from"):
        loco.MotionTracking(robot(), **{option: value})


def test_torques_need_limits():
    """Without them, the term would divide by zero."""
    sys = task().sys
    free = dataclasses.replace(sys.actuators, force_limited=(False,) * 8)
    free = eqx.tree_at(lambda s: s.actuators, sys, free)
    with pytest.raises(
        ValueError, match="'torques' needs actuators with a torque limit"
    ):
        loco.MotionTracking(robot(), sys=free, weights={"torques": -1.0})
    loco.MotionTracking(robot(), sys=free)


def test_targets_about_the_reference_or_the_default_pose(getkey):
    """About the reference, servos damp the difference of velocities."""
    env, action = task(), jr.normal(getkey(), (8,))
    state, _ = at_frame(30)
    q, qd = frame_of(env.motion, env.sys, state.frame + 1)
    lead = 0.03 * qd[6:]
    np.testing.assert_allclose(
        env.targets(state, action), q[7:] + lead + 0.3 * action, rtol=1e-6
    )
    env = loco.MotionTracking(robot(), env.motion, env.sys, residual=False)
    np.testing.assert_allclose(
        env.targets(state, action), env.pose + 0.3 * action, rtol=1e-6
    )
    loose = eqx.tree_at(lambda s: s.actuators.bias, env.sys, jnp.zeros((8, 3)))
    with pytest.raises(ValueError, match="position servos, unlike"):
        loco.MotionTracking(robot(), env.motion, loose)


# Starts.


def test_starts_are_where_the_robot_fails():
    env = adaptive()
    for same in (0.0, 0.3, 1.0):
        np.testing.assert_allclose(env.probabilities(jnp.full(4, same)), 0.25)
    chance = env.probabilities(jnp.array([0.0, 0.0, 1.0, 0.0]))
    ahead = np.array([0.64 / 2.952, 0.8 / 2.44, 1.0 / 1.8, 0.0])
    np.testing.assert_allclose(chance, 0.025 + 0.9 * ahead / ahead.sum(), rtol=1e-6)
    np.testing.assert_allclose(jnp.sum(chance), 1.0)


@pytest.mark.parametrize("bins", (1, 4, 7, 99, 200))
def test_each_bin_starts_at_its_first_frame(getkey, bins):
    """Also where bins have different numbers of frames; starts of a bin lie in it."""
    env = loco.AdaptiveStarts(task(), bins=bins, uniform=0.0, lookahead=0.0)
    intervals = task().motion.frames - 1
    inner, _ = at_frame(0)
    bin_of = lambda frame: env._bin(eqx.tree_at(lambda s: s.frame, inner, frame))
    found = np.asarray(jax.vmap(bin_of)(jnp.arange(intervals + 1)))
    first = [int(env._first(jnp.asarray(k))) for k in range(bins + 1)]
    assert first[0] == 0 and first[-1] == intervals
    expected = np.repeat(np.arange(bins), np.diff(first))
    np.testing.assert_array_equal(found, [*expected, bins - 1])
    for index in {0, bins // 2, bins - 1}:
        carried = CarriedFailures(jnp.zeros(bins).at[index].set(1.0))
        for _ in range(3):
            state, _ = reset(env, getkey(), {"start": carried})
            assert int(state.first) == index
            assert first[index] <= int(state.inner.frame) < first[index + 1]


def test_numbers_of_starts():
    for name in ("uniform", "lookahead", "rate"):
        for value in (-0.1, 1.1):
            with pytest.raises(
                ValueError, match=f"`{name}` must be between 0 and 1, got {value}"
            ):
                loco.AdaptiveStarts(task(), **{name: value})
    most = task().motion.frames - 1
    with pytest.raises(ValueError, match=f"frames minus one, {most}, got {most + 1}."):
        loco.AdaptiveStarts(task(), bins=most + 1)


def test_failures_pass_to_the_next_episode(getkey):
    """Of bins that an episode visited; the failure counts in the last of them."""
    env = adaptive()
    frames = task().motion.frames
    state, _ = at_frame(frames // 4 + 2, env)
    assert int(state.first) == 1
    far = eqx.tree_at(
        lambda s: s.inner.frame, state, jnp.asarray(frames // 2 + 2, jnp.int32)
    )
    fell = eqx.tree_at(lambda s: s.failed, far, jnp.asarray(True))
    found = next_options(env, getkey(), fell).start.failures
    np.testing.assert_allclose(found, [1.0, 0.9, 1.0, 1.0])
    found = next_options(env, getkey(), far).start.failures
    np.testing.assert_allclose(found, [1.0, 0.9, 0.9, 1.0])
    state, _ = reset(env, getkey(), {"start": CarriedFailures(found)})
    np.testing.assert_allclose(state.failures, found)
    np.testing.assert_allclose(env.progress(state)["survival"], 0.05)


def test_episodes_end_with_the_reference(getkey):
    """They are truncated there, and the next one has the failures of the last."""
    env = AutoReset(adaptive())
    last = task().motion.frames - 1
    state, _ = at_frame(last - 1, env)
    state, timestep = step(env, state, jnp.zeros(8))
    assert bool(timestep.truncated) and not bool(timestep.terminated)
    assert float(state.inner.failures[-1]) == pytest.approx(0.9)
    assert int(state.inner.inner.frame) < last
    names = {*progress_of(env, state)}
    assert names == {
        "survival",
        "joints error, rad",
        "links error, m",
        "anchor error, m",
    }


def test_starts_need_a_reference():
    other = loco.VelocityTracking(robot())
    with pytest.raises(ValueError, match="`AdaptiveStarts` needs.*`VelocityTracking`"):
        loco.AdaptiveStarts(other)
    with pytest.raises(ValueError, match="`options.start`: `VelocityTracking` has no"):
        other.reset(jr.key(0), {"start": jnp.asarray(1)})
    assert loco.motion_tracking(robot()).bins == 4


def test_starts_pass_through_randomization(getkey):
    heavier = lambda key, sys: eqx.tree_at(
        lambda s: s.links.mass, sys, sys.links.mass * jr.uniform(key, (), minval=0.9)
    )
    env = eqsim.DomainRandomization(adaptive(), heavier)
    carried = CarriedFailures(jnp.array([0.1, 0.2, 0.3, 0.4]))
    state, _ = reset(env, getkey(), {"start": carried})
    np.testing.assert_array_equal(state.inner.failures, carried.failures)


@pytest.mark.parametrize("residual", (True, False))
def test_deployment_describes_the_task(getkey, residual):
    """Observations and targets outside of the task, from any state in any frame."""
    env = loco.MotionTracking(robot(), noise={}, start_noise={}, residual=residual)
    told = deployment_of(loco.AdaptiveStarts(env, bins=4))
    spec = mujoco.MjSpec.from_string(eqsim.io.write_mjcf(env.sys))
    other = MujocoRobot(spec, told)
    state, _ = reset(env, jr.key(0), {"start": jnp.asarray(0)})
    np.testing.assert_allclose(other.data.qpos, state.robot.q, atol=1e-6)
    np.testing.assert_allclose(other.data.qvel, state.robot.qd, atol=1e-5)
    last = env.motion.frames - 1
    for frame in (3, last - 1, last, last + 5):
        move = 0.2 * jr.normal(getkey(), (2, env.sys.nv))
        robot_state = env.pipeline.init(
            env.sys, integrate(env.sys, state.robot.q, move[0]), move[1]
        )
        action = jr.normal(getkey(), (env.sys.nu,))
        now = loco.TrackingState(robot_state, state.key, jnp.asarray(frame), action)
        other.data.qpos[:], other.data.qvel[:] = robot_state.q, robot_state.qd
        other.frame = frame
        other.update()
        found = other.observe((0.0, 0.0, 0.0), np.asarray(action))
        np.testing.assert_allclose(found, env.observe(now), atol=1e-5)
        targets = env.targets(now, action)
        np.testing.assert_allclose(other.target(np.asarray(action)), targets, atol=1e-5)


def test_presets():
    """Those of the zoo for motions are for environments that exist."""
    presets = {env for _, env, *_ in runs.presets() if env.endswith("_motion")}
    assert presets and presets <= {*eqsim.ENVS.names()}


class Squatting(loco.MotionTracking):
    """A task that is made without arguments."""

    def __init__(self):
        super().__init__(robot(), noise={})


@pytest.mark.slow
@parametrize_with_checks([Squatting()])
def test_conformance(check):
    check.run()
