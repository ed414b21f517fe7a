"""Animations that are written during a run."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toys import Rail
from zoo.disturbed_runs import EachTurn
from zoo.search import Search

import eqsim
from eqsim.render import NoOpenGL
from eqsim_zoo import Run, train
from eqsim_zoo.runs.members import members_of
from eqsim_zoo.training import RunWarning, Video, video as _video


PLAN = dict(
    steps=160, pool_size=4, episode_length=10, turns=8, evaluations=4, episodes=2
)


def test_frames_are_those_of_a_rollout(monkeypatch):
    """Every second step of the second of two members."""
    monkeypatch.setattr(_video, "SPACING", 0.2)
    members = members_of([Search(rate=0.1), Search(rate=0.5)], 0, 1)
    env = eqsim.TimeLimit(Rail(), 7)
    state = members.init(eqsim.AutoReset(env))
    state = with_weights(state)
    key = jax.random.key(3)
    found = _video.run_episode(members, state, Rail(), key, 1, 7)
    policy = lambda obs, key: jnp.tanh(0.5 * jnp.sum(obs) * jnp.ones(2))
    expected = eqsim.rollout(env, policy, key, 7)
    assert found.dt == pytest.approx(2 * Rail().dt)
    q = env.physics(expected.state).q[::2]
    np.testing.assert_allclose(found.q, q, rtol=1e-12)
    assert bool(found.valid.all()) and found.q.shape[0] == 4


def with_weights(state):
    """Weights 0 of the first member, 0.5 of the second."""
    best = jnp.stack([jnp.zeros((2, 4)), jnp.full((2, 4), 0.5)])
    return jax.tree.map(lambda x: best if x is state.best else x, state)


@pytest.mark.parametrize("every, which", ((1, (0, 1, 2, 3)), (3, (2, 3))))
@pytest.mark.slow
def test_pace(monkeypatch, tmp_path, every, which):
    """One of so many evaluations and the last one, with one compilation."""
    traced, written, announced = [], [], []
    rollout = eqsim.rollout
    monkeypatch.setattr(
        eqsim, "rollout", lambda *a, **k: traced.append(k) or rollout(*a, **k)
    )
    monkeypatch.setattr(
        _video, "write_episode", lambda path, *_: written.append(path.name)
    )
    told = lambda turn: announced.extend(path.name for path in turn.videos)
    callbacks = [Video(every), EachTurn(told)]
    agents = [Search(rate=0.1), Search(rate=0.5)]
    result = train(
        Run(agents, Rail(), **PLAN), out=tmp_path / "run", callbacks=callbacks
    )
    steps = [result.evaluations[k][0] for k in which]
    assert written == announced == [f"steps_{x:010d}.gif" for x in steps]
    assert len([k for k in traced if "collect" not in k]) <= 1


def test_files(monkeypatch, tmp_path):
    """Files of an overwritten run are deleted, other files of the folder are kept."""
    sizes = []
    monkeypatch.setattr(
        _video, "write_episode", lambda path, _, *x: sizes.append(x) or path.touch()
    )
    out = {"out": tmp_path / "run", "overwrite": True}
    video = Video(4, width=40, height=30)
    train(Run(Search(), Rail(), **PLAN), callbacks=[video], **out)
    folder = tmp_path / "run" / "videos"
    (folder / "mine.gif").touch()
    assert (folder / "steps_0000000160.gif").exists() and sizes == [(40, 30)]
    train(Run(Search(), Rail(), **PLAN), **out)
    assert [path.name for path in folder.iterdir()] == ["mine.gif"]


@pytest.mark.parametrize(
    "error, number", ((NoOpenGL("no library"), 1), (OSError("disk full"), 2))
)
def test_a_run_continues_without(monkeypatch, tmp_path, error, number):
    def fail(*_):
        raise error

    monkeypatch.setattr(_video, "write_episode", fail)
    with pytest.warns(RunWarning) as found:
        result = train(
            Run(Search(), Rail(), **PLAN), out=tmp_path, callbacks=[Video(2)]
        )
    assert result.counters.steps == 160
    assert [str(error) in str(x.message) for x in found] == [True] * number


def test_errors(tmp_path):
    with pytest.raises(
        ValueError, match="`every` must be an integer of at least 1, got 0"
    ):
        Video(0)
    with pytest.raises(ValueError, match="needs a folder of the run: pass `out`"):
        train(Run(Search(), Rail(), **PLAN), callbacks=[Video()])
    never = dict(steps=160, episode_length=10, evaluations=0, pool_size=4)
    with pytest.raises(ValueError, match="the run has none or there is no environment"):
        train(Run(Search(), Rail(), **never), out=tmp_path, callbacks=[Video()])


def test_frames_that_are_not_finite():
    sys = jax.tree.map(lambda x: jnp.stack([x, x]), Rail().sys)
    q = jnp.array([[0.0, 1.0], [jnp.nan, 0.0]])
    episode = _video.Episode(sys, q, jnp.array([True, True]), jnp.array(0.1))
    with pytest.raises(FloatingPointError, match="coordinate of the robot"):
        _video.write_episode("never.gif", episode)
