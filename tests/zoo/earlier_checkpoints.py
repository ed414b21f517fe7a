"""Writes checkpoints of the first format, which the zoo reads and no longer writes."""

import hashlib
import io
import json

import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np


NO_DIGEST = "0" * 64


def write_earlier(path, state, about):
    """Write a state with the header that the first version wrote."""
    body, leaves = io.BytesIO(), []
    for where, x in jtu.tree_flatten_with_path(state)[0]:
        if not isinstance(x, jax.Array | np.ndarray):
            continue
        name = jtu.keystr(where)
        leaves.append({"path": name, "shape": [*x.shape], "dtype": str(x.dtype)})
        key = jnp.issubdtype(x.dtype, jax.dtypes.prng_key)
        np.save(body, np.asarray(jr.key_data(x) if key else x), allow_pickle=False)
    path.write_bytes(signed({"about": about, "leaves": leaves}, body.getvalue()))


def signed(header, body):
    """A file with that header and the right checksum."""
    header = {
        "format": "eqsim-checkpoint-1",
        "sha256": NO_DIGEST,
        "bytes": f"{len(body):020d}",
        "versions": {},
    } | header
    blank = json.dumps(header).encode() + b"\n"
    digest = hashlib.sha256(body + blank).hexdigest()
    return blank.replace(NO_DIGEST.encode(), digest.encode()) + body
