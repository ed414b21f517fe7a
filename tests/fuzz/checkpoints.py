"""Checkpoints and folders of runs: damaged, forged with a right checksum, swapped."""

import hashlib
import json
from random import Random

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from eqsim_zoo import load_run, Run
from eqsim_zoo.runs import load_checkpoint, read_about, save_checkpoint
from eqsim_zoo.runs.folders import BEST, CONFIG, LAST

from .mutations import changed, damaged, foreign


def _state(size: int = 3):
    return {
        "weight": jnp.arange(2.0 * size).reshape(2, size),
        "half": jnp.asarray([1.0, 1.1], jnp.bfloat16),
        "count": jnp.asarray(3, jnp.int32),
        "key": jr.key(3),
        "plain": np.arange(3, dtype=np.uint8),
    }


class Kind:
    """Law: `load_checkpoint`, `read_about` and `load_run` return what was written, or
    raise `ValueError` or `FileNotFoundError`."""

    REFUSALS = (ValueError, FileNotFoundError)
    WRITES = ()

    def __init__(self, folder):
        self.folder, self.path = folder, folder / "x.ckpt"
        self.trap = folder / "here" / "canary"
        save_checkpoint(self.path, _state(), {"turn": 3, "agents": [{"a": 1.5}]})
        self.small = self.path.read_bytes()
        save_checkpoint(self.path, _state(4), {"turn": 1})
        self.other = self.path.read_bytes()
        self.like = eqx.filter_eval_shape(_state)
        self.run = folder / "run"
        self.run.mkdir(exist_ok=True)
        self.files = _written_run(self.run)

    def attempt(self, rng: Random):
        if rng.random() < 0.12:
            return self._attempt_run(rng)
        action = rng.random()
        if action < 0.3:
            content = damaged(rng, self.small)
        elif action < 0.35:
            content = self.other
        elif action < 0.42:
            content = foreign(rng, self.trap)
        elif action < 0.5:
            cut, there = rng.randrange(len(self.small)), rng.randrange(len(self.other))
            content = self.small[:cut] + self.other[there:]
        else:
            content = self._forged(rng, self.small)
        self.path.write_bytes(content)
        read_about(self.path)
        state, _ = load_checkpoint(self.path, self.like)
        same = jax.tree.structure(state) == jax.tree.structure(self.like)
        assert same, "another structure"
        for x, y in zip(jax.tree.leaves(state), jax.tree.leaves(self.like)):
            assert (x.shape, x.dtype) == (y.shape, y.dtype), f"{x.shape} {x.dtype}"

    def _forged(self, rng: Random, data: bytes) -> bytes:
        """A file that someone made on purpose: its checksum is right."""
        size = int.from_bytes(data[:8], "little")
        header, body = json.loads(data[8 : 8 + size]), data[8 + size :]
        metadata = header["__metadata__"]
        action = rng.randrange(6)
        if action == 0:
            header = changed(rng, header)
        elif action == 1:
            body = damaged(rng, body)
        elif action == 2:
            body = body + bytes(rng.choice((1, 8, 1_000_000)))
        else:
            name = rng.choice(("about", "versions"))
            value = changed(rng, json.loads(metadata[name]))
            metadata[name] = json.dumps(value)
        if isinstance(header, dict) and isinstance(header.get("__metadata__"), dict):
            header["__metadata__"]["sha256"] = "0" * 64
        words = json.dumps(header, separators=(",", ":")).encode(errors="replace")
        length = len(words) + rng.choice((0, 0, 0, 0, 1, -1, 1 << 40))
        data = (length % (1 << 64)).to_bytes(8, "little") + words + body
        digest = hashlib.sha256(data).hexdigest().encode()
        return data.replace(b'"sha256":"' + b"0" * 64, b'"sha256":"' + digest, 1)

    def _attempt_run(self, rng: Random):
        files = dict(self.files)
        action = rng.random()
        if action < 0.55:
            config = json.loads(files[CONFIG])
            for _ in range(rng.choice((1, 1, 2))):
                config = changed(rng, config)
            files[CONFIG] = json.dumps(config).encode()
        elif action < 0.7:
            files[LAST] = self._forged(rng, files[LAST])
        elif action < 0.8:
            files[LAST] = self.small
        elif action < 0.9:
            del files[rng.choice(sorted(files))]
        else:
            name = rng.choice(sorted(files))
            files[name] = damaged(rng, files[name])
        for name in (CONFIG, LAST, BEST):
            (self.run / name).unlink(missing_ok=True)
        for name, content in files.items():
            (self.run / name).write_bytes(content)
        load_run(self.run)


def _written_run(folder) -> dict[str, bytes]:
    """The files of a run that has not begun to learn."""
    from eqsim_zoo.runs.folders import agents_of, read_run, write_config

    settings = {"num_envs": 4}
    write_config(folder, Run("ppo", "point_mass", 1000, settings=settings), False)
    run = read_run(folder, learns=False)
    skeleton = run.members.skeleton(run.source())
    zeros = jax.tree.map(_zeros, skeleton)
    about = {"agents": agents_of(run.members), "env": "x", "counters": {}}
    save_checkpoint(folder / LAST, zeros, about)
    return {name: (folder / name).read_bytes() for name in (CONFIG, LAST)}


def _zeros(x):
    if not isinstance(x, jax.ShapeDtypeStruct):
        return x
    if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        return jr.split(jr.key(0), x.shape) if x.shape else jr.key(0)
    return jnp.zeros(x.shape, x.dtype)
