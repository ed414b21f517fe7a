"""The derivative matrix: a step by everything, in every situation and every pipeline.

python benchmarks/derivatives.py --markdown docs/derivatives.md
"""

import argparse
import pathlib
from typing import Any

import jax
import mujoco
from _command import say
from _derivatives import Derivatives, ENGINES, Found, GROUND, ground_places, states
from _tables import caption, circumstances, table, write

import eqsim


EXPLANATION = """\
Accuracy of the derivatives of one step with respect to the state, the action and all
parameters of the robot and the pipeline, in double precision. The model is a free
capsule that carries a hinged sphere above a plane, with an actuator, a spring, a damper,
dry friction, a limit, gravity compensation and external forces.

Each entry is the larger of two relative errors: forward mode against fourth-order
central differences, and reverse mode against forward mode. Errors are relative to the
derivative, or to 0.05 if the derivative is smaller. `0`: the step does not depend on this
parameter in this situation. `kink`: the model is not smooth within the finite-difference
stencil, for example where a contact starts to slip, so there is no reference.

The last rows use nonzero pipeline parameters (`ENGINES` in benchmarks/_derivatives.py).
Not tested here: `ref`, explicit contact pairs, actuator ranges, and the fluid."""
ROWS = {
    "q": ("[1][0]",),
    "qd": ("[1][1]",),
    "activation": ("[1][2]",),
    "action": ("[1][3]",),
    "external force": ("[1][4]",),
    "mass": ("links.mass",),
    "inertia": ("links.inertia", "links.inertia_quat"),
    "center of mass": ("links.com",),
    "place of links": ("links.pos", "links.quat"),
    "gravity compensation": ("links.gravity_compensation",),
    "joint axis and anchor": ("joints.axis", "joints.anchor"),
    "joint stiffness": ("joints.stiffness", "joints.spring_ref"),
    "joint damping": ("joints.damping",),
    "armature": ("joints.armature",),
    "limits": ("joints.range", "joints.limit_margin"),
    "softness of limits": ("joints.limit_solref", "joints.limit_solimp"),
    "frictionloss": ("joints.frictionloss",),
    "softness of frictionloss": ("joints.friction_solref", "joints.friction_solimp"),
    "gear": ("actuators.gear",),
    "gain and bias": ("actuators.gain", "actuators.bias"),
    "time constant": ("actuators.time_constant",),
    "gravity": ("gravity",),
    "geom size": ("geoms.size",),
    "geom place": ("geoms.pos", "geoms.quat"),
    "friction": ("geoms.friction",),
    "solref, solimp, solmix": ("geoms.solref", "geoms.solimp", "geoms.solmix"),
    "margin": ("geoms.margin",),
    "impratio": ("impratio",),
    "dt": ("dt",),
    "smoothing": ("[2].smoothing",),
    "stiffness and damping of the pipeline": ("[2].stiffness", "[2].damping"),
    "compliance": ("[2].compliance", "[2].angular_compliance"),
    "erp, relaxation": ("[2].erp", "[2].relaxation"),
    "restitution": ("[2].restitution",),
}
SITUATIONS = {
    "free flight": "air",
    "neutral": "neutral",
    "limit": "limit",
    "at rest": "rest",
    "sticking": "sticking",
    "sliding": "sliding",
    "just before contact": "just above",
    "just after": "just below",
}
BOUND = 1e-5


def main() -> int:
    """Prints a table per pipeline; returns how many smooth cells exceed 1e-5."""
    options = _options()
    jax.config.update("jax_enable_x64", True)
    sys = eqsim.load_mjcf(GROUND)
    places = ground_places(mujoco.MjModel.from_xml_string(GROUND))
    parts, worst, bad = ["# Derivatives", EXPLANATION], 0.0, 0
    for name in options.pipelines:
        pipeline = eqsim.PIPELINES.get(name)()
        engine = ENGINES[type(pipeline)]
        step = Derivatives(sys, states(sys, places), pipeline)
        by_engine = Derivatives(sys, states(sys, places), engine)
        found = step.compare()[0] + by_engine.compare(engine)[0]
        rows = [_row(label, leaves, found) for label, leaves in ROWS.items()]
        numbers = [x for row in rows for x in row.values() if isinstance(x, float)]
        worst, bad = max(worst, *numbers), bad + sum(not x <= BOUND for x in numbers)
        say(f"{name}: {max(numbers):.1e} in {len(numbers)} cells")
        parts += [f"## {type(pipeline).__name__}", table(rows)]
    parts.append(f"The largest error is {worst:.1e}.")
    parts += [
        "Written by `python benchmarks/derivatives.py --markdown docs/derivatives.md`.",
        caption(circumstances()),
    ]
    text = "\n\n".join(parts) + "\n"
    print(text)
    write(options.markdown, text)
    return bad


def _row(label: str, leaves: tuple[str, ...], found: list[Found]) -> dict[str, Any]:
    return {"by": label} | {
        title: _cell([x for x in found if x.state == state and _is(x.name, leaves)])
        for title, state in SITUATIONS.items()
    }


def _is(name: str, leaves: tuple[str, ...]) -> bool:
    return name in leaves or name in [f"[0].{leaf}" for leaf in leaves]


def _cell(found: list[Found]) -> float | str:
    smooth = [x for x in found if x.smooth]
    if len(smooth) < len(found):
        return "kink"
    if all(x.size == x.forward == x.reverse == 0.0 for x in smooth):
        return "0"
    return max(x.error for x in smooth)


def _options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = ["generalized", "spring", "positional"]
    parser.add_argument("--pipelines", nargs="*", choices=names, default=names)
    parser.add_argument("--markdown", type=pathlib.Path)
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
