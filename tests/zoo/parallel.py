"""Trains on several devices, or by several processes, for test_parallel.py.

    python parallel.py DEVICES PROCESSES NUMBER PORT AGENT OUT

Writes metrics and shardings, of one device by itself too, if there are several; with
another OUT it trains, and writes a run.
"""

import json
import pathlib
import sys

import jax


devices, processes, number, port = map(int, sys.argv[1:5])
jax.config.update("jax_num_cpu_devices", devices)
jax.config.update("jax_enable_x64", True)
if processes > 1:
    jax.distributed.initialize(f"127.0.0.1:{port}", processes, number)

import equinox as eqx
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
from agents import AGENTS, init, iterate

import eqsim
import eqsim_zoo as zoo
from eqsim.testing.probes import observed_action_reward


def placed(state):
    """Where arrays lie, with what is everywhere written alike."""
    leaves = [x for x in jtu.tree_leaves(state) if eqx.is_array(x)]
    return [str(x.sharding.spec) for x in leaves]


def steps():
    """Return a dataset of images and vectors."""
    draws, rows = np.random.default_rng(0), 64
    camera = draws.integers(0, 256, (rows, 8, 8, 3)).astype(np.uint8)
    obs = {"camera": camera, "joints": draws.normal(size=(rows, 3))}
    action, reward = draws.uniform(-1, 1, (rows, 2)), draws.normal(size=rows)
    back, over = jtu.tree_map(lambda x: x[::-1], obs), np.arange(rows) % 8 == 7
    return zoo.data.Dataset.create(obs, action, reward, back, over, ~over)


def turns(agent):
    env = observed_action_reward()
    if isinstance(agent, zoo.agents.AbstractSkillAgent):
        env = agent.__eqsim_wrap__(env)
    if isinstance(agent, zoo.Offline):
        env = steps()
    state = init(agent, jr.key(0), env)
    first, reports = placed(state), []
    for _ in range(10):
        state, report = iterate(agent, state, env)
        reports.append({name: float(x) for name, x in report.items()})
    return {"reports": reports, "first": first, "last": placed(state)}


IMPALA = zoo.vision.Impala(widths=(2,), blocks=1, outputs=4)
IMAGES = zoo.vision.Images(IMPALA, augmentations=(zoo.vision.RandomCrop(2),))
OTHERS = {
    "dads": zoo.DADS(sac=AGENTS["sac"], hidden=(32,), importance_weights=True),
    "bc": zoo.Offline(zoo.BC(hidden=(8,), inputs=IMAGES), 32, 3),
}
agent, out = (AGENTS | OTHERS)[sys.argv[5]], pathlib.Path(sys.argv[6])
alone = {}
if out.suffix == ".json" and processes == 1:
    with jax.set_mesh(zoo.blocks.device_mesh(jax.devices()[:1])):
        alone = turns(agent)
with jax.set_mesh(zoo.blocks.device_mesh()):
    if out.suffix == ".json":
        found = turns(agent) if devices * processes > 1 else alone
        found |= {"alone": alone.get("reports"), "devices": len(jax.devices())}
        if jax.process_index() == 0:
            out.write_text(json.dumps(found))
    else:
        result = zoo.train(
            zoo.Run(
                agent,
                eqsim.make("point_mass")
                if sys.argv[5] == "ppo"
                else observed_action_reward(),
                1024,
                episode_length=8,
                turns=4,
                evaluations=2,
                episodes=4,
            ),
            out=out,
            callbacks=[zoo.training.Video()] if sys.argv[5] == "ppo" else [],
        )
        print(result.counters.steps)
