import assets
import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import ml_dtypes
import numpy as np
import pytest
from helpers import tree_allclose

from eqsim.io import load, load_mjcf, save
from eqsim.model import State
from eqsim.testing import random_system


def same(x, y):
    return tree_allclose(x, y, rtol=0, atol=0)


@pytest.mark.parametrize("name", ("ant", "humanoid", "pusher_v5"))
def test_system(name, tmp_path):
    sys = load_mjcf(assets.path(name))
    save(tmp_path / "robot", sys)
    again = load(tmp_path / "robot")
    assert same(sys, again)
    assert hash(jax.tree.structure(sys)) == hash(jax.tree.structure(again))


@pytest.mark.parametrize("seed", range(5))
def test_random_system(seed, tmp_path):
    sys = random_system(seed)
    save(str(tmp_path / "robot.eqsim"), sys)
    assert same(sys, load(str(tmp_path / "robot.eqsim")))


def test_batch_of_systems(tmp_path):
    sys = random_system(3)
    fleet = eqx.filter_vmap(lambda s: eqx.tree_at(lambda x: x.dt, sys, s))(
        jnp.linspace(0.001, 0.002, 4)
    )
    save(tmp_path / "fleet", fleet)
    assert same(fleet, load(tmp_path / "fleet"))


def test_containers_of_ours(tmp_path):
    state = State(q=jnp.ones(3), qd=jnp.zeros(2), act=jnp.zeros(0), aux=(1, 2.5, None))
    tree = {"b": [state, state], "a": (random_system(0), True, np.arange(3))}
    save(tmp_path / "tree", tree)
    again = load(tmp_path / "tree")
    assert same(tree, again)
    assert type(again["a"][1]) is bool and type(again["b"][0].aux[1]) is float
    assert type(again["a"][2]) is np.ndarray


def test_system_of_another_precision(tmp_path):
    sys = random_system(0)
    save(tmp_path / "robot", jax.tree.map(lambda x: x.astype(jnp.float32), sys))
    again = load(tmp_path / "robot", like=sys)
    assert again.links.mass.dtype == sys.links.mass.dtype
    assert np.allclose(again.links.mass, sys.links.mass, rtol=1e-6)


class Network(eqx.Module):
    weight: jax.Array
    scale: float
    key: jax.Array
    name: str = eqx.field(static=True, default="net")
    activation: object = jnp.tanh


def test_other_trees_need_like(tmp_path):
    small = jnp.asarray([1.5, 2.5], jnp.bfloat16)
    net = Network((jnp.ones((2, 3)), small), 3.0, jr.key(7))
    save(tmp_path / "net", net)
    with pytest.raises(ValueError, match="arrays of a pytree, but not its structure"):
        load(tmp_path / "net")
    like = Network((jnp.zeros((2, 3)), jnp.zeros_like(small)), 0.0, jr.key(0))
    again = load(tmp_path / "net", like=like)
    assert np.array_equal(again.weight[0], net.weight[0]) and again.scale == 3.0
    assert again.weight[1].dtype == ml_dtypes.bfloat16
    assert np.array_equal(again.weight[1], small)
    assert jnp.all(jr.key_data(again.key) == jr.key_data(net.key))
    assert again.activation is jnp.tanh
    shapes = eqx.filter_eval_shape(lambda: jnp.zeros((2, 3)))
    with pytest.raises(ValueError, match="does not fit"):
        load(tmp_path / "net", like=shapes)


def test_like_may_be_shapes(tmp_path):
    save(tmp_path / "x", {"x": jnp.arange(3.0)})
    like = {"x": jax.ShapeDtypeStruct((3,), jnp.float32)}
    assert load(tmp_path / "x", like=like)["x"].dtype == jnp.float32


def test_shape_mismatch_names_the_field(tmp_path):
    save(tmp_path / "x", {"x": jnp.arange(3.0)})
    with pytest.raises(ValueError, match=r"\['x'\] has shape \(3,\).*\(4,\) in `like`"):
        load(tmp_path / "x", like={"x": jnp.zeros(4)})


def test_structure_mismatch_names_the_field(tmp_path):
    save(tmp_path / "x", {"x": jnp.arange(3.0)})
    with pytest.raises(
        ValueError, match=r"missing in the file .*'y'.*missing in `like` .*'x'"
    ):
        load(tmp_path / "x", like={"y": jnp.zeros(3)})


def test_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="There is no file"):
        load(tmp_path / "nothing")


@pytest.mark.parametrize("content", (b"", b"hello", b"PK\x03\x04 broken"))
def test_wrong_file(tmp_path, content):
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(ValueError, match="was not written by this version of eqsim"):
        load(tmp_path / "file")


def test_someone_elses_archive(tmp_path):
    with open(tmp_path / "file", "wb") as file:
        np.savez(file, a=np.zeros(3))
    with pytest.raises(ValueError, match="was not written by this version of eqsim"):
        load(tmp_path / "file")


def test_no_code_is_run(tmp_path):
    """A file that would need pickle is rejected."""
    with open(tmp_path / "file", "wb") as file:
        np.savez(file, header=np.array([print], dtype=object))
    with pytest.raises(ValueError, match="was not written by this version of eqsim"):
        load(tmp_path / "file")
