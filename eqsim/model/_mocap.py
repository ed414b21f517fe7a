"""Mocap links, whose poses are inputs."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ._system import System


def set_mocap(
    sys: System,
    link: str | int,
    pos: Float[Array, "3"] | None = None,
    quat: Float[Array, "4"] | None = None,
) -> System:
    r"""Move a mocap link (MuJoCo: `mocap_pos`, `mocap_quat`).

    Shapes of a mocap link push others, and links with joints may be attached to it, but
    no force moves it, and its velocity is zero. Its pose is an input of a step: it can
    be changed without recompiling, batched and differentiated. Masses and softness of
    constraints do not depend on it.

    ```python
    moved = eqsim.set_mocap(sys, "hand", pos=jnp.array([0.1, 0.0, 0.5]))
    state = pipeline.step(moved, state, ctrl)
    ```

    **Arguments:**

    - `sys`: the robot.
    - `link`: name or index of a mocap link.
    - `pos`: position in the world, m. None keeps it.
    - `quat`: orientation in the world, scalar first; it need not have unit norm. None
        keeps it.

    **Returns:** the robot with the link at its new pose.

    **Raises:** `ValueError` if there is no such mocap link.
    """
    index = _mocap_index(sys, link)
    links = sys.links
    if pos is not None:
        links = eqx.tree_at(lambda x: x.pos, links, _with_row(links.pos, index, pos))
    if quat is not None:
        links = eqx.tree_at(lambda x: x.quat, links, _with_row(links.quat, index, quat))
    return eqx.tree_at(lambda s: s.links, sys, links)


def _with_row(values, index: int, row):
    if jnp.shape(row) != values.shape[1:]:
        raise ValueError(
            f"A part of the pose must have shape {values.shape[1:]}, got "
            f"{jnp.shape(row)}. For a batch of poses use eqx.filter_vmap."
        )
    return values.at[index].set(jnp.asarray(row, values.dtype))


def _mocap_index(sys: System, link: str | int) -> int:
    names, marks = sys.links.names, sys.links.mocap
    known = [name for name, mark in zip(names, marks) if mark]
    if isinstance(link, str):
        if link in known:
            return names.index(link)
    elif 0 <= link < len(names) and marks[link]:
        return link
    raise ValueError(
        f"{link!r} is not a mocap link. The mocap links of this robot are: "
        f"{', '.join(map(repr, known)) or 'none'}."
    )
