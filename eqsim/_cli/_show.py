"""`eqsim show`"""

from typing import Any

import equinox as eqx
import jax
import jax.random as jr
import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..envs import AbstractEnv
from ..model import System
from ..randomize import presets
from ..wrappers import AbstractDescriptor, nested_envs
from ._names import environment, plain


def show(name: str, pipeline: str | None) -> None:
    """Print a description of an environment, without compiling it."""
    env = environment(name, pipeline)
    console = Console(highlight=False)
    print(f"{env.sys}\n")
    console.print(_facts(name, env))
    console.print()
    console.print(_masses(env.sys))


def _facts(name: str, env: AbstractEnv) -> Table:
    _, timestep = eqx.filter_eval_shape(env.reset, jr.key(0))
    rows = {
        "environment": " in ".join(type(x).__name__ for x in [*nested_envs(env)][::-1]),
        "pipeline": type(env.pipeline).__name__,
        "control step": f"{float(env.dt):.4g} s ({1 / float(env.dt):.4g} Hz)",
        "time step": f"{float(env.sys.dt):.4g} s",
        "coordinates": f"nq {env.sys.nq}, nv {env.sys.nv}",
        "observation": _observation(timestep.obs),
        "action": _actions(env),
        "reward": " + ".join(timestep.terms),
    }
    for layer in nested_envs(env):
        if isinstance(layer, AbstractDescriptor):
            span = np.asarray(layer.descriptor_range)
            pairs = zip(layer.descriptor_names, span, strict=True)
            rows["descriptor"] = "\n".join(f"{n} {_interval(*r)}" for n, r in pairs)
    rows["presets"] = ", ".join(presets(plain(name)))
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for key, value in rows.items():
        table.add_row(Text(key), Text(value))
    return table


def _observation(obs: Any) -> str:
    """Return the shape of an observation, and those of the parts of a dictionary."""
    if isinstance(obs, dict):
        width = max(map(len, obs))
        parts = (f"{k:{width}}  {_observation(x)}" for k, x in sorted(obs.items()))
        return "\n".join(parts)
    if not isinstance(obs, jax.ShapeDtypeStruct):
        return repr(obs)
    shape = " x ".join(map(str, obs.shape)) or "one number"
    # A floating-point vector is the usual case.
    usual = len(obs.shape) == 1 and np.issubdtype(obs.dtype, np.floating)
    return shape if usual else f"{shape}, {obs.dtype}"


def _actions(env: AbstractEnv) -> str:
    span, names = np.asarray(env.action_range), env.sys.actuators.ctrl_names
    if not len(names):
        return "none"
    width = max(map(len, names))
    lines = [f"{n:{width}}  {_interval(*row)}" for n, row in zip(names, span)]
    return "\n".join(lines)


def _interval(low: float, high: float) -> str:
    return f"[{low:.4g}, {high:.4g}]"


def _masses(sys: System) -> Table:
    mass = np.asarray(sys.links.mass, float)
    table = Table(box=None, pad_edge=False, header_style="bold", show_footer=True)
    table.add_column("link", footer="total", footer_style="bold")
    total = f"{mass.sum():.4g}"
    table.add_column("mass, kg", footer=total, justify="right", footer_style="bold")
    for name, value in zip(sys.links.names, mass, strict=True):
        table.add_row(Text(name), f"{value:.4g}")
    return table
