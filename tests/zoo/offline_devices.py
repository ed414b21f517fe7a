"""Learns from a recording on several devices, for test_offline_training.py.

python offline_devices.py DEVICES AGENT OUT
"""

import json
import pathlib
import sys

import jax


jax.config.update("jax_num_cpu_devices", int(sys.argv[1]))
jax.config.update("jax_enable_x64", True)

import equinox as eqx
import jax.random as jr
import jax.tree_util as jtu
import numpy as np

import eqsim_zoo as zoo
from eqsim_zoo import vision


def placed(state):
    """Where arrays lie."""
    leaves = [x for x in jtu.tree_leaves(state) if eqx.is_array(x)]
    return [str(x.sharding.spec) for x in leaves]


draws, rows = np.random.default_rng(0), 64
joints, action = draws.normal(size=(rows, 3)), draws.uniform(-1, 1, (rows, 2))
obs = joints
if sys.argv[2] == "bc":
    camera = draws.integers(0, 256, (rows, 8, 8, 3)).astype(np.uint8)
    obs = {"camera": camera, "joints": joints}
over = np.arange(rows) % 8 == 7
data = zoo.data.Dataset.create(
    obs,
    action,
    draws.normal(size=rows),
    jtu.tree_map(lambda x: x[::-1], obs),
    over,
    ~over,
)
agent = {
    "bc": lambda: zoo.BC(
        hidden=(8,),
        inputs=vision.Images(
            vision.Impala(widths=(2,), blocks=1, outputs=4),
            augmentations=(vision.RandomCrop(2),),
        ),
    ),
    "cql": lambda: zoo.CQL(hidden=(8,), num_actions=2),
}[sys.argv[2]]()
learner = zoo.Offline(agent, batch_size=32, num_updates=3)
env = data
with jax.set_mesh(zoo.blocks.device_mesh()):
    state = eqx.filter_jit(learner.init)(jr.key(0), env)
    first, reports = placed(state), []
    for _ in range(5):
        state, report = eqx.filter_jit(learner.iterate)(state, env)
        reports.append({name: float(x) for name, x in report.items()})
found = {"reports": reports, "first": first, "last": placed(state)}
found["devices"] = len(jax.devices())
pathlib.Path(sys.argv[3]).write_text(json.dumps(found))
