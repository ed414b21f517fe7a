"""`eqsim identify`"""

import json
import pathlib
import tomllib
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import numpy as np
from rich.console import Console

from .. import identify
from ..io import write_mjcf
from ..model import System
from ..plugins import CommandError
from ._inventory import robot_of


Objective = Literal["simulation", "inverse", "violation", "innovations"]


class Request(NamedTuple):
    """The arguments of `eqsim identify`."""

    model: pathlib.Path
    data: tuple[pathlib.Path, ...]
    parameters: pathlib.Path
    ctrl: str
    channel: str
    window: float
    objective: Objective
    disturbance: float | None
    noise: float | None
    hold_out: float
    seed: int
    out: str


MODEL, NUMBERS, PAGE = "model.xml", "result.json", "report.html"
_KINDS = ("positive", "bounded", "free", "tied", "inertia", "gain", "bias", "delay")


def run_identify(request: Request) -> None:
    """Fit parameters, and write the robot, its parameters and a page."""
    # Double precision, for second derivatives of small values.
    jax.config.update("jax_enable_x64", True)
    console = Console(highlight=False)
    if not request.model.is_file():
        raise CommandError(f"There is no model file {str(request.model)!r}.")
    try:
        sys = robot_of(request.model)
        unknowns = read_unknowns(request.parameters)
        objective = _objective(request)
        ctrl = None if request.ctrl == "none" else request.ctrl
        load = lambda path: identify.load_recordings(
            path, ctrl=ctrl, channels={"q": request.channel}
        )
        runs = [run for path in request.data for run in load(path)]
    except (ValueError, FileNotFoundError) as error:
        raise CommandError(str(error)) from error
    fitted, held = runs, []
    if request.hold_out > 0 and len({run.run for run in runs}) > 1:
        fitted, held = identify.split(runs, request.hold_out, request.seed)
    folder = pathlib.Path(request.out)
    folder.mkdir(parents=True, exist_ok=True)
    best = _Best(_labels(sys, unknowns), folder)
    try:
        with console.status("compiling") as status:
            result = identify.fit(
                sys,
                fitted,
                unknowns,
                windows=identify.Windows(request.window),
                objective=objective,
                validate=held,
                progress=lambda *now: best.take(now, status),
                accepted=best.write_model,
            )
    except KeyboardInterrupt:
        raise CommandError(best.interrupted(), 1) from None
    except (ValueError, FloatingPointError) as error:
        raise CommandError(str(error)) from error
    (folder / MODEL).write_text(write_mjcf(result.sys))
    text = json.dumps({"finished": True} | result.dictionary(), indent=1)
    (folder / NUMBERS).write_text(text + "\n")
    result.report(folder / PAGE)
    console.print(str(result), markup=False, soft_wrap=True)
    names = ", ".join(str(folder / name) for name in (MODEL, NUMBERS, PAGE))
    console.print(f"wrote {names}", markup=False, soft_wrap=True)


def _objective(request: Request) -> identify.AbstractObjective:
    """Return the objective of a request.

    **Raises:** `ValueError` if an option of `innovations` is missing, or given with another
    objective.
    """
    options = {"--disturbance": request.disturbance, "--noise": request.noise}
    if request.objective == "innovations":
        missing = [name for name, value in options.items() if value is None]
        if missing:
            raise ValueError(
                f"`--objective innovations` requires {' and '.join(missing)}: the gains of "
                "its filter depend on their ratio."
            )
        return identify.Innovations(request.disturbance, request.noise)
    given = [name for name, value in options.items() if value is not None]
    if given:
        raise ValueError(
            f"{' and '.join(given)} requires `--objective innovations`, but the objective "
            f"is {request.objective!r}."
        )
    made = {
        "simulation": identify.Simulation,
        "inverse": identify.Inverse,
        "violation": identify.Violation,
    }
    return made[request.objective]()


def _labels(sys: System, unknowns: dict[str, Any]) -> list[str]:
    widths = {"ctrl": sys.nu, "q": sys.nv}
    try:
        pairs = unknowns.items()
        return [label for name, x in pairs for label in x.labels(name, sys, widths)]
    except ValueError as error:
        raise CommandError(str(error)) from error


class _Best:
    """Callback that writes the last accepted step, so that an interrupted fit is not
    lost."""

    def __init__(self, labels: list[str], folder: pathlib.Path):
        self.labels, self.folder, self.steps = labels, folder, 0

    def take(self, now: tuple[np.ndarray, float, int], status: Any) -> None:
        """Write and print the parameters of a step."""
        values, cost, _ = now
        self.steps += 1
        status.update(f"step {self.steps}, cost {cost:.6g}")
        content = {
            "finished": False,
            "parameters": dict(zip(self.labels, values.tolist(), strict=True)),
            "cost": cost,
            "steps": self.steps,
        }
        (self.folder / NUMBERS).write_text(json.dumps(content, indent=1) + "\n")

    def write_model(self, sys: System) -> None:
        """Write the robot of a step."""
        (self.folder / MODEL).write_text(write_mjcf(sys))

    def interrupted(self) -> str:
        """Print which files have been written."""
        if not self.steps:
            return "Interrupted before the first step: nothing was written."
        return (
            f"Interrupted after step {self.steps}. The best parameters so far are in "
            f"{self.folder / NUMBERS} and {self.folder / MODEL}."
        )


def read_unknowns(path: pathlib.Path) -> dict[str, Any]:
    """Read parameters from a TOML or JSON file: one table for each.

    **Raises:** `ValueError` with the entry and the accepted values.
    """
    if not path.is_file():
        raise FileNotFoundError(f"There is no parameter file {str(path)!r}.")
    text = path.read_text()
    try:
        tables = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except (json.JSONDecodeError, tomllib.TOMLDecodeError) as error:
        raise ValueError(f"{str(path)!r} is not valid: {error}") from error
    if not tables:
        raise ValueError(
            f"{str(path)!r} lists no parameters. Add one table per parameter."
        )
    return {name: _unknown(name, table) for name, table in tables.items()}


def _unknown(name: str, table: Any) -> Any:
    if not isinstance(table, dict):
        raise ValueError(
            f"Parameter {name!r} must be a table [{name}] with `kind` and `path`, got "
            f"{table!r}."
        )
    table = dict(table)
    kind = table.pop("kind", "positive")
    if kind not in _KINDS:
        raise ValueError(
            f"Parameter {name!r} has the unknown kind {kind!r}. Kinds: {_KINDS}."
        )
    if not isinstance(table.get("path", ""), str):
        raise ValueError(
            f"The path of parameter {name!r} must be text such as 'joints.damping', "
            f"got {table['path']!r}."
        )
    try:
        prior = _prior(table)
        entries = table.pop("entries", None)
        if entries is not None:
            entries = tuple(tuple(x) if isinstance(x, list) else x for x in entries)
        table = {k: tuple(v) if isinstance(v, list) else v for k, v in table.items()}
        if kind in ("positive", "bounded", "free", "tied"):
            where = _where(table.pop("path"))
            made = {
                "positive": identify.Positive,
                "bounded": identify.Bounded,
                "free": identify.Unbounded,
                "tied": identify.Tied,
            }[kind]
            return made(where, entries=entries, prior=prior, **table)
        made = {
            "inertia": identify.Inertia,
            "gain": identify.ChannelGain,
            "bias": identify.ChannelBias,
            "delay": identify.ChannelDelay,
        }[kind]
        return made(prior=prior, **table)
    except KeyError as error:
        raise ValueError(
            f"Parameter {name!r} of kind {kind!r} lacks {error}, such as "
            "path = 'joints.damping'."
        ) from error
    except TypeError as error:
        raise ValueError(f"Parameter {name!r}: {error}.") from error


def _prior(table: dict[str, Any]) -> Any:
    mean = table.pop("prior_mean", None)
    if "prior_sd" in table:
        return identify.NormalPrior(mean, table.pop("prior_sd"))
    if "prior_relative_sd" in table:
        return identify.LogNormalPrior(mean, table.pop("prior_relative_sd"))
    if "prior_log_det" in table:
        return identify.LogDetPrior(table.pop("prior_log_det"))
    return None


def _where(path: str):
    """Return a function that returns an array of the robot by its path."""
    names = path.split(".")

    def where(sys: System):
        value: Any = sys
        for name in names:
            fields = vars(value) if isinstance(value, eqx.Module) else {}
            if name not in fields:
                raise ValueError(
                    f"`path` is {path!r}, but {type(value).__name__} has no array "
                    f"{name!r}. Arrays: {sorted(fields)}."
                )
            value = fields[name]
        if isinstance(value, eqx.Module):
            raise ValueError(
                f"`path` is {path!r}, which is not an array. Choose one of its fields: "
                f"{sorted(vars(value))}."
            )
        return value

    return where
