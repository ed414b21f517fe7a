"""Copies of trees, and their comparison."""

import copy
import pickle

import cloudpickle
import equinox as eqx
import jax.tree_util as jtu


COPIES = {
    "pickle": lambda x: pickle.loads(pickle.dumps(x)),
    "cloudpickle": lambda x: pickle.loads(cloudpickle.dumps(x)),
    "deepcopy": copy.deepcopy,
}


def assert_same(new, old):
    """Same numbers and same structure, so that compiled programs are shared."""
    assert eqx.tree_equal(new, old)
    assert jtu.tree_structure(new) == jtu.tree_structure(old)
    assert hash(jtu.tree_structure(new)) == hash(jtu.tree_structure(old))


def assert_copied(x):
    """Check that each kind of copy equals the original."""
    for copied in COPIES.values():
        assert_same(copied(x), x)
