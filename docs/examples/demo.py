"""What eqsim is for: Gymnasium's ant beside MuJoCo C, and a cheetah that learns to run.

    python docs/examples/demo.py --out out/demo

- The parameters of an ant are found from two seconds of a noisy recording.
- Two thousand ants, each with its own masses, run in one program.
- The linear model of a time step is compared with finite differences.
- An agent of eqsim-zoo learns, from nothing, to gallop.

Everything is written to the output folder: plots, `results.json`, `index.html`.
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
from ant_demo import figures, learning as learner, linearization, tables
from ant_demo.animation import animate
from ant_demo.compilation import CompileClock
from ant_demo.fleet import throughput
from ant_demo.identification import identify
from ant_demo.recording import NOISE_Q, NOISE_QD, record, Recording
from ant_demo.report import Page
from ant_demo.robot import changed, eqsim_system, HIDDEN, mujoco_model, parameters
from ant_demo.simulation import replay
from rich.console import Console


SEED = 0
FPS = 20


def main() -> None:
    options = _options()
    options.out.mkdir(parents=True, exist_ok=True)
    console, clock, begin = Console(), CompileClock(), time.perf_counter()
    where = tables.circumstances()
    line = ", ".join(f"{name} {value}" for name, value in where.items())
    page = Page(
        "eqsim: an ant identified, thousands simulated, a cheetah taught to run", line
    )
    results: dict = {"circumstances": where, "quick": options.quick}
    sys = eqsim_system()
    parts = (identification, fleet, linear_model, learning)
    for number, part in enumerate(parts, 1):
        start = time.perf_counter()
        with console.status(f"[{number}/{len(parts)}] {part.__doc__}") as status:
            say = lambda text: status.update(f"[{number}/{len(parts)}] {text}")
            results[part.__name__] = part(sys, options, page, console, say)
        seconds, compiled = time.perf_counter() - start, clock.since(start)
        # Commands compile in processes of their own.
        compiled += results[part.__name__].get("compiled", 0.0)
        results[part.__name__] |= {"seconds": seconds, "compiled": compiled}
        spent = f"{seconds:.0f} s, of which {compiled:.0f} s to compile"
        console.print(f"[{number}/{len(parts)}] {part.__doc__} {spent}\n")
    results["seconds"] = time.perf_counter() - begin
    page.text(f"The whole took {results['seconds']:.0f} s.", note=True)
    page.write(options.out / "index.html")
    text = json.dumps(results, indent=2)
    (options.out / "results.json").write_text(text + "\n")
    console.print(f"Done in {results['seconds']:.0f} s: {options.out / 'index.html'}")


def identification(sys, options, page, console, say) -> dict:
    """Identifying an ant."""
    say("Recording an ant in MuJoCo C")
    recording = record(mujoco_model(HIDDEN), 0.5 if options.quick else 2.0, SEED)
    say("Identifying it (compiles, then about fifty Gauss-Newton steps)")
    fit = identify(sys, recording, len(HIDDEN))
    rows = parameters(sys)
    entries = tables.identified(rows, fit)
    page.section("Identification")
    page.text(
        "An ant with hidden changes was recorded in MuJoCo C: "
        f"{recording.time.size} measurements of all coordinates and velocities, with "
        f"noise of {NOISE_Q:g} m or rad and {NOISE_QD:g} m/s or rad/s. Its parameters "
        "are found by Levenberg-Marquardt, with derivatives through eqsim."
    )
    _show(console, page, tables.identification_table(entries))
    page.text(
        f"{fit.kept} of {fit.windows} windows were used; in the others no noise "
        "explains the misfit, mostly because a foot touches down one step earlier or later. "
        f"Mean squared residual per degree of freedom, in units of the noise: "
        f"{fit.chi2:.3f} (1 if model and noise are right). Standard deviations are "
        "those of the Gauss-Newton covariance, with the starts of all windows unknown.",
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
        "The whole recording simulated by eqsim from its first state, without looking "
        "at it again. Contacts make the motion chaotic: small errors grow with every "
        "step on the ground."
    )
    page.image(path, "measured and simulated motion")
    _gif(recording, after, options, page, console, say)
    return {
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
    """Simulating thousands of ants."""
    size = (16, 2, 1) if options.quick else (2048, 20, 3)
    say(f"Simulating {size[0]:,} different ants in eqsim and in MuJoCo C")
    result = throughput(*size)
    page.section("Thousands of different robots in one program")
    page.text(
        f"{result.ants:,} ants, the masses of all their links drawn between half and "
        f"twice the file's, are reset at random and driven by random controls for "
        f"{result.length} environment steps of {result.substeps} time steps each. "
        "eqsim: one call of eqsim.rollout, single precision, every contact problem solved to "
        "convergence. MuJoCo C: mujoco.rollout with as many models, double precision, "
        f"the file's solver settings. Both: Euler, {result.cores} cores, the best of "
        f"{size[2]} runs that took turns, without the time to compile "
        f"({result.compile_seconds:.0f} s with the first run)."
    )
    _show(console, page, tables.throughput_table(result))
    path = options.out / "throughput.png"
    figures.throughput(path, result)
    page.image(path, "steps per second")
    return result._asdict()


def linear_model(sys, options, page, console, say) -> dict:
    """Linearizing a time step."""
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
        "x' = A x + B u for small changes of coordinates, velocities and controls, "
        f"at {recording.time[moment]:.2f} s of the recording, with a foot on the ground. "
        "eqsim: jax.jacfwd of the step. MuJoCo C: mjd_transitionFD, central "
        "differences with a step of 1e-6."
    )
    _show(console, page, tables.linear_table(entries))
    path = options.out / "linear_model.png"
    figures.linear_model(path, ours, theirs, linearization.labels(sys))
    page.image(path, "heat maps of A and B")
    return {"time": float(recording.time[moment]), "matrices": entries}


def learning(sys, options, page, console, say) -> dict:
    """Learning to run."""
    say("Learning to run (compiles first)")
    begin = time.perf_counter()
    found = learner.learn(options.out / "run", options.quick, say)
    seconds = time.perf_counter() - begin
    (train, printed), evaluate = found.commands
    table = tables.learning_table(found.evaluations)
    page.section("Learning to run")
    page.text(
        f"Proximal policy optimization ({learner.AGENT}) with the settings that eqsim-zoo "
        f"has for {learner.ENV}, in single precision: collecting and learning are one "
        "compiled program. Time is counted from the beginning of the command, and most "
        "of it up to the first evaluation is compilation. Standing still has a return of 0."
    )
    page.command(train, printed)
    page.image(found.folder / "curves.png", "return against steps and time")
    _show(console, page, table)
    page.text(
        "Each row: 32 episodes in which nothing is drawn but where they begin. The best "
        "of these policies, in other episodes:"
    )
    page.command(*evaluate)
    if found.animation is None:
        console.print(f"No pictures of what was learned: {found.problem}")
    else:
        strip, loop = options.out / "running.png", options.out / "running.gif"
        learner.excerpt(found.animation, loop, strip)
        page.text("What it does, one picture for each control step of 0.05 s:")
        page.image(strip, "eight pictures of the cheetah at a gallop")
        page.image(loop, "the cheetah, running")
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
        "train_and_evaluate_seconds": seconds,
        "compiled": found.compiled,
    }


def _show(console: Console, page: Page, table: tables.Table) -> None:
    """A table on the terminal and in the report."""
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
    parser.add_argument(
        "--quick", action="store_true", help="small sizes, to see that it runs"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
