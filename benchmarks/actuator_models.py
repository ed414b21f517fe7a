"""What attached actuator models cost: steps of a robot with and without them.

python benchmarks/actuator_models.py --file MENAGERIE/unitree_go1/scene.xml
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from _bench import caption, interleaved, parser, publish, say, setting, table

import eqsim
from eqsim import actuators


EXPLANATION = """\
Thousands of physics steps per second of {envs} environments of `{file}`, with one model on all
actuators, from the first keyframe with random controls; `ratio`: time of a step relative to
the robot without models. `spread`: how much slower than the best the median is."""


def main() -> None:
    """Time all models, and write the table."""
    options = _options()
    where = setting(options)
    taken = interleaved(_calls(options), options.repeats, options.limit)
    plain = taken["none"].best
    rows: list[dict[str, Any]] = []
    for name, timing in taken.items():
        rate = options.envs * options.steps / timing.best / 1e3
        row = {"model": name, "1000 steps/s": rate, "ratio": timing.best / plain}
        rows.append(row | {"spread": timing.spread})
        say(rows[-1])
    text = EXPLANATION.format(**vars(options))
    text = f"## Actuator models\n\n{text}\n\n{table(rows)}\n\n{caption(where)}\n"
    publish(options, "actuator_models", {"where": where, "rows": rows}, text)
    print(text)


def _calls(options) -> dict[str, Any]:
    """Return a call for every row of the table."""
    sys, key = eqsim.load_mjcf(options.file), jr.key(0)
    features, names = (("error", "velocity"), (1.0, 5.0)), sys.actuators.names
    mlp = actuators.MLPActuator(*features, (32, 32), history=2, key=key)
    gru = actuators.GRUActuator(*features, 16, key=key)
    robots = {
        "none": sys,
        "delay of 10 steps": sys.with_actuator_model(names, actuators.Delay(0.01, 10)),
        "friction": sys.with_actuator_model(
            names, actuators.StribeckFriction(0.1, 0.2, 0.1)
        ),
        "MLP, 32 x 32": sys.with_actuator_model(names, mlp, shared=True),
        "GRU, 16 units": sys.with_actuator_model(names, gru, shared=True),
    }
    return {name: _call(robot, options) for name, robot in robots.items()}


def _call(sys: eqsim.System, options) -> Any:
    pipeline = eqsim.Generalized()
    start = pipeline.init(sys)
    if sys.nkey:
        start = pipeline.init_keyframe(sys, sys.keyframes.names[0])
    middle = sys.keyframes.ctrl[0] if sys.nkey else jnp.zeros(sys.nu)
    ctrl = middle + 0.1 * jr.normal(jr.key(1), (options.envs, sys.nu))
    states = jax.tree.map(lambda x: jnp.stack([x] * options.envs), start)

    def run(sys, states):
        move = eqx.filter_vmap(pipeline.step, in_axes=(None, 0, 0))
        step = lambda states, _: (move(sys, states, ctrl), None)
        return jax.lax.scan(step, states, None, length=options.steps)[0]

    compiled = eqx.filter_jit(run)
    return lambda: compiled(sys, states)


def _options():
    made = parser(__doc__, repeats=9, limit=60.0)
    made.add_argument("--file", required=True, help="MJCF file of a robot")
    made.add_argument("--envs", type=int, default=1024)
    made.add_argument("--steps", type=int, default=20, help="steps per call")
    return made.parse_args()


if __name__ == "__main__":
    main()
