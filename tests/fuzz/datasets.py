"""Datasets and recordings: layouts of several libraries with changed arrays, damaged."""

import json
from random import Random

import numpy as np

import eqsim.identify
from eqsim._cli._view_command import subject_of
from eqsim_zoo.data import load_data, save_data

from .mutations import archive, arrays_changed, changed, damaged, foreign


def _steps(rng: np.random.Generator, count: int = 12) -> dict[str, np.ndarray]:
    """The layout of D4RL."""
    obs = rng.normal(size=(count + 1, 3)).astype("f4")
    ends = np.zeros(count, "f4")
    ends[5] = 1
    return {
        "observations": obs[:-1],
        "actions": rng.uniform(-1, 1, (count, 2)).astype("f4"),
        "rewards": rng.normal(size=count),
        "next_observations": obs[1:],
        "terminals": ends,
        "timeouts": np.roll(ends, 3),
    }


def _layouts(path) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    first = _steps(rng)
    jaxrl = {k: v for k, v in first.items() if k not in ("terminals", "timeouts")}
    jaxrl |= {"masks": 1 - first["terminals"], "dones_float": first["terminals"]}
    frames = {k: first[k] for k in ("observations", "actions", "terminals")}
    pixels = {
        "observations/pixels": rng.integers(0, 255, (12, 4, 4, 3), "u1"),
        "observations/q": rng.normal(size=(12, 2)),
        "actions": first["actions"],
        "terminals": first["terminals"],
    }
    shape = lambda x: x.reshape(2, 6, *x.shape[1:])
    rollout = {
        k: shape(v) for k, v in first.items() if k not in ("terminals", "timeouts")
    }
    flags = {k: np.zeros((2, 6), bool) for k in ("terminated", "truncated")}
    rollout |= flags | {"valid": np.ones((2, 6), bool), "dt": np.asarray(0.1)}
    rollout |= {"q": rng.normal(size=(2, 6, 1)), "env": np.asarray("point_mass")}
    recording = {
        "time": np.arange(10) * 0.1,
        "ctrl": rng.normal(size=(10, 1)),
        "q": rng.normal(size=(10, 2)),
        "offsets": np.asarray([0, 4, 10]),
        "name": np.asarray(["a", "b"]),
        "run": np.asarray(["a", "b"]),
    }
    np.savez(path, **first)
    save_data(load_data(path), path)
    with np.load(path) as file:
        own = {name: file[name] for name in file.files}
    return [own, own, first, jaxrl, frames, pixels, rollout, recording, recording]


class Kind:
    """Law: `load_data`, `identify.load_recordings` and `eqsim view` read a file, or raise
    `ValueError` or the error of a command."""

    WRITES = ()

    def __init__(self, folder):
        from eqsim.plugins import CommandError

        self.REFUSALS = (ValueError, FileNotFoundError, CommandError)
        self.folder, self.path = folder, folder / "x.npz"
        self.layouts = _layouts(self.path)

    def attempt(self, rng: Random):
        arrays = rng.choice(self.layouts)
        trap = self.folder / "here" / "canary"
        if "about" in arrays and rng.random() < 0.3:
            about = changed(rng, json.loads(str(arrays["about"])))
            arrays = arrays | {"about": np.asarray(json.dumps(about))}
        action = rng.random()
        content = archive(rng, arrays_changed(rng, arrays), trap, change=action < 0.4)
        if action > 0.95:
            content = foreign(rng, trap)
        elif action > 0.9:
            content = damaged(rng, content)
        self.path.write_bytes(content)
        if "time" in arrays:
            rate = rng.choice((None, None, 10.0, 0.0, float("nan")))
            eqsim.identify.load_recordings(self.path, rate=rate)
        elif "env" in arrays and rng.random() < 0.5:
            subject_of(str(self.path), None)
        else:
            data = load_data(self.path, clip=rng.random() < 0.5)
            assert len(data) > 0 and len(data.digest()) > 8
            data.returns()
