"""Demonstration: identification, thousands of robots, derivatives, gaits and training.

    python docs/examples/demo.py --out out/demo

It takes two to three minutes on two idle cores, most of which are compilation.

- Parameters of a robot are identified: of a real double pendulum if there are recordings,
  otherwise of an ant that MuJoCo C simulates with noise.
- Two thousand ants, each with its own masses, are simulated in one program.
- The linear model of a time step is compared with finite differences.
- A quadruped finds a gait in thousands of simulations.
- An agent of eqsim-zoo learns to run.

The output folder gets one page, `index.html`, with plots and animations, and
`results.json`.
"""

import argparse
import json
import os
import pathlib
import time

import jax


# Before JAX is first used: one device per core, which `eqsim.rollout` then uses; and
# double precision, without which differences of 1e-9 could not be seen.
jax.config.update("jax_num_cpu_devices", os.cpu_count() or 1)
jax.config.update("jax_enable_x64", True)

import numpy as np
import rich.table
from ant_demo import (
    figures,
    learning as learner,
    linearization,
    pendulum,
    quadruped,
    tables,
)
from ant_demo.animation import animate
from ant_demo.compilation import CompileClock
from ant_demo.countdown import Countdown
from ant_demo.fleet import throughput
from ant_demo.identification import identify
from ant_demo.recording import NOISE_Q, NOISE_QD, record, Recording
from ant_demo.report import Page
from ant_demo.robot import changed, eqsim_system, HIDDEN, mujoco_model, parameters
from ant_demo.simulation import replay
from PIL import Image
from rich.console import Console

import eqsim
from eqsim.render import Camera, images, NoOpenGL


SEED = 0
FPS = 20
USUAL = {
    "identification": 38.0,
    "fleet": 24.0,
    "linear_model": 9.0,
    "gait": 18.0,
    "learning": 51.0,
}
"""Usual duration of each part on two cores, s, for the estimate of the time that is left."""


def main() -> None:
    """Run all parts, and write the page."""
    options = _options()
    options.out.mkdir(parents=True, exist_ok=True)
    console, clock, begin = Console(), CompileClock(), time.perf_counter()
    where = tables.circumstances()
    line = ", ".join(f"{name} {value}" for name, value in where.items())
    page = Page("eqsim: identify, simulate, differentiate, control and train", line)
    results: dict = {"circumstances": where, "quick": options.quick, "figures": []}
    sys, countdown = eqsim_system(), Countdown(USUAL)
    parts = (identification, fleet, linear_model, gait, learning)
    assert [part.__name__ for part in parts] == [*USUAL]
    for number, part in enumerate(parts, 1):
        start, place = time.perf_counter(), f"[{number}/{len(parts)}]"
        cpu = _cpu_seconds()
        countdown.start(part.__name__)
        console.print(f"{place} {part.__doc__} {countdown.words().capitalize()}.")
        say = lambda text, place=place: countdown.say(f"{place} {text}")
        say(str(part.__doc__))
        with console.status(countdown):
            found = part(sys, options, page, console, say)
        results[part.__name__] = found
        results["figures"] += found.pop("figures", [])
        seconds, compiled = time.perf_counter() - start, clock.since(start)
        # Commands compile in processes of their own.
        compiled += found.get("compiled", 0.0)
        used = _cpu_seconds() - cpu
        found |= {"seconds": seconds, "cpu_seconds": used, "compiled": compiled}
        spent = f"{seconds:.0f} s, of which {compiled:.0f} s to compile"
        spent += f" ({used:.0f} s of CPU time)"
        console.print(f"{place} Done: {spent}\n")
    results["seconds"] = time.perf_counter() - begin
    page.figures(results["figures"])
    page.text(f"The demonstration took {results['seconds']:.0f} s.", note=True)
    page.write(options.out / "index.html")
    text = json.dumps(results, indent=2)
    (options.out / "results.json").write_text(text + "\n")
    console.print(f"Done in {results['seconds']:.0f} s: {options.out / 'index.html'}")


def _cpu_seconds() -> float:
    """CPU time of this process and of its finished children, s."""
    return sum(os.times()[:4])


def identification(sys, options, page, console, say) -> dict:
    """Identification."""
    recordings = pendulum.file(options.recordings)
    if recordings is None:
        return _ant(sys, options, page, console, say)
    say("Identifying a real double pendulum (compiles first)")
    result = pendulum.fit(recordings)
    page.section("Identification of a real robot")
    page.text(
        "A double pendulum with two geared motors, recorded on hardware "
        "(dfki-ric-underactuated-lab/double_pendulum). Inertial parameters, friction and "
        "the latency of commands are fitted to three runs, with exact Jacobians."
    )
    path = options.out / "pendulum.png"
    figures.pendulum(path, result.validation)
    page.image(path, "errors of predictions by horizon")
    page.text(
        "Predictions of two other runs: median over windows of the rms error up to the "
        "horizon.",
        note=True,
    )
    _show(console, page, tables.pendulum_table(result))
    page.text(
        "Determined: the data alone determine this parameter. Single masses and inertias "
        "of a pendulum cannot be determined; their combinations can.",
        note=True,
    )
    row = result.validation.horizons[-1]
    ratio = float(row.ratio["q"][0])
    meaning = f"of the given model's error after {row.horizon:g} s, for a real robot"
    return {
        "parameters": result.dictionary(),
        "error_ratio": ratio,
        "figures": [(f"{100 * ratio:.0f} %", meaning)],
    }


def _ant(sys, options, page, console, say) -> dict:
    say("Recording an ant in MuJoCo C")
    recording = record(mujoco_model(HIDDEN), 0.5 if options.quick else 2.0, SEED)
    say("Identifying it (compiles, then about fifty Gauss-Newton steps)")
    fit = identify(sys, recording, len(HIDDEN))
    rows = parameters(sys)
    entries = tables.identified(rows, fit)
    page.section("Identification")
    page.text(
        "MuJoCo C simulates an ant with five changed parameters. eqsim identifies them from "
        f"{recording.time.size} noisy measurements of coordinates and velocities "
        f"(standard deviations {NOISE_Q:g} m or rad and {NOISE_QD:g} m/s or rad/s), by "
        "Levenberg-Marquardt with derivatives through contacts."
    )
    _show(console, page, tables.identification_table(entries))
    page.text(
        f"{fit.kept} of {fit.windows} windows were used. In the others, noise does not "
        "explain the residuals, mostly because a foot touches down one step earlier or "
        "later. The mean squared residual per degree of freedom is "
        f"{fit.chi2:.3f} in units of the noise; it is 1 if model and noise are right. "
        "Standard deviations are from the Gauss-Newton covariance, in which the initial "
        "states of all windows are unknown.",
        note=True,
    )
    path = options.out / "parameters.png"
    figures.parameters(path, rows, fit)
    page.image(path, "errors of the parameters")
    say("Simulating with the parameters found")
    before, after = replay(sys, recording, [np.ones(len(HIDDEN)), fit.scales])
    path = options.out / "trajectories.png"
    figures.trajectories(path, recording, before, after)
    page.text(
        "Simulations of the whole recording from its first state. Contacts make the motion "
        "chaotic, so small errors grow with each step on the ground."
    )
    page.image(path, "measured and simulated motion")
    _gif(recording, after, options, page, console, say)
    errors = [abs(e["error_percent"]) for e in entries if e["identifiable"]]
    return {
        "figures": [
            (
                f"{max(errors):.1f} %",
                f"largest error of {len(errors)} identified parameters of an ant",
            )
        ],
        "parameters": entries,
        "noise": {"q": NOISE_Q, "qd": NOISE_QD},
        "chi2": fit.chi2,
        "windows": fit.windows,
        "windows_used": fit.kept,
        "solver_steps": fit.steps,
    }


def _gif(recording: Recording, after, options, page, console, say) -> None:
    say("Drawing the ant")
    stride = round(1 / FPS / (recording.time[1] - recording.time[0]))
    path = options.out / "ant.gif"
    problem = animate(path, recording.true_q[::stride], after[::stride], FPS)
    if problem:
        console.print(problem)
        return
    page.text("Left: the recorded ant. Right: eqsim with the parameters found.")
    page.image(path, "two ants side by side")


def fleet(sys, options, page, console, say) -> dict:
    """Thousands of different robots."""
    size = (16, 2, 1) if options.quick else (2048, 20, 3)
    say(f"Simulating {size[0]:,} different ants in eqsim and in MuJoCo C")
    result, shown = throughput(*size)
    page.section("Thousands of different robots in one program")
    page.text(
        f"{result.ants:,} ants, each with its own masses between half and twice those of "
        "the file, are simulated with random controls in one call of eqsim.rollout. The "
        "viewer shows some of them: drag to rotate, scroll to zoom."
    )
    page.viewer(shown, "ants with different masses")
    _show(console, page, tables.throughput_table(result))
    path = options.out / "throughput.png"
    figures.throughput(path, result)
    page.image(path, "steps per second")
    page.text(
        f"{result.length} environment steps of {result.substeps} time steps each. eqsim: "
        "single precision, contact problems solved to convergence. MuJoCo C: "
        "mujoco.rollout with as many models, double precision, the file's solver settings. "
        f"Both: Euler, {result.cores} cores, best of {size[2]} runs that take turns, "
        f"without compilation ({result.compile_seconds:.0f} s with the first run).",
        note=True,
    )
    meaning = f"time steps per second of {result.ants:,} different ants"
    number = f"{result.eqsim * result.substeps:,.0f}"
    return result._asdict() | {"figures": [(number, meaning)]}


def linear_model(sys, options, page, console, say) -> dict:
    """Linear model of a time step."""
    say("Linearizing a time step in eqsim and in MuJoCo C")
    recording = record(mujoco_model(HIDDEN), 0.5, SEED)
    moment = int(np.flatnonzero(recording.touching)[2])
    at = recording.true_q[moment], recording.true_qd[moment], recording.ctrl[moment]
    ours = linearization.by_eqsim(changed(sys, np.array(HIDDEN)), *at)
    ours = linearization.LinearModel(*map(np.asarray, ours))
    theirs = linearization.by_mujoco(mujoco_model(HIDDEN), *at)
    entries = tables.linear_entries(ours, theirs)
    page.section("The linear model of a time step")
    page.text(
        "x' = A x + B u for small changes of coordinates, velocities and controls of an "
        "ant with a foot on the ground. eqsim: jax.jacfwd of the step. MuJoCo C: "
        "mjd_transitionFD, central differences with a step of 1e-6."
    )
    _show(console, page, tables.linear_table(entries))
    path = options.out / "linear_model.png"
    figures.linear_model(path, ours, theirs, linearization.labels(sys))
    page.image(path, "heat maps of A and B")
    largest = max(entry["largest_difference"] for entry in entries)
    return {
        "time": float(recording.time[moment]),
        "matrices": entries,
        "figures": [(f"{largest:.0e}", "largest difference of derivatives")],
    }


def gait(sys, options, page, console, say) -> dict:
    """A quadruped that walks."""
    count, rounds = (32, 2) if options.quick else (1024, 3)
    say("Searching for the gait of a quadruped (compiles first)")
    found = quadruped.search(count, rounds, say)
    page.section("A quadruped finds a gait")
    page.text(
        "A quadruped of the kind in MuJoCo Menagerie: twelve position servos with force "
        "limits, rotor inertia and dry friction, elliptic friction cones. A trot has five "
        f"parameters. The cross-entropy method simulates {count:,} gaits of "
        f"{quadruped.DURATION:g} s in one program, {rounds} times, and rewards speed "
        "without drift and tilt."
    )
    say("Drawing the best gait")
    path = options.out / "gait.gif"
    problem = _walk(found, path)
    if problem:
        console.print(f"No animation of the gait: {problem}")
    else:
        page.image(path, "the quadruped, trotting")
    path = options.out / "gait.png"
    figures.gaits(path, found)
    page.image(path, "speeds of all gaits, and motion of the trunk")
    _show(console, page, tables.gait_table(found))
    total, speed = count * rounds, float(found.speeds.max())
    return {
        "gait": dict(zip(quadruped.NAMES, found.gait.tolist(), strict=True)),
        "speed": speed,
        "steps_per_second": found.steps_per_second,
        "figures": [(f"{speed:.2f} m/s", f"best of {total:,} gaits of a quadruped")],
    }


def _walk(found: quadruped.Walk, path: pathlib.Path) -> str:
    """Draw a walk; return the reason if that is not possible."""
    stride = max(1, round(1 / FPS / found.dt))
    camera = Camera((0.0, 0.0, 0.25), 1.3, 60.0, -15.0, follow="trunk")
    q = jax.numpy.asarray(found.q[::stride])
    try:
        drawn = images(
            eqsim.load_mjcf(quadruped.MODEL), q, camera, width=480, height=300
        )
    except NoOpenGL as error:
        return str(error)
    frames = [Image.fromarray(frame).quantize(64) for frame in drawn]
    options = {"duration": round(1000 * stride * found.dt), "loop": 0}
    frames[0].save(path, save_all=True, append_images=frames[1:], **options)
    return ""


def learning(sys, options, page, console, say) -> dict:
    """Training."""
    say("Training a cheetah to run (compiles first)")
    begin = time.perf_counter()
    found = learner.learn(options.out / "run", options.quick, say)
    seconds = time.perf_counter() - begin
    (train, printed), evaluate = found.commands
    table = tables.learning_table(found.evaluations)
    page.section("An agent learns to run")
    page.text(
        f"Proximal policy optimization ({learner.AGENT}) with eqsim-zoo's preset for "
        f"{learner.ENV}. Simulation and updates are one compiled program. Times include "
        "compilation, which takes most of the time up to the first evaluation. A robot "
        "that does not move has a return of 0."
    )
    page.command(train, printed)
    page.image(found.folder / "curves.png", "return against steps and time")
    _show(console, page, table)
    page.text(
        "Each row: 32 episodes with deterministic actions and random initial states. The "
        "best of these policies, evaluated in other episodes:"
    )
    page.command(*evaluate)
    if found.animation is None:
        console.print(f"No animation of the policy: {found.problem}")
    else:
        strip, loop = options.out / "running.png", options.out / "running.gif"
        learner.excerpt(found.animation, loop, strip)
        page.image(loop, "the cheetah, running")
        page.text("Eight frames, one for each control step of 0.05 s:")
        page.image(strip, "eight frames of the cheetah at a gallop")
    last = found.evaluations[-1]
    console.print(
        f"Return {last['mean_return']:,.0f} ± {last['confidence']:.0f} after "
        f"{last['steps']:,.0f} steps, in {last['seconds']:.0f} s"
    )
    return {
        "agent": learner.AGENT,
        "env": learner.ENV,
        "commands": [command for command, _ in found.commands],
        "evaluations": found.evaluations,
        "figures": [
            (f"{last['mean_return']:,.0f}", f"return after {last['seconds']:.0f} s")
        ],
        "train_and_evaluate_seconds": seconds,
        "compiled": found.compiled,
    }


def _show(console: Console, page: Page, table: tables.Table) -> None:
    """Show a table on the terminal and on the page."""
    shown = rich.table.Table(title=table.title, title_justify="left")
    for number, column in enumerate(table.columns):
        shown.add_column(column, justify="right" if number else "left")
    for row in table.rows:
        shown.add_row(*row)
    console.print(shown)
    page.table(table)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("out/demo"))
    folder = os.environ.get("EQSIM_RECORDINGS")
    parser.add_argument(
        "--recordings",
        type=pathlib.Path,
        default=pathlib.Path(folder) if folder else None,
        help="folder with recordings of real robots (default: EQSIM_RECORDINGS)",
    )
    parser.add_argument(
        "--quick", action="store_true", help="small sizes, to test that it runs"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
