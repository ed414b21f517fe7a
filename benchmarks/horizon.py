"""Gradients through long rollouts: time, memory, and norms by horizon.

    python benchmarks/horizon.py --out out/bench
    python benchmarks/horizon.py --norms --out out/bench \\
        --markdown out/policy_gradients.md --pictures docs/images

`--norms` lists the norms of gradients of a policy by the horizon instead.
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
from _bench import caption, interleaved, parser, publish, say, setting, table
from _training import physics
from matplotlib.figure import Figure

import eqsim
from eqsim.wrappers import ScaleAction
from eqsim_zoo.blocks import MLP


EXPLANATION = """\
Value and gradient of the mean squared final coordinates with respect to the gains of a
linear policy, for {batch} ants over `steps` control steps (five physics steps each), on
one device. `every`: `checkpoint_every` of `eqsim.rollout`. `memory`: temporary memory of
the program, MB. `cost`: time for value and gradient over time for the value. `gradient`:
largest entry of the gradient. `share finite`: fraction of its entries that are finite."""
MIDDLE = {1: 1, 32: 8, 200: 20, 1000: 40}


class Linear(eqx.Module):
    """A linear policy."""

    gains: jax.Array

    def __call__(self, obs, key):
        return self.gains @ obs


def main() -> None:
    """Measure every horizon, and write the results after each."""
    options = _options()
    (_norms_main if options.norms else _cost_main)(options)


def _cost_main(options) -> None:
    """Measure every horizon with and without checkpoints."""
    where, rows = setting(options), []
    env = eqsim.make("ant", include_cfrc_ext_in_observation=False)
    for length in options.lengths:
        for every in dict.fromkeys([None, 1, MIDDLE.get(length, 1)]):
            rows.append(_cell(env, length, every, options))
            say(rows[-1])
            data = {"where": where, "rows": rows}
            publish(options, "horizon", data, report(where, rows, options))
    print(f"\n{report(where, rows, options)}")


def _cell(env, length: int, every: int | None, options) -> dict[str, Any]:
    keys = jr.split(jr.key(0), options.batch)
    size = env.sys.nu, env.begin(env.pipeline.init(env.sys))[1].obs.shape[0]
    gains = 0.05 * jr.normal(jr.key(1), size)

    def loss(gains):
        _, (last, _) = eqsim.rollout(
            env,
            Linear(gains),
            keys,
            length,
            collect=lambda *_: (),
            checkpoint_every=every,
        )
        return jnp.mean(last.q**2)

    value = jax.jit(loss).lower(gains).compile()
    both = jax.jit(jax.value_and_grad(loss)).lower(gains).compile()
    memory = both.memory_analysis().temp_size_in_bytes / 1e6
    calls = {"value": lambda: value(gains), "both": lambda: both(gains)}
    taken = interleaved(calls, options.repeats, options.limit)
    seconds = taken["both"].best
    gradient = np.asarray(both(gains)[1])
    return {
        "steps": length,
        "every": every,
        "memory": memory,
        "seconds": seconds,
        "cost": seconds / taken["value"].best,
        "gradient": float(np.max(np.abs(gradient))),
        "share finite": float(np.mean(np.isfinite(gradient))),
    }


def report(where: dict, rows: list[dict], options) -> str:
    """Return all results as one table."""
    text = EXPLANATION.format(batch=options.batch)
    title = f"## Long horizons, {where['precision']} precision"
    return f"{title}\n\n{text}\n\n{table(rows)}\n\n{caption(where)}\n"


# Norms of policy gradients.


DISCOUNT = 0.99
KINDS = "largest", "mean", "median"
BEFORE = 32
NORMS = """\
The table lists norms of the gradient of the mean reward
$\\frac{{1}}{{h}} \\sum_{{t<h}} \\gamma^t r_t$ over $h$ control steps (the horizon), with
respect to the parameters of an untrained policy (two hidden layers of 64, as in `APG`;
$\\gamma$ = {discount}). {batch} environments start from the states after {before} steps.
`mean` is the norm of the gradient of the mean over all environments, which APG uses; `median`
and `largest` are taken over the norms of single environments. For unstable motions, the norms
grow with the horizon, and a few environments dominate the mean. `APG.max_grad_norm` clips the
gradient."""


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
            # A power of two on both sides, because a decade may have no tick. Rewards
            # that are constant have zero gradients, which the axis cannot show.
            norms = [row[kind] for row in own for kind in KINDS if row[kind] > 0] or [1]
            low, high = np.floor(np.log2(min(norms))), np.ceil(np.log2(max(norms)))
            marks = 2.0 ** np.arange(low, high + 1)
            axes.set_yticks(marks, [f"{x:g}" for x in marks])
            axes.set_title(name)
            axes.set_xlabel("horizon, control steps")
            axes.set_ylabel("norm of the gradient")
            axes.grid(alpha=0.3)
        axes.legend()
        figure.savefig(path)


def norms_report(where: dict[str, Any], rows: list[dict[str, Any]], options) -> str:
    """Return the measurements so far."""
    text = NORMS.format(batch=options.batch, before=BEFORE, discount=DISCOUNT)
    picture = "![Gradients by horizon](images/policy_gradients.png)"
    head = "# Policy gradients by horizon\n"
    return "\n".join([head, text, "", caption(where), "", table(rows), "", picture, ""])


def _norms_main(options) -> None:
    """Compute gradients, and write table and plot."""
    pictures = options.pictures or options.out
    pictures.mkdir(parents=True, exist_ok=True)
    where, rows = setting(options), []
    for env in options.envs:
        say(f"gradients of {env}")
        rows += _gradients(env, options)
        data, text = {"where": where, "rows": rows}, norms_report(where, rows, options)
        publish(options, "policy_gradients", data, text)
    _draw(rows, pictures / "policy_gradients.png")
    print(norms_report(where, rows, options))


def _options():
    made = parser(__doc__, repeats=2, limit=60.0)
    add = made.add_argument
    add("--lengths", nargs="*", type=int, default=list(MIDDLE))
    add("--batch", type=int, default=64)
    add("--norms", action="store_true", help="norms of policy gradients instead")
    add("--envs", nargs="*", default=["hopper", "half_cheetah"], help="of --norms")
    add("--horizons", nargs="*", type=int, default=[1, 2, 4, 8, 16, 32, 64])
    add("--pictures", type=pathlib.Path, help="folder of the plot; by default --out")
    return made.parse_args()


if __name__ == "__main__":
    main()
