"""`eqsim identify`"""

import dataclasses
import importlib.util
import inspect
import json
import pathlib
import sys as python
import tomllib
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console

from .. import actuators, identify
from ..io import save, write_mjcf
from ..model import System
from ..plugins import CommandError
from ._inventory import robot_of


Objective = Literal["simulation", "inverse", "violation", "innovations", "forces"]


class Request(NamedTuple):
    """The arguments of `eqsim identify`."""

    model: pathlib.Path
    data: tuple[pathlib.Path, ...]
    parameters: tuple[pathlib.Path, ...]
    ctrl: str
    channel: str
    forces: str | None
    window: float
    objective: Objective
    disturbance: float | None
    noise: float | None
    hold_out: float
    seed: int
    out: str


class _Class(NamedTuple):
    """A robot with the actuator models of a file, its unknowns, and whether there are
    networks among them."""

    sys: System
    unknowns: dict[str, Any]
    learned: bool

    @property
    def candidate(self) -> identify.Candidate:
        """The arguments of a fit, of networks by first-order steps and with early stop."""
        if not self.learned:
            return identify.Candidate(self.sys, self.unknowns)
        options = {"solver": identify.Adam()}
        return identify.Candidate(self.sys, self.unknowns, options, patience=5)


MODEL, NUMBERS, PAGE, ROBOT = "model.xml", "result.json", "report.html", "robot.npz"
_KINDS = (
    *("positive", "bounded", "free", "tied", "inertia", "gain", "bias", "delay"),
    "actuator",
)
_FORCES = "force"


def run_identify(request: Request) -> None:
    """Fit parameters, and write the robot, its parameters and a page."""
    # Double precision, for second derivatives of small values.
    jax.config.update("jax_enable_x64", True)
    console = Console(highlight=False)
    if not request.model.is_file():
        raise CommandError(f"There is no model file {str(request.model)!r}.")
    try:
        given = robot_of(request.model)
        found = [read_class(path, given, request.seed) for path in request.parameters]
        names = [path.stem for path in request.parameters]
        if len(set(names)) < len(names):
            raise ValueError(
                f"The files of `--parameters` must have different names, got {names}."
            )
        objective = _objective(request)
        ctrl = None if request.ctrl == "none" else request.ctrl
        channels = {"q": request.channel}
        channels |= {} if request.forces is None else {_FORCES: request.forces}
        load = lambda path: identify.load_recordings(path, ctrl=ctrl, channels=channels)
        runs = [run for path in request.data for run in load(path)]
    except (ValueError, FileNotFoundError) as error:
        raise CommandError(str(error)) from error
    folder = pathlib.Path(request.out)
    folder.mkdir(parents=True, exist_ok=True)
    windows = identify.Windows(request.window)
    if any(one.sys.na for one in found):
        # At the start of a window activations are zero.
        windows = windows._replace(settle=min(0.05, 0.2 * request.window))
        console.print(
            f"note: the first {windows.settle:g} s of each window are simulated but not "
            "compared, because activations are zero at its start. Parameters are biased "
            "where activations remember longer.",
            markup=False,
            soft_wrap=True,
        )
    try:
        chosen, fitted, held = found[0], runs, []
        if request.hold_out > 0 and _count_runs(runs) > 1:
            fitted, held = identify.split(runs, request.hold_out, request.seed)
        if len(found) > 1:
            compared_runs = fitted
            if held and _count_runs(fitted) < 2:
                compared_runs = runs
                console.print(
                    "note: the held-out run also took part in the comparison of models, "
                    "because one fitted run is too few for it. Its errors are too small.",
                    markup=False,
                    soft_wrap=True,
                )
            with console.status("comparing"):
                compared = identify.compare(
                    {name: one.candidate for name, one in zip(names, found)},
                    compared_runs,
                    folds=min(4, _count_runs(compared_runs)),
                    windows=windows,
                    objective=objective,
                    seed=request.seed,
                )
            console.print(str(compared), markup=False, soft_wrap=True)
            chosen = found[names.index(compared.chosen)]
        _fit_candidate(request, console, chosen, (fitted, held), windows, objective)
    except (ValueError, FloatingPointError) as error:
        raise CommandError(str(error)) from error


def _count_runs(recordings: list[identify.Recording]) -> int:
    return len({recording.run for recording in recordings})


def _fit_candidate(
    request: Request,
    console: Console,
    chosen: _Class,
    runs: tuple[list[identify.Recording], list[identify.Recording]],
    windows: identify.Windows,
    objective: identify.AbstractObjective,
) -> None:
    """Fit one candidate, and write it.

    **Arguments:**

    - `runs`: recordings to fit, and those to validate.
    """
    folder, sys, candidate = pathlib.Path(request.out), chosen.sys, chosen.candidate
    (fitted, held), stop = runs, None
    if candidate.patience is not None and _count_runs(fitted) > 1:
        fitted, watched = identify.split(fitted, seed=request.seed)
        stop = identify.EarlyStop(watched, candidate.patience)
    elif candidate.patience is not None:
        console.print(
            "note: networks are fitted without an early stop, which requires at least two "
            "fitted runs. They may fit noise: record more runs.",
            markup=False,
            soft_wrap=True,
        )
    best = _Best(_labels(sys, candidate.unknowns), folder)
    try:
        with console.status("compiling") as status:
            result = identify.fit(
                sys,
                fitted,
                candidate.unknowns,
                windows=windows,
                objective=objective,
                validate=held,
                stop=stop,
                progress=lambda *now: best.take(now, status),
                accepted=best.write_model,
                **candidate.options,
            )
    except KeyboardInterrupt:
        raise CommandError(best.interrupted(), 1) from None
    _write_robot(folder, result.sys)
    text = json.dumps({"finished": True} | result.dictionary(), indent=1)
    (folder / NUMBERS).write_text(text + "\n")
    written = [MODEL, NUMBERS]
    if np.isfinite(result.covariance.freedom).all():
        result.report(folder / PAGE)
        written.append(PAGE)
    written += [ROBOT] if sys.actuator_models else []
    console.print(str(result), markup=False, soft_wrap=True)
    names = ", ".join(str(folder / name) for name in written)
    console.print(f"wrote {names}", markup=False, soft_wrap=True)


def _write_robot(folder: pathlib.Path, sys: System) -> None:
    """Write a robot as MJCF, and with its actuator models, which MJCF does not have, as an
    archive."""
    if sys.actuator_models:
        save(folder / ROBOT, sys)
        sys = sys.without_actuator_models()
    (folder / MODEL).write_text(write_mjcf(sys))


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
    if (request.objective == "forces") is not (request.forces is not None):
        raise ValueError(
            "`--objective forces` and `--forces`, the array of the measured forces, require "
            "each other."
        )
    if request.objective == "forces":
        return identify.ActuatorForces(_FORCES)
    made = {
        "simulation": identify.Simulation,
        "inverse": identify.Inverse,
        "violation": identify.Violation,
    }
    return made[request.objective]()


def _labels(sys: System, unknowns: Mapping[str, Any]) -> list[str]:
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
        _write_robot(self.folder, sys)

    def interrupted(self) -> str:
        """Print which files have been written."""
        if not self.steps:
            return "Interrupted before the first step: nothing was written."
        return (
            f"Interrupted after step {self.steps}. The best parameters so far are in "
            f"{self.folder / NUMBERS} and {self.folder / MODEL}."
        )


def read_class(path: pathlib.Path, sys: System, seed: int) -> _Class:
    """Read parameters and actuator models from a TOML or JSON file: one table for each.

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
    unknowns, learned = {}, False
    for name, table in tables.items():
        if isinstance(table, dict) and table.get("kind") == "actuator":
            sys, more, random = _attached(name, dict(table), sys, seed, path.parent)
            learned = learned or random
            unknowns |= more
        else:
            unknowns[name] = _unknown(name, table)
    return _Class(sys, unknowns, learned)


_GATES = ("update", "reset", "candidate", "gate_biases", "readout", "offset")
_MODELS = {
    "Delay": {"delay": "delay"},
    "ControlFilter": {"time_constant": "positive"},
    "Backlash": {"width": "positive"},
    "TorqueSpeedLimit": {"stall_force": "positive", "no_load_speed": "positive"},
    "StribeckFriction": {
        "coulomb": "free",
        "static": "free",
        "stribeck_velocity": "positive",
        "viscous": "free",
    },
    "TorqueLag": {"time_constant": "positive"},
    "OutputTorque": {"time_constant": "positive", "inertia": "free"},
    "PDServo": {"stiffness": "positive", "damping": "positive"},
    "MLPActuator": dict.fromkeys(("weights", "biases"), "free"),
    "GRUActuator": dict.fromkeys(_GATES, "free"),
}
"""Arrays of actuator models that are unknown, and the kind of each unknown."""


def _model_class(text: Any, folder: pathlib.Path) -> tuple[Any, dict[str, str]]:
    """Return a class of actuator models, and its unknown arrays with their kinds.

    **Arguments:**

    - `text`: name of one of eqsim, or `module:Class`.
    - `folder`: folder in which modules are found besides installed ones.

    **Raises:** `ValueError` that lists the names.
    """
    if text in _MODELS:
        return vars(actuators)[text], _MODELS[text]
    module, colon, name = text.partition(":") if isinstance(text, str) else ("", "", "")
    if not (module and colon):
        raise ValueError(
            f"unknown `model` {text!r}. Models: {[*_MODELS]}, or `module:Class` for one of "
            "your own."
        )
    try:
        found = _module_names(module, folder)
    except Exception as error:
        raise ValueError(
            f"the module of `model` {text!r} cannot be imported from {str(folder)!r} or the "
            f"installed packages: {type(error).__name__}: {error}"
        ) from error
    models = {
        key: value
        for key, value in found.items()
        if isinstance(value, type)
        and issubclass(value, actuators.AbstractActuatorModel)
        and not inspect.isabstract(value)
    }
    if name not in models:
        raise ValueError(
            f"{module!r} has no actuator model {name!r}. Models: {sorted(models)}."
        )
    fields = dataclasses.fields(models[name])
    arrays = [field.name for field in fields if not field.metadata.get("static")]
    return models[name], dict.fromkeys(arrays, "free")


def _module_names(name: str, folder: pathlib.Path) -> dict[str, Any]:
    """Return what a module defines: one that is loaded or installed, or a file of the folder.
    The file does not stay in `sys.modules`, because another folder may have one of the same
    name, and the folder is searched last, so that its files do not hide installed modules."""
    file = folder.joinpath(*name.split(".")).with_suffix(".py")
    spec = importlib.util.spec_from_file_location(name, file)
    own = name not in python.modules and file.is_file()
    python.path.append(str(folder))
    try:
        if not own or spec is None or spec.loader is None:
            return vars(importlib.import_module(name))
        # Dataclasses look up the module of their class.
        python.modules[name] = found = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(found)
        return vars(found)
    finally:
        python.path.pop(len(python.path) - 1 - python.path[::-1].index(str(folder)))
        if own:
            python.modules.pop(name, None)


def _as_arrays(cls: type, table: dict[str, Any]) -> dict[str, Any]:
    """Make arrays of the numbers of fields that are not static."""
    fields = {field.name: field for field in dataclasses.fields(cls)}
    is_array = lambda key: key in fields and not fields[key].metadata.get("static")
    return {k: jnp.asarray(v, float) if is_array(k) else v for k, v in table.items()}


def _attached(
    name: str, table: dict[str, Any], sys: System, seed: int, folder: pathlib.Path
) -> tuple[System, dict[str, Any], bool]:
    """Attach the actuator model of a table.

    **Returns:** the robot, the unknowns of the model, and whether they are drawn, as weights
    of networks are.
    """
    table.pop("kind")
    try:
        cls, kinds = _model_class(table.pop("model", None), folder)
    except ValueError as error:
        raise ValueError(f"Table {name!r}: {error}") from error
    kind = cls.__name__
    names = table.pop("actuators", [*sys.actuators.names])
    names = [names] if isinstance(names, str) else names
    fitted = table.pop("fit", [*kinds])
    if not isinstance(fitted, list | dict):
        raise ValueError(
            f"Table {name!r}: `fit` must be a list of parameters, or a table of their kinds, "
            f"got {fitted!r}."
        )
    if odd := [field for field in fitted if field not in kinds]:
        raise ValueError(
            f"Table {name!r}: {kind} has no parameter {odd[0]!r} to fit. Parameters: "
            f"{[*kinds]}."
        )
    if isinstance(fitted, dict):
        kinds = kinds | fitted
        if odd := [x for x in fitted.values() if x not in ("positive", "free")]:
            raise ValueError(
                f"Table {name!r}: kinds in `fit` must be 'positive' or 'free', got "
                f"{odd[0]!r}."
            )
    given = inspect.signature(cls).parameters
    random = "key" in given
    shared = table.pop("shared", random)
    known = [key for key in given if key not in ("key", "dt")]
    try:
        prior = _prior(table)
        if odd := [key for key in table if key not in known]:
            raise ValueError(f"{kind} has no argument {odd[0]!r}. Arguments: {known}.")
        required = [
            key for key in known if given[key].default is inspect.Parameter.empty
        ]
        if lacking := [key for key in required if key not in table]:
            raise ValueError(f"{kind} lacks {lacking[0]!r}. Required: {required}.")
        table = _as_arrays(cls, table)
        if random:
            table["key"] = jax.random.key(seed)
            prior = identify.NormalPrior(0.0, 1.0) if prior is None else prior
        if "dt" in given:
            table.setdefault("dt", float(sys.dt))
        model = cls(**table)
        sys = sys.with_actuator_model(names, model, shared=shared)
    except (TypeError, ValueError) as error:
        raise ValueError(f"Table {name!r}: {error}") from error
    index = len(sys.actuator_models) - 1
    out = {}
    for field in fitted:
        where = lambda s, field=field: vars(s.actuator_models[index].model)[field]
        out[f"{name}.{field}"] = {
            "positive": lambda: identify.Positive(where, prior=prior),
            "free": lambda: identify.Unbounded(where, prior=prior),
            "delay": lambda: identify.Bounded(
                where, 0.0, model.num_samples * float(sys.dt), prior=prior
            ),
        }[kinds[field]]()
    return sys, out, random


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
