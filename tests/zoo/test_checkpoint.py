"""Checkpoints: what is read is what was written, or nothing."""

import hashlib
import io
import json
import os
import pathlib
import pickle

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from hypothesis import given, HealthCheck, settings, strategies as st
from zoo.states import bits

from eqsim_zoo import SAC
from eqsim_zoo.blocks import DeterministicPolicy, MLP
from eqsim_zoo.blocks._heads import GaussianPolicy
from eqsim_zoo.runs import CheckpointError, load_checkpoint, read_about, save_checkpoint
from eqsim_zoo.runs._folder import agents_of, check_agents
from eqsim_zoo.runs._members import members_of
from eqsim_zoo.vision import EncodedNetwork, Encoders


class Part(eqx.Module):
    weight: jax.Array
    name: str = eqx.field(static=True)
    act: object = jnp.tanh


def state(scale=1.0, size=3):
    """Types that are easy to lose."""
    return {
        "part": Part(scale * jnp.arange(2.0 * size).reshape(2, size), "a"),
        "half": jnp.asarray([scale, 1.1], jnp.bfloat16),
        "flag": jnp.asarray([True, False]),
        "count": jnp.asarray(2**31 - 1, jnp.int32),
        "odd": (jnp.asarray([jnp.nan, -0.0, jnp.inf], jnp.float32), jnp.zeros((0, 4))),
        "keys": jr.split(jr.key(7)),
        "other": jr.key(3, impl="rbg"),
        "plain": np.arange(3, dtype=np.uint8),
        "none": None,
    }


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    path = tmp_path_factory.mktemp("checkpoint") / "last.ckpt"
    save_checkpoint(path, state(), {"turn": 3, "rate": 0.1, "bad": float("nan")})
    return path


def test_round_trip(written):
    like = eqx.filter_eval_shape(state)
    found, about = load_checkpoint(written, like)
    assert bits(found) == bits(state())
    assert jax.tree.structure(found) == jax.tree.structure(state())
    assert found["other"].dtype == state()["other"].dtype
    assert isinstance(found["plain"], jax.Array | np.ndarray)
    assert about["turn"] == 3 and about["rate"] == 0.1
    assert read_about(written)["turn"] == 3
    header = json.loads(written.read_bytes().split(b"\n")[0])
    assert header["versions"]["jax"] == jax.__version__
    assert {"path": "['part'].weight", "shape": [2, 3], "dtype": "float64"} in header[
        "leaves"
    ]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(share=st.floats(0, 1, exclude_max=True), flip=st.integers(1, 255))
def test_any_damage_is_seen(written, tmp_path, share, flip):
    """Every byte counts, in the first line as in the numbers; so does every missing one."""
    data = bytearray(written.read_bytes())
    place = int(share * len(data))
    like = eqx.filter_eval_shape(state)
    path = tmp_path / "damaged.ckpt"
    path.write_bytes(data[:place])
    with pytest.raises(CheckpointError):
        load_checkpoint(path, like)
    data[place] ^= flip
    path.write_bytes(data)
    with pytest.raises(CheckpointError):
        load_checkpoint(path, like)


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


@pytest.mark.parametrize("content", (b"", b"\x89PNG\r\n", b"{}\n", pickle.dumps({})))
def test_foreign_files(tmp_path, content):
    path = tmp_path / "foreign"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="is not a checkpoint of eqsim-zoo"):
        load_checkpoint(path, state())
    with pytest.raises(CheckpointError, match="is not a checkpoint of eqsim-zoo"):
        read_about(path)
    with pytest.raises(FileNotFoundError, match="No checkpoint"):
        load_checkpoint(tmp_path / "nothing", state())


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
    header = {
        "format": "eqsim-checkpoint-1",
        "sha256": "0" * 64,
        "bytes": f"{out.tell():020d}",
        "versions": {},
        "about": {},
        "leaves": [{"path": "", "shape": [1], "dtype": "float32"}],
    }
    line = json.dumps(header).encode() + b"\n"
    digest = hashlib.sha256(out.getvalue() + line).hexdigest()
    path.write_bytes(line.replace(b"0" * 64, digest.encode()) + out.getvalue())
    with pytest.raises(CheckpointError, match="do not match its first line"):
        load_checkpoint(path, jnp.zeros(1, jnp.float32))
    assert not trap.exists()


def forged(written, **changes):
    """A checkpoint whose first line was changed on purpose: its checksum is right."""
    line, _, body = written.read_bytes().partition(b"\n")
    header = json.loads(line) | changes | {"sha256": "0" * 64}
    blank = json.dumps(header).encode() + b"\n"
    digest = hashlib.sha256(body + blank).hexdigest()
    return json.dumps(header | {"sha256": digest}).encode() + b"\n" + body


@pytest.mark.parametrize(
    "changes",
    (
        {"about": None},
        {"bytes": float("inf")},
        {"leaves": 3},
        {"leaves": [{"path": {}, "shape": [1], "dtype": "float32"}]},
        {"leaves": [{"path": None, "shape": [1], "dtype": "float32"}]},
        {"leaves": [{"path": "", "shape": "1", "dtype": "float32"}]},
        {"leaves": [{"path": "", "shape": [1.5], "dtype": "float32"}]},
        {"leaves": [{"path": "", "shape": [1]}]},
    ),
    ids=str,
)
def test_a_first_line_of_other_types_is_one_error(written, tmp_path, changes):
    path = tmp_path / "x.ckpt"
    path.write_bytes(forged(written, **changes))
    for read in (read_about, lambda p: load_checkpoint(p, state())):
        with pytest.raises(CheckpointError, match="its first line is invalid"):
            read(path)


def test_what_differs_is_named(written):
    like = eqx.filter_eval_shape(lambda: state(size=4))
    like["half"] = jax.ShapeDtypeStruct((2,), jnp.float32)
    del like["flag"]
    like["new"] = jnp.zeros(3)
    with pytest.raises(CheckpointError) as error:
        load_checkpoint(written, like)
    for words in (
        "['part'].weight: float64[2, 3] in the file, float64[2, 4] in the agent",
        "['half']: bfloat16[2] in the file, float32[2] in the agent",
        "['flag']: bool[2] in the file, missing in the agent",
        "['new']: missing in the file, float64[3] in the agent",
    ):
        assert words in str(error.value)
    assert "count" not in str(error.value)


@pytest.mark.skipif(
    not os.path.exists("/dev/full"), reason="needs a device that is full"
)
def test_full_disk_keeps_the_old_file(written, tmp_path):
    path = tmp_path / "last.ckpt"
    save_checkpoint(path, state(), {"turn": 1})
    (tmp_path / "last.ckpt.part").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left"):
        save_checkpoint(path, state(2.0), {"turn": 2})
    assert [file.name for file in tmp_path.iterdir()] == ["last.ckpt"]
    found, about = load_checkpoint(path, eqx.filter_eval_shape(state))
    assert about["turn"] == 1 and bits(found) == bits(state())
    save_checkpoint(path, state(2.0), {"turn": 2})
    assert load_checkpoint(path, state())[1]["turn"] == 2


def test_leaves_that_were_removed(tmp_path):
    """A checkpoint of TD3+BC from when its policy had a deviation that was never used."""
    network = MLP.create(jr.key(0), (3, 4, 2), dtype=jnp.zeros(()).dtype)
    see = lambda policy: (EncodedNetwork(Encoders({}), policy), jnp.arange(5))
    old = see(GaussianPolicy(network, jnp.zeros(2)))
    new = see(DeterministicPolicy(network))
    save_checkpoint(tmp_path / "old.ckpt", old)
    found, _ = load_checkpoint(tmp_path / "old.ckpt", new)
    assert bits(found) == bits(new)
    save_checkpoint(tmp_path / "new.ckpt", new)
    with pytest.raises(CheckpointError, match=r"raw: missing in the file"):
        load_checkpoint(tmp_path / "new.ckpt", old)


def test_fields_that_were_added():
    """A run of a version whose agents had fewer fields is that of an agent whose new
    fields have their defaults."""
    members = members_of(SAC(), 0, 1)
    stored = agents_of(members)
    del stored[0]["fields"]["learn_temperature"]
    check_agents(pathlib.Path(), stored, members)
    other = members_of(SAC(learn_temperature=False), 0, 1)
    with pytest.raises(ValueError, match="learn_temperature: no such field in the run"):
        check_agents(pathlib.Path(), stored, other)
