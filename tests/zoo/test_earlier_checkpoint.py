"""Checkpoints of the first format: read as they were written, or refused."""

import io
import json
import pathlib

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
import pytest
from zoo.earlier_checkpoints import NO_DIGEST, signed, write_earlier
from zoo.states import bits
from zoo.test_checkpoint import BAD, state

from eqsim.testing import probes
from eqsim_zoo import SAC
from eqsim_zoo.blocks import training_env
from eqsim_zoo.blocks.networks import FeaturesNetwork
from eqsim_zoo.blocks.observations import Features
from eqsim_zoo.runs import CheckpointError, load_checkpoint, read_about
from eqsim_zoo.runs._members import members_of
from eqsim_zoo.vision.encoders import SmallCNN


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    path = tmp_path_factory.mktemp("checkpoint") / "last.ckpt"
    write_earlier(path, state(), {"turn": 3, "rate": 0.1})
    return path


def test_round_trip(written):
    found, about = load_checkpoint(written, eqx.filter_eval_shape(state))
    assert bits(found) == bits(state())
    assert about == read_about(written) == {"turn": 3, "rate": 0.1}


def test_file_of_an_earlier_version():
    """`first_format.ckpt` holds `state()`, as written by the last version with this
    format."""
    path = pathlib.Path(__file__).with_name("first_format.ckpt")
    found, about = load_checkpoint(path, eqx.filter_eval_shape(state))
    assert bits(found) == bits(state())
    assert about == {"turn": 3, "rate": 0.1}


def test_damage_is_named(written, tmp_path):
    path, data = tmp_path / "x.ckpt", written.read_bytes()
    begin = data.index(b"\n") + 1
    for wrong, words in (
        (data[:-5], f"{len(data) - begin - 5} bytes follow its first line"),
        (data[:-1] + b"?", "its checksum is wrong"),
        (data + b"more", "bytes follow its first line"),
        (data.replace(b"checkpoint-1", b"checkpoint-9", 1), "'eqsim-checkpoint-9'"),
        (data[: begin - 9], "its first line is invalid"),
    ):
        path.write_bytes(wrong)
        with pytest.raises(CheckpointError, match=words):
            load_checkpoint(path, eqx.filter_eval_shape(state))


@pytest.mark.parametrize("changes", ({"bytes": float("inf")}, *BAD), ids=str)
def test_a_first_line_of_other_types_is_one_error(written, tmp_path, changes):
    line, _, body = written.read_bytes().partition(b"\n")
    header = json.loads(line) | {"sha256": NO_DIGEST} | changes
    path = tmp_path / "x.ckpt"
    path.write_bytes(signed(header, body))
    for read in (read_about, lambda p: load_checkpoint(p, state())):
        with pytest.raises(CheckpointError, match="its first line is invalid"):
            read(path)


class Trap:
    """Makes a file where it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return pathlib.Path.touch, (self.path,)


def test_nothing_is_executed(tmp_path):
    """A file with a right checksum, whose array is a pickle."""
    trap, path = tmp_path / "trap", tmp_path / "x.ckpt"
    out = io.BytesIO()
    np.save(out, np.array([Trap(trap)], object), allow_pickle=True)
    leaf = {"path": "", "shape": [1], "dtype": "float32"}
    path.write_bytes(signed({"about": {}, "leaves": [leaf]}, out.getvalue()))
    with pytest.raises(CheckpointError, match="differ from its first line"):
        load_checkpoint(path, jnp.zeros(1, jnp.float32))
    assert not trap.exists()


def test_encoders_of_other_images_are_refused(tmp_path):
    """Images had values from 0 to 1, now they have values from -0.5 to 0.5."""
    camera = SmallCNN((4,), (3,), (1,), 2).create(jr.key(0), (8, 8, 3))
    network = FeaturesNetwork(Features({"camera": camera}), jnp.zeros(3))
    write_earlier(tmp_path / "x.ckpt", network, {})
    with pytest.raises(CheckpointError, match="image encoder .* Train the agent again"):
        load_checkpoint(tmp_path / "x.ckpt", network)


def test_critics_of_several_seeds_are_no_encoders(tmp_path):
    """Their weights have an axis of seeds and one of critics: four with those of a layer."""
    agents = [SAC(num_envs=2, critic_hidden=(4,), batch_size=4, capacity=8)] * 2
    members = members_of(agents, 0, 1)
    whole = training_env(probes.constant_reward(), 5, 0, jr.key(0))
    critics = members.skeleton(whole).critic
    zeros = jtu.tree_map(lambda x: jnp.zeros(x.shape, x.dtype), critics)
    assert 4 in {x.ndim for x in jtu.tree_leaves(zeros)}
    write_earlier(tmp_path / "x.ckpt", zeros, {})
    found, _ = load_checkpoint(tmp_path / "x.ckpt", critics)
    assert bits(found) == bits(zeros)
