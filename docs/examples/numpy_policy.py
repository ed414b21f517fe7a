"""Act with the policy of a run, with NumPy and safetensors alone."""

import json
import re

import numpy as np
from safetensors import safe_open


ACTIVATIONS = {
    "ELU": lambda x: np.where(x > 0.0, x, np.expm1(np.minimum(x, 0.0))),
    "RELU": lambda x: np.maximum(x, 0.0),
    "SWISH": lambda x: 0.5 * x * (1.0 + np.tanh(0.5 * x)),
    "TANH": np.tanh,
}
# PPO has `.learner.model.policy`, SAC and TD3 have `.learner.actor.model`.
WEIGHT = re.compile(
    r"\.learner\.(?:model\.policy|actor\.model)(?:\.network)*\.layers\[(\d+)\]\.weight"
)


def load_policy(path, member=0):
    """Return a function from an observation to the deterministic action."""
    with safe_open(path, "numpy") as file:
        agent = json.loads(file.metadata()["about"])["agents"][member]
        x = {name: file.get_tensor(name) for name in file.keys()}
    if (
        ".bounds" not in x
    ):  # SAC and TD3: statistics and bounds are those of the learner.
        x |= {k.removeprefix(".learner"): v for k, v in x.items()}
    fields = agent["fields"]
    special = fields.get("levels") or fields.get("inputs.class", "Vectors") != "Vectors"
    if agent["class"] not in ("PPO", "SAC", "TD3") or special:
        raise ValueError(f"{agent['class']} with these settings is not supported.")
    if x[".bounds"].ndim == 3:  # Several members: select one.
        x = {name: value[member] for name, value in x.items()}
    found = {int(m[1]): name for name in x if (m := WEIGHT.fullmatch(name))}
    layers = [(x[found[k]], x[found[k][:-6] + "bias"]) for k in sorted(found)]
    activation = ACTIVATIONS[fields.get("activation", "RELU")]
    low, high = x[".bounds"].T
    bounded = np.isfinite(low) & np.isfinite(high)
    least, most = np.where(bounded, low, -1.0), np.where(bounded, high, 1.0)

    def normalize(obs, part=""):
        if f".statistics{part}.count" not in x:
            return obs
        count, mean, square = (
            x[f".statistics{part}.{name}"] for name in ("count", "mean", "square")
        )
        return np.clip((obs - mean) / np.sqrt(square / count + 1e-8), -10.0, 10.0)

    def act(obs):
        if isinstance(obs, dict):
            names = sorted(fields["inputs.actor_parts"] or obs)
            h = np.concatenate([normalize(obs[k], f"[{k!r}]") for k in names])
        else:
            h = normalize(obs)
        for weight, bias in layers[:-1]:
            h = activation(h @ weight + bias)
        weight, bias = layers[-1]
        u = (h @ weight + bias)[: len(low)]  # SAC: the rest are deviations.
        squashed = least + 0.5 * (np.tanh(u) + 1.0) * (most - least)
        return np.where(bounded, squashed, np.clip(u, low, high))

    return act
