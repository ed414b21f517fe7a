"""Norm of the gradient of a policy through the physics, by horizon.

    python benchmarks/policy_gradients.py --out out/bench \\
        --markdown docs/policy_gradients.md --pictures docs/images
"""

import pathlib
from typing import Any

import equinox as eqx
import jax
import jax.flatten_util as jfu
import jax.numpy as jnp
import jax.random as jr
import matplotlib
import numpy as np
from _bench import parser, publish, say, setting
from _bench import physics
from _bench import caption, table
from matplotlib.figure import Figure

import eqsim
from eqsim.wrappers import ScaleAction
from eqsim_zoo.blocks import MLP


DISCOUNT = 0.99
KINDS = "largest", "mean", "median"
BEFORE = 32
EXPLANATION = """\
The table lists norms of the gradient of the mean reward
$\\frac{{1}}{{h}} \\sum_{{t<h}} \\gamma^t r_t$ over $h$ control steps (the horizon), with
respect to the parameters of an untrained policy (two hidden layers of 64, as in `APG`;
$\\gamma$ = {discount}). {batch} environments start from the states after {before} steps.
`mean` is the norm of the gradient of the mean over all environments, which APG uses; `median`
and `largest` are taken over the norms of single environments. For unstable motions, the norms
grow with the horizon, and a few environments dominate the mean. `APG.max_grad_norm` clips the
gradient."""


def main() -> None:
    """Compute gradients, and write table and plot."""
    options = _options()
    pictures = options.pictures or options.out
    pictures.mkdir(parents=True, exist_ok=True)
    where, rows = setting(options), []
    for env in options.envs:
        say(f"gradients of {env}")
        rows += _gradients(env, options)
        data, text = {"where": where, "rows": rows}, report(where, rows, options)
        publish(options, "policy_gradients", data, text)
    _draw(rows, pictures / "policy_gradients.png")
    print(report(where, rows, options))


class _Policy(eqx.Module):
    """The policy of `APG`."""

    network: MLP

    def __call__(self, obs, key):
        return jnp.tanh(self.network(obs))


def _gradients(name: str, options) -> list[dict[str, Any]]:
    env = ScaleAction(eqsim.make(name))
    keys = jr.split(jr.key(0), options.batch)
    _, timestep = jax.eval_shape(env.reset, keys[0])
    sizes = timestep.obs.shape[0], 64, 64, env.sys.nu
    network = MLP.create(jr.key(1), sizes, jnp.tanh, last_scale=0.01, layer_norm=True)
    policy = _Policy(network)
    each, mean = jax.device_get(_norms(env, policy, keys, tuple(options.horizons)))
    return [
        {
            "environment": name,
            "horizon": horizon,
            "mean": float(mean[i]),
            "median": float(np.median(each[:, i])),
            "largest": float(each[:, i].max()),
            "physics": physics("apg", name),
        }
        for i, horizon in enumerate(options.horizons)
    ]


@eqx.filter_jit
def _norms(env, policy, keys, horizons):
    """Return norms of gradients of single environments and of their mean, for all
    horizons, with one cotangent each."""
    length = max(horizons)
    least = np.array(horizons)[:, None]
    cotangents = (np.arange(length) < least) * DISCOUNT ** np.arange(length) / least
    dynamic, static = eqx.partition(policy, eqx.is_array)
    flat, restore = jfu.ravel_pytree(dynamic)

    def one(key):
        _, start = eqsim.rollout(env, policy, key, BEFORE, collect=lambda *_: ())

        def rewards(flat):
            whole = eqx.combine(restore(flat), static)
            keep = lambda state, action, timestep: timestep.reward
            kept, _ = eqsim.rollout(env, whole, key, length, start=start, collect=keep)
            return kept

        _, pull = jax.vjp(rewards, flat)
        (out,) = jax.vmap(pull)(jnp.asarray(cotangents, jnp.float32))
        return out

    each = jax.vmap(one)(keys)
    return jnp.linalg.norm(each, axis=-1), jnp.linalg.norm(each.mean(0), axis=-1)


def _draw(rows: list[dict[str, Any]], path: pathlib.Path) -> None:
    names = list(dict.fromkeys(row["environment"] for row in rows))
    style = {"axes.spines.top": False, "axes.spines.right": False, "font.size": 10}
    with matplotlib.rc_context(style):
        figure = Figure(figsize=(4.2 * len(names), 3.6), layout="constrained", dpi=110)
        for axes, name in zip(np.ravel(figure.subplots(1, len(names))), names):
            own = [row for row in rows if row["environment"] == name]
            horizons = [row["horizon"] for row in own]
            for kind in KINDS:
                axes.loglog(horizons, [row[kind] for row in own], "o-", label=kind)
            axes.set_xticks(horizons, [str(x) for x in horizons])
            axes.minorticks_off()
            # A power of two on both sides, because a decade may have no tick.
            values = np.array([row[kind] for row in own for kind in KINDS])
            low, high = np.floor(np.log2(values.min())), np.ceil(np.log2(values.max()))
            marks = 2.0 ** np.arange(low, high + 1)
            axes.set_yticks(marks, [f"{x:g}" for x in marks])
            axes.set_title(name)
            axes.set_xlabel("horizon, control steps")
            axes.set_ylabel("norm of the gradient")
            axes.grid(alpha=0.3)
        axes.legend()
        figure.savefig(path)


def report(where: dict[str, Any], rows: list[dict[str, Any]], options) -> str:
    """Return the measurements so far."""
    text = EXPLANATION.format(batch=options.batch, before=BEFORE, discount=DISCOUNT)
    picture = "![Gradients by horizon](images/policy_gradients.png)"
    head = "# Policy gradients by horizon\n"
    return "\n".join([head, text, "", caption(where), "", table(rows), "", picture, ""])


def _options():
    made = parser(__doc__ or "", repeats=1)
    add = made.add_argument
    add("--envs", nargs="*", default=["hopper", "half_cheetah"], help="differentiated")
    add("--horizons", nargs="*", type=int, default=[1, 2, 4, 8, 16, 32, 64])
    add("--batch", type=int, default=64)
    add(
        "--pictures", type=pathlib.Path, help="folder of the pictures; by default --out"
    )
    return made.parse_args()


if __name__ == "__main__":
    main()
