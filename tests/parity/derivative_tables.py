"""Check all derivatives of a step, in many situations and every pipeline.

python tests/parity derivatives --markdown out/derivatives.md
python tests/parity derivatives --families equality sensors --pipelines generalized
"""

import argparse
import pathlib
import resource
import time
from typing import Any, NamedTuple

import jax
import mujoco
from _bench import caption, circumstances, say, table, write

import eqsim

from .derivative_families import cell, EVERY, FAMILIES, tabulate
from .derivatives import Derivatives, ENGINES, Found, GROUND, ground_places, states


EXPLANATION = """\
This page lists the accuracy of the derivatives of one step, and of sensor values, with
respect to the state, the action and all parameters of the robot and the pipeline, in double
precision. Each table shows a small robot with one family of features in one pipeline.

Each entry is the larger of two relative errors: forward mode against fourth-order central
differences, and reverse mode against forward mode. Errors are relative to the derivative, or
to 0.05 if the derivative is smaller.

- `0`: the result does not depend on this parameter in this situation.
- `kink`: the model is not smooth within the finite-difference stencil, for example where a
  contact starts to slip, so there is no reference. The derivative is a one-sided derivative;
  it is finite and the same in both modes. Entries that summarize several arrays contain the
  number of kinks.

Kinks at rest are a property of MuJoCo's model: implicit damping with a polynomial damper and
LuGre friction of DC motors depend on the absolute value of a velocity. `equalities.active`
enables a constraint, so its derivative is zero. `eqsim.pipelines.inactive_parameters` lists such
parameters of a robot."""
GROUND_ABOUT = """\
A free capsule that carries a hinged sphere above a plane, with an actuator, a spring, a
damper, dry friction, a limit, gravity compensation and external forces. The last rows
use nonzero pipeline parameters (`ENGINES` in tests/parity/derivatives.py)."""
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
    "reference of joints": ("joints.ref",),
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


class Part(NamedTuple):
    """A section of the page, and its data."""

    text: str
    found: list[Found]


def main() -> int:
    """Print a table per family and pipeline; return the number of derivatives with
    errors above 1e-5 where the model is smooth."""
    options = _options()
    jax.config.update("jax_enable_x64", True)
    sections, every = ["# Derivatives", EXPLANATION], []
    for name in options.pipelines:
        pipeline = eqsim.PIPELINES.get(name)()
        sections.append(f"## {type(pipeline).__name__}")
        for family in options.families:
            if family != "ground" and name not in FAMILIES[family].pipelines:
                continue
            started = time.time()
            part = (
                _ground(pipeline) if family == "ground" else _family(family, pipeline)
            )
            sections.append(part.text)
            every += part.found
            jax.clear_caches()
            say(
                f"{name}, {family}: {_summary(part.found)} ({time.time() - started:.0f} s)"
            )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    say(f"peak memory {peak:.1f} GB")
    sections += [
        f"Total: {_summary(every)}.",
        "Written by `python tests/parity derivatives --markdown out/derivatives.md`.",
        caption(circumstances()),
    ]
    text = "\n\n".join(sections) + "\n"
    print(text)
    write(options.markdown, text)
    return len(_wrong(every))


def _wrong(found: list[Found]) -> list[Found]:
    return [
        x
        for x in found
        if not (x.reverse if not x.smooth else x.error * max(x.size, 0.05))
        <= BOUND * max(x.size, 0.05)
    ]


def _summary(found: list[Found]) -> str:
    smooth = [x.error for x in found if x.smooth]
    kinks, wrong = len(found) - len(smooth), _wrong(found)
    text = f"{len(found)} derivatives, largest error {max(smooth):.1e}, {kinks} kinks"
    if wrong:
        names = sorted({f"{x.name} {x.element} {x.output} ({x.state})" for x in wrong})
        text += f", {len(wrong)} above {BOUND:.0e}: {', '.join(names)}"
    return text


def _family(name: str, pipeline: eqsim.AbstractPipeline) -> Part:
    family = FAMILIES[name]
    result = tabulate(family, pipeline)
    parts = [f"### {family.title}", family.about, table(result.rows)]
    if result.without:
        names = "; ".join(result.without)
        parts.append(f"No influence in any situation: {names}.")
    return Part("\n\n".join(parts), result.found)


def _ground(pipeline: eqsim.AbstractPipeline) -> Part:
    sys = eqsim.load_mjcf(GROUND)
    places = ground_places(mujoco.MjModel.from_xml_string(GROUND))
    engine = ENGINES[type(pipeline)]
    step = Derivatives(sys, states(sys, places), pipeline)
    by_engine = Derivatives(sys, states(sys, places), engine)
    found = step.compare()[0] + by_engine.compare(engine)[0]
    rows = [_row(label, leaves, found) for label, leaves in ROWS.items()]
    text = f"### A robot on the ground\n\n{GROUND_ABOUT}\n\n{table(rows)}"
    return Part(text, found)


def _row(label: str, leaves: tuple[str, ...], found: list[Found]) -> dict[str, Any]:
    return {"with respect to": label} | {
        title: cell([x for x in found if x.state == state and _is(x.name, leaves)])
        for title, state in SITUATIONS.items()
    }


def _is(name: str, leaves: tuple[str, ...]) -> bool:
    return name in leaves or name in [f"[0].{leaf}" for leaf in leaves]


def _options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names, families = list(EVERY), ["ground", *FAMILIES]
    parser.add_argument("--pipelines", nargs="*", choices=names, default=names)
    parser.add_argument("--families", nargs="*", choices=families, default=families)
    parser.add_argument("--markdown", type=pathlib.Path)
    return parser.parse_args()
