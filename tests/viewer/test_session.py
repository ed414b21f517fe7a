"""Time, sliders and actions, without a page."""

import re
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from helpers import tree_allclose
from viewer_models import point

import eqsim
from eqsim import viewer
from eqsim.viewer._pages import start_server, stop_server
from eqsim.viewer._panel import Panel
from eqsim.viewer._physics import contact_forces, Mode, see, Setup
from eqsim.viewer._scene import arrows
from eqsim.viewer._session import recorded_frames, Session


TRACES = []


def gravity(sys):
    TRACES.append(sys)
    return sys.gravity


SLIDER = viewer.ValueSlider(gravity, -20.0, 5.0, 2)
ENV = viewer.as_environment(point())
SETUP = Setup(ENV, (SLIDER,), randomize=eqsim.randomize.masses(0.5, 1.5))


def session(count=1, setup=SETUP):
    return Session(setup, np.array([-9.81]), jr.key(0), count)


def heights(frames):
    return np.array([np.asarray(frame.robots.state.q)[:, 0] for frame in frames])


def test_a_simulation_is_that_of_the_environment():
    """Without contact, x'' = f / m + g, with m drawn for each robot."""
    here = session(3)
    here.ctrl[:] = 2.0
    for _ in range(5):
        here.advance()
    mass = np.asarray(here.frame.robots.changed.links.mass)[:, 0]
    acceleration = 2.0 / mass - 9.81
    dt, n = 0.01, 5
    # Semi-implicit Euler.
    expected = acceleration * dt**2 * n * (n + 1) / 2
    np.testing.assert_allclose(heights([here.frame])[0], expected, rtol=1e-9)
    assert len(set(mass.tolist())) == 3 and here.frame.time == pytest.approx(0.05)


def test_moving_a_slider_changes_the_robot_and_compiles_nothing():
    here = session(3)
    here.advance()
    count = len(TRACES)
    speeds = {}
    for value in (-9.81, 0.0, 5.0):
        here.values[0] = value
        here.reset()
        here.advance()
        speeds[value] = np.asarray(here.frame.robots.state.qd)[:, 0]
    assert len(TRACES) == count
    for value, speed in speeds.items():
        np.testing.assert_allclose(speed, 0.01 * value, rtol=1e-9, atol=1e-12)


def test_going_on_from_an_earlier_moment_drops_later_ones():
    here = session(3)
    for _ in range(4):
        here.advance()
    before = heights(here.history)
    here.seek(0.021)
    assert here.index == 2 and not here.playing
    here.advance()
    assert len(here.history) == 4
    np.testing.assert_array_equal(heights(here.history), before[:4])


def test_time_passes_at_the_speed_that_is_chosen():
    here = session(3)
    here.advance()
    start = here.frame.time
    here.speed = 0.5
    assert not here.tick(0.011) and here.tick(0.012)
    assert here.frame.time == pytest.approx(start + 0.01)
    here.playing = False
    assert not here.tick(10.0)


def test_reset_to_a_keyframe():
    here = session(3)
    here.reset("high")
    np.testing.assert_array_equal(heights([here.frame]), 2.0)
    np.testing.assert_array_equal(here.ctrl, [3.0])
    here.ctrl[0] = 1.0  # A slider, which does not change the keyframe.
    assert ENV.sys.keyframe("high").ctrl[0] == 3.0


def test_sources_of_actions():
    policy = lambda obs, key: 1.5 * jnp.ones(1)
    here = session(2, Setup(ENV, (SLIDER,), policy))
    assert here.mode is Mode.POLICY
    here.advance()
    np.testing.assert_array_equal(np.asarray(here.frame.robots.action), 1.5)
    here.mode = Mode.RANDOM
    here.advance()
    drawn = np.asarray(here.frame.robots.action)
    assert np.all(np.abs(drawn) <= 20.0) and drawn[0] != drawn[1]


class Counter(eqsim.AbstractController):
    """Acts with the number of actions of its episode."""

    def init(self, state, key):
        return jnp.zeros(1)

    def act(self, memory, state, obs, key):
        return memory + 1.0, memory


def test_memory_of_a_controller():
    """It changes where the controller acts, and begins again with each robot's episode,
    by itself (an environment that resets itself) or by the page; and in a recording
    that is simulated further."""
    task = eqsim.TimeLimit(eqsim.make("point_mass"), 3)
    # The page shows the first frame of the next episode in place of the last one.
    for env, third in ((task, 0.0), (eqsim.AutoReset(task), 2.0)):
        here = Session(Setup(env, (), Counter()), np.zeros(0), jr.key(0), 2)
        actions = []
        for mode in "PPPPSPP":
            here.mode = Mode.POLICY if mode == "P" else Mode.SLIDERS
            here.advance()
            actions.append(float(here.frame.robots.action[1, 0]))
        last = 0.0 if third == 0.0 else 1.0
        assert actions == [0.0, 1.0, third, 0.0, 0.0, last, 0.0]
    trajectory = eqsim.rollout(task, Counter(), jr.split(jr.key(1), 2), 3)
    _, frames = recorded_frames(task, trajectory, None)
    here = Session(Setup(task, (), Counter()), np.zeros(0), jr.key(0), 2, frames)
    here.seek(frames[1].time)
    here.simulates = True
    here.advance()
    np.testing.assert_array_equal(here.frame.robots.action, 0.0)


def test_episodes_that_end_start_again():
    env = eqsim.make("point_mass")
    here = Session(Setup(env), np.zeros(0), jr.key(0), 4)
    here.ctrl[:] = 1.0
    ended = False
    for _ in range(12):
        here.advance()
        assert np.all(np.abs(np.asarray(here.frame.robots.state.q)) <= 1.0)
        ended |= bool(np.any(np.asarray(here.frame.robots.timestep.first)))
    assert ended
    here.restarts = False
    for _ in range(12):
        here.advance()
    assert np.all(np.asarray(here.frame.robots.state.q) > 1.0)


def test_contact_forces_carry_the_weight():
    resting = recorded_frames(point(), np.full((2, 1), -0.90036726), 0.01)[1]
    here = Session(Setup(ENV), np.zeros(0), jr.key(0), 1, resting)
    pos, force = contact_forces(here.setup, here.parameters, here.frame.robots)
    state = jax.tree_util.tree_map(lambda x: jnp.asarray(x[0]), resting[0].robots.state)
    found = eqx.filter_jit(ENV.pipeline.contacts)(ENV.sys, state, jnp.zeros(1))
    np.testing.assert_allclose(force[0], found.force, rtol=1e-9)
    # The weight rests on the floor.
    assert float(force[0, 0, 2]) == pytest.approx(9.81, rel=0.02)
    shift = np.array([[5.0, 0.0, 0.0]])
    shown = arrows(np.asarray(pos), np.asarray(force), 0.1, 10.0, shift)
    assert shown.shape == (1, 2, 3)
    np.testing.assert_allclose(shown[0, 0], np.asarray(pos)[0, 0] + shift[0])
    np.testing.assert_allclose(shown[0, 1] - shown[0, 0], 0.1 * np.asarray(force)[0, 0])
    cut = arrows(np.asarray(pos), np.asarray(force), 0.1, 0.01, shift)[0]
    assert np.linalg.norm(cut[1] - cut[0]) == pytest.approx(0.01)


def test_a_rollout_is_played_and_goes_on():
    """Randomized, of several environments, of which one ends early."""
    env = eqsim.DomainRandomization(
        eqsim.make("point_mass"), eqsim.randomize.masses(0.5, 1.5)
    )
    policy = lambda obs, key: jnp.where(obs[0] > 0.0, 1.0, 0.0) * jnp.ones(1)
    trajectory = eqsim.rollout(
        env, policy, jr.split(jr.key(1), 3), 9, stop=lambda timestep: timestep.done
    )
    _, frames = recorded_frames(env, trajectory, None)
    valid = np.asarray(trajectory.valid)
    assert len(frames) == np.flatnonzero(valid.any(axis=0)).max() + 1
    state = lambda k: jax.tree_util.tree_map(lambda x: x[:, k], trajectory.state)
    here = Session(Setup(env, (), policy), np.zeros(0), jr.key(0), 3, frames)
    for k in range(len(frames) - 1):
        assert tree_allclose(here.frame.robots.state, state(k))
        here.advance()
    # The step of the recording is that of the simulation.
    here.seek(frames[1].time)
    here.simulates = True
    here.advance()
    assert tree_allclose(here.frame.robots.state, state(2))
    seen = see(here.setup, here.parameters, here.frame.robots)
    np.testing.assert_allclose(seen.root[:, 0], env.physics(state(2)).q[:, 0])


def test_coordinates_are_played_in_a_loop():
    q = np.linspace(0.0, 1.0, 12).reshape(2, 2, 3, 1)
    _, frames = recorded_frames(point(), q, 0.5)
    assert [frame.time for frame in frames] == [0.0, 0.5, 1.0]
    np.testing.assert_array_equal(heights(frames), q.reshape(4, 3).T)
    here = Session(Setup(ENV), np.zeros(0), jr.key(0), 4, frames)
    for _ in range(3):
        here.advance()
    assert here.index == 0


def _mass(low=0.0):
    return viewer.ScaleSlider(lambda s: s.links.mass, low, 2.0)


def _batch():
    return eqx.filter_vmap(lambda _: point())(jnp.arange(2))


def _launch(where, *arguments):
    slider = viewer.ValueSlider(where, *arguments)
    return viewer.launch(point(), sliders={"a": slider})


# What is refused, the error, and words of its message.
REFUSED = [
    (lambda: recorded_frames(point(), np.zeros((3, 2)), None), ValueError, "(3, 2)"),
    (lambda: recorded_frames(point(), np.zeros(1), None), ValueError, "time, 1"),
    (lambda: viewer.as_environment("ant"), TypeError, "ant"),
    (lambda: viewer.as_environment(_batch()), ValueError, "batch of shape"),
    (lambda: _mass(2.0), ValueError, "got 2.0 and 2.0"),
    (lambda: viewer.launch(point(), sliders={"a": 3}), TypeError, "'a'"),
    (lambda: _launch(lambda s: s.links.names, -1.0, 0.0), ValueError, "'a' cannot"),
    (
        lambda: _launch(lambda s: s.gravity, -1.0, 0.0, 2),
        ValueError,
        "from -1.0 to 0.0",
    ),
    (lambda: _launch(lambda s: s.gravity, -20.0, 0.0), ValueError, "`index`"),
    (lambda: viewer.launch(point(), num_envs=0), ValueError, "`num_envs`"),
    (lambda: viewer.launch(point(), port=70000), ValueError, "65535, got 70000"),
    (lambda: viewer.export(point(), np.zeros((2, 1)), fps=0.0), ValueError, "`fps`"),
]


@pytest.mark.parametrize("make, error, words", REFUSED)
def test_errors(make, error, words):
    with pytest.raises(error, match=re.escape(words)):
        make()


def test_default_sliders_leave_the_robot_as_it_is():
    sys = eqsim.make("ant").sys
    sliders = viewer.default_sliders(sys)
    assert len(sliders) == 5
    for name, slider in sliders.items():
        initial = jnp.asarray(slider.initial(sys), sys.dt.dtype)
        assert tree_allclose(slider.apply(sys, initial), sys), name
        other = slider.apply(sys, 0.5 * initial)
        assert not tree_allclose(other, sys), name
    damping = viewer.default_sliders(point())
    assert not any("damping" in name for name in damping)


def test_the_panel_ignores_values_that_the_page_does_not_offer():
    """Messages need not come from the page: no value of a control stops the simulation."""
    here = session()
    server = start_server(False)
    try:
        panel = Panel(server, here, {"gravity": SLIDER}, True, [0], lambda k, on: None)
        before = here.values.copy(), here.ctrl.copy(), here.speed, here.mode
        for handle in list(server.gui._gui_input_handle_from_uuid.values()):
            kind = type(handle.value)
            for value in {float: [np.nan, 1e9], str: ["odd"], bool: ["odd"]}.get(
                kind, []
            ):
                handle._impl.value = value
                event = SimpleNamespace(client_id=1, target=handle)
                for act in list(handle._impl.update_cb):
                    act(event)
                panel.run_pending()
                panel.refresh(1.0)
        after = here.values, here.ctrl, here.speed, here.mode
        assert tree_allclose(before[:2], after[:2]) and before[2:] == after[2:]
        assert panel.force_length == 1.0 and here.frame.time == 0.0
        (slider,) = (
            handle
            for handle in server.gui._gui_input_handle_from_uuid.values()
            if handle.label == "gravity"
        )
        slider._impl.value = -3.0
        slider._impl.update_cb[0](SimpleNamespace(client_id=1, target=slider))
        panel.run_pending()
        assert here.values.tolist() == [-3.0]
    finally:
        stop_server(server)
