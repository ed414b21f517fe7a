"""Checkpoints: what is read is what was written, or nothing."""

import errno
import json
import pathlib
import pickle

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
import safetensors
import safetensors.numpy
from helpers import examples
from hypothesis import given, HealthCheck, settings, strategies as st
from zoo.states import bits

from eqsim_zoo import SAC
from eqsim_zoo.runs import CheckpointError, load_checkpoint, read_about, save_checkpoint
from eqsim_zoo.runs.checkpoints import write_tensors
from eqsim_zoo.runs.folders import agents_of, check_agents
from eqsim_zoo.runs.members import members_of


BAD = ({"about": None}, {"about": [1]})


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


def test_any_program_reads_the_arrays(written):
    """The file is a safetensors file: checked with the library, which JAX does not need."""
    arrays = safetensors.numpy.load_file(written)
    expected = state()
    np.testing.assert_array_equal(arrays["['part'].weight"], expected["part"].weight)
    np.testing.assert_array_equal(arrays["['keys']"], jr.key_data(expected["keys"]))
    assert len(arrays) == 9 and "['none']" not in arrays
    with safetensors.safe_open(written, "numpy") as file:
        metadata = file.metadata()
    assert json.loads(metadata["versions"])["jax"] == jax.__version__
    assert json.loads(metadata["about"])["turn"] == 3


def test_files_have_the_permissions_of_other_files(tmp_path):
    save_checkpoint(tmp_path / "x.ckpt", state())
    (tmp_path / "plain").touch()
    modes = {(tmp_path / name).stat().st_mode for name in ("x.ckpt", "plain")}
    assert len(modes) == 1


def test_views_are_written_as_they_are(tmp_path):
    """Neither strides nor the order of axes in memory change the numbers."""
    x = np.arange(24.0).reshape(4, 6)
    views = {"columns": x[:, ::2], "turned": x.T, "scalar": np.asarray(2.0)}
    save_checkpoint(tmp_path / "x.ckpt", views)
    assert bits(load_checkpoint(tmp_path / "x.ckpt", views)[0]) == bits(views)
    save_checkpoint(tmp_path / "x.ckpt", {"swapped": x.astype(">f8")})
    found, _ = load_checkpoint(tmp_path / "x.ckpt", {"swapped": x.astype(">f8")})
    np.testing.assert_array_equal(found["swapped"], x)


def test_types_without_a_format_are_named(tmp_path):
    for x in (np.zeros(2, complex), jnp.zeros(2, jnp.float8_e4m3fn)):
        with pytest.raises(TypeError, match=x.dtype.name):
            save_checkpoint(tmp_path / "x.ckpt", {"z": x})
    assert not [*tmp_path.iterdir()]


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    max_examples=examples(60),
)
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
    for wrong, words in (
        (data[:-1] + b"?", "its checksum is wrong"),
        (data + b"more", "is damaged"),
        (data.replace(b"checkpoint-3", b"checkpoint-9", 1), "'eqsim-checkpoint-9'"),
    ):
        path.write_bytes(wrong)
        with pytest.raises(CheckpointError, match=words):
            load_checkpoint(path, eqx.filter_eval_shape(state))


@pytest.mark.parametrize(
    "content", (b"", pickle.dumps({}), safetensors.numpy.save({"x": np.zeros(3)}))
)
def test_foreign_files(tmp_path, content):
    path = tmp_path / "foreign"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="is not a checkpoint of eqsim-zoo"):
        load_checkpoint(path, state())
    with pytest.raises(CheckpointError, match="is not a checkpoint of eqsim-zoo"):
        read_about(path)
    with pytest.raises(FileNotFoundError, match="No checkpoint"):
        load_checkpoint(tmp_path / "nothing", state())


def forged(written, path, **changes):
    """Write a checkpoint whose metadata are changed on purpose, with the right
    checksum."""
    with safetensors.safe_open(written, "numpy") as file:
        metadata, names = file.metadata(), file.keys()
        found = {name: file.get_tensor(name) for name in names}
    changes = {name: json.dumps(value) for name, value in changes.items()}
    write_tensors(path, found, metadata | changes)


@pytest.mark.parametrize("changes", BAD, ids=str)
def test_metadata_of_other_types_are_one_error(written, tmp_path, changes):
    path = tmp_path / "x.ckpt"
    forged(written, path, **changes)
    for read in (read_about, lambda p: load_checkpoint(p, state())):
        with pytest.raises(CheckpointError, match="its metadata are invalid"):
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


def test_another_precision_is_named(tmp_path):
    """A checkpoint in single precision loads in single precision, also in a process that
    has double precision."""
    path, draw = (
        tmp_path / "single.ckpt",
        lambda: {"w": jnp.arange(3.0), "n": jr.key(0)},
    )
    with jax.enable_x64(False):
        save_checkpoint(path, draw())
    with pytest.raises(
        CheckpointError, match=r"in single precision.*has double.*is on"
    ) as e:
        load_checkpoint(path, eqx.filter_eval_shape(draw))
    assert "with jax.enable_x64(False):" in str(e.value)
    with jax.enable_x64(False):
        found, _ = load_checkpoint(path, eqx.filter_eval_shape(draw))
    assert found["w"].dtype == jnp.float32 and bits(found) != bits(draw())
    save_checkpoint(path, draw())
    with jax.enable_x64(False), pytest.raises(CheckpointError, match="is off") as e:
        load_checkpoint(path, eqx.filter_eval_shape(draw))
    assert "in double precision" in str(e.value) and "enable_x64(True)" in str(e.value)


def test_full_disk_keeps_the_old_file(tmp_path):
    """A limit of the size of files is what a full disk is to the process."""
    resource = pytest.importorskip("resource", reason="Windows has no such limit")
    path = tmp_path / "last.ckpt"
    save_checkpoint(path, state(), {"turn": 1})
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large") as error:
            save_checkpoint(path, state(2.0), {"turn": 2})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert error.value.errno == errno.EFBIG
    assert [file.name for file in tmp_path.iterdir()] == ["last.ckpt"]
    found, about = load_checkpoint(path, eqx.filter_eval_shape(state))
    assert about["turn"] == 1 and bits(found) == bits(state())
    save_checkpoint(path, state(2.0), {"turn": 2})
    assert load_checkpoint(path, state())[1]["turn"] == 2


def test_what_a_killed_process_left_is_removed(tmp_path):
    left = tmp_path / ".last.ckpt.incomplete"
    left.mkdir()
    (left / ".tmp1").write_text("half of a file")
    save_checkpoint(tmp_path / "last.ckpt", state())
    assert [file.name for file in tmp_path.iterdir()] == ["last.ckpt"]


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
