"""Files of `eqsim.save`: damaged, foreign, with a changed header or changed arrays."""

import json
from random import Random

import jax.numpy as jnp
import numpy as np

import eqsim
from eqsim.io import load_mjcf

from .models import ASSETS, MODELS
from .mutations import archive, arrays_changed, changed, damaged, foreign


class Kind:
    """Law: `load` returns a pytree, or raises `ValueError`."""

    REFUSALS = (ValueError, FileNotFoundError)
    WRITES = ()

    def __init__(self, folder):
        self.folder, self.path, self.written = folder, folder / "x.npz", []
        self.robot = load_mjcf(MODELS[0])
        trees = [
            self.robot,
            load_mjcf(MODELS[3], ASSETS),
            eqsim.Generalized().init(self.robot),
        ]
        trees += [{"a": (jnp.ones((2, 3)), 1, True), "b": [None, np.arange(3)]}]
        for tree in trees:
            eqsim.save(self.path, tree)
            with np.load(self.path) as file:
                arrays = {name: file[name] for name in file.files}
            self.written.append((self.path.read_bytes(), arrays))

    def attempt(self, rng: Random):
        data, arrays = rng.choice(self.written)
        action = rng.random()
        trap = self.folder / "here" / "canary"
        if action < 0.25:
            content = damaged(rng, data)
        elif action < 0.35:
            content = foreign(rng, trap)
        elif action < 0.7:
            header = json.loads(arrays["header"].tobytes())
            for _ in range(rng.choice((1, 1, 2, 3))):
                header = changed(rng, header)
            text = json.dumps(header).encode(errors="replace")
            if rng.random() < 0.03:
                text = b"[" * 100_000
            arrays = arrays | {"header": np.frombuffer(text, np.uint8)}
            content = archive(rng, arrays, trap, change=False)
        else:
            content = archive(rng, arrays_changed(rng, arrays), trap)
        self.path.write_bytes(content)
        like = self.robot if rng.random() < 0.2 else None
        eqsim.load(self.path, like)
