"""The commands of `eqsim` with their options, and how one is found and run.

tyro reads options and help from signatures and docstrings. Other packages publish commands
under the entry points `eqsim.commands`: a function, a dictionary of functions by name, or a
`DynamicCommand`, which returns the function for given arguments.
"""

import os
import pathlib
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import tyro

from ..envs import is_import_path
from ..plugins import CommandError, COMMANDS, DynamicCommand, PluginError, PluginWarning
from ..render import NoOpenGL
from ._identify_command import Objective, Request as Identification, run_identify
from ._inventory import check_known, list_all, show
from ._plugin_commands import (
    check_plugin,
    Kind,
    list_plugins,
    new_plugin,
    show_plugin,
)
from ._simulation_commands import (
    ControlRequest,
    Request,
    run_control,
    run_rollout,
    Solver,
)
from ._view_command import run_view, ViewRequest


_Name = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ENV")]


_Plugin = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="NAME")]


# --- Built-in commands ---


def _list() -> None:
    """List installed environments, pipelines, agents and randomization presets."""
    list_all()


def _show(env: _Name, pipeline: str | None = None) -> None:
    """Describe an environment: robot, actions, observations and rewards.

    Args:
        env: name of the environment, for instance `ant`, or `module:Class`.
        pipeline: name of the pipeline; by default that of the environment.
    """
    show(env, pipeline)


def _rollout(
    env: _Name,
    pipeline: str | None = None,
    num_envs: int = 16,
    length: int = 200,
    seed: int = 0,
    randomize: str | None = None,
    out: str = "out/rollout",
    picture: bool = False,
) -> None:
    """Run random actions, and write data (.npz) and plots (.png).

    Args:
        env: name of the environment, for instance `ant`, or `module:Class`.
        pipeline: name of the pipeline; by default that of the environment.
        num_envs: number of parallel environments.
        length: number of control steps, and time limit of an episode.
        seed: random seed.
        randomize: randomization preset, applied in each episode.
        out: files to write, without suffix.
        picture: also write an animation of the first environment (.gif).
    """
    run_rollout(Request(env, pipeline, num_envs, length, seed, randomize, out, picture))


def _view(
    target: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="TARGET")],
    env: str | None = None,
    pipeline: str | None = None,
    num_envs: int | None = None,
    randomize: str | None = None,
    length: int | None = None,
    seed: int = 0,
    export: str | None = None,
    port: int | None = None,
    dark: bool = False,
) -> None:
    """Open a page in which a robot moves: simulated, or played from a file.

    Args:
        target: name of an environment, `module:Class`, MJCF or URDF file, folder of a
            run, or recording (.npz).
        env: name of the environment of a run or a recording, or `module:Class`; by
            default the stored name.
        pipeline: name of the pipeline; by default that of the environment.
        num_envs: number of robots; by default 1, or all robots of a recording.
        randomize: randomization preset for the parameters of each robot.
        length: maximum number of control steps of an export; by default 300.
        seed: random seed of initial states, parameters and actions.
        export: write an HTML file that plays a rollout, instead of serving the page.
        port: port to listen on; by default the first free one from 8080.
        dark: use dark colors.
    """
    where = export, port, dark
    run_view(
        ViewRequest(target, env, pipeline, num_envs, randomize, length, seed, *where)
    )


def _control(
    env: _Name,
    solver: Solver = "ilqr",
    pipeline: str | None = None,
    horizon: int = 50,
    steps: int = 50,
    samples: int | None = None,
    contact: float = 0.0,
    seed: int = 0,
    out: str = "out/control",
    picture: bool = False,
) -> None:
    """Plan actions that maximize the reward, and write the plan and a report page.

    Args:
        env: name of the environment, for instance `reacher`, or `module:Class`.
        solver: `ilqr` uses gradients; `cem`, `mppi` and `predictive` use sampling.
        pipeline: name of the pipeline; by default that of the environment.
        horizon: horizon of the plan, in control steps.
        steps: largest number of solver iterations.
        samples: number of samples per iteration of `cem`, `mppi` and `predictive`; by
            default 128.
        contact: initial smoothing width of contacts for `ilqr`, m; 0 for exact contacts.
        seed: random seed, also of the initial state.
        out: files to write, without suffix.
        picture: also write an animation (.gif).
    """
    sizes = horizon, steps, samples
    run_control(
        ControlRequest(env, solver, pipeline, *sizes, contact, seed, out, picture)
    )


def _identify(
    model: Annotated[pathlib.Path, tyro.conf.Positional],
    data: Annotated[tuple[pathlib.Path, ...], tyro.conf.Positional],
    parameters: tuple[pathlib.Path, ...],
    ctrl: str = "ctrl",
    channel: str = "q",
    forces: str | None = None,
    window: float = 0.5,
    objective: Objective = "simulation",
    disturbance: float | None = None,
    noise: float | None = None,
    hold_out: float = 0.25,
    seed: int = 0,
    out: str = "out/identify",
) -> None:
    """Fit parameters of a robot to recordings; writes the robot (model.xml), parameters
    (result.json) and a page with plots (report.html).

    Args:
        model: MJCF or URDF file of the robot.
        data: files of recordings (.npz), see `eqsim.identify.load_recordings`.
        parameters: TOML or JSON file that lists the parameters to fit, and actuator models
            to attach. Several files are compared by held-out errors, and the chosen one is
            fitted.
        ctrl: array of the controls; `none` if there are none.
        channel: array of the measured coordinates.
        forces: array of the measured forces of actuators, for `forces`.
        window: length of the windows, s.
        objective: `simulation` compares simulated windows with measured coordinates,
            `inverse` accelerations with the equations of motion, `violation` the motion
            with the laws of contact and friction, `innovations` coordinates with
            one-step predictions of a Kalman filter, and `forces` actuators with measured
            forces. Validation simulates, but for `forces`.
        disturbance: unmodelled accelerations for `innovations`, rad/s^2 or m/s^2 per root
            of Hz.
        noise: standard deviation of measured coordinates for `innovations`, rad or m.
        hold_out: fraction of the runs used for validation.
        seed: random seed of the choice of these runs.
        out: folder for the results.
    """
    files = model, data, parameters
    how = ctrl, channel, forces, window, objective, disturbance, noise
    run_identify(Identification(*files, *how, hold_out, seed, out))


def _plugins() -> None:
    """List, show, check and create plugins."""


def _plugins_list(
    json: bool = False, check: bool = False, timeout: float = 30.0
) -> None:
    """List all plugins and their packages, without importing them.

    Args:
        json: print a list of objects with the columns of the table, and `reason`.
        check: also import the plugins of other packages, in separate processes.
        timeout: time limit of each import with `--check`, s.
    """
    if not timeout > 0:
        raise CommandError(f"`--timeout` must be positive, got {timeout}.")
    list_plugins(json, check, timeout)


def _plugins_show(name: _Plugin, kind: Kind | None = None) -> None:
    """Show a plugin: description, package and options.

    Args:
        name: name of the plugin; `package:name` selects one of several packages.
        kind: kind of the plugin, if several kinds have this name.
    """
    show_plugin(name, kind)


def _plugins_check(name: _Plugin, kind: Kind | None = None) -> None:
    """Run the conformance kit `eqsim.testing` on a plugin.

    Args:
        name: name of the plugin; `package:name` selects one of several packages. For an
            environment without a name, `module:Class`.
        kind: kind of the plugin, if several kinds have this name.
    """
    check_plugin(name, kind)


def _plugins_new(name: _Plugin, kind: Kind, out: str = ".") -> None:
    """Create a plugin package with tests.

    Args:
        name: name of the package, for instance `my-robot`.
        kind: kind of the plugin.
        out: parent folder of the new package.
    """
    new_plugin(name, kind, out)


_COMMANDS = {
    "list": _list,
    "show": _show,
    "rollout": _rollout,
    "view": _view,
    "control": _control,
    "identify": _identify,
    "plugins": _plugins,
}


_PLUGIN_COMMANDS = {
    "list": _plugins_list,
    "show": _plugins_show,
    "check": _plugins_check,
    "new": _plugins_new,
}


# --- Running a command ---


def run(argv: Sequence[str]) -> int:
    """Run a command, and print errors without a traceback."""
    with warnings.catch_warnings():
        # As a message, without a source line.
        warnings.simplefilter("always", PluginWarning)
        warnings.showwarning = _say
        try:
            status = _run(list(argv))
            sys.stdout.flush()
        except BrokenPipeError:
            # The reader of stdout has exited, as `head` does: discard further output.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 1
        return status


def _run(argv: list[str]) -> int:
    _import_from_here(argv)
    try:
        prog, about, commands, argv = _found(argv)
        config = (tyro.conf.FlagCreatePairsOff,)
        if not isinstance(commands, dict):
            tyro.cli(commands, prog=prog, args=argv, config=config)
            return 0
        arguments: Any = argv or ["--help"]
        tyro.extras.subcommand_cli_from_dict(
            commands, prog=prog, description=about, args=arguments, config=config
        )
    except CommandError as error:
        return _failed(error, error.status)
    except BrokenPipeError:
        raise
    except (PluginError, NoOpenGL, FloatingPointError, OSError) as error:
        return _failed(error, 1)
    except OverflowError as error:
        return _failed(f"A number among the arguments is too large ({error}).", 2)
    except SystemExit as end:  # How the parser ends, after help as well.
        return end.code if isinstance(end.code, int) else 0
    return 0


def _import_from_here(argv: list[str]) -> None:
    """Let `module:object` among the arguments name a module of the current folder. The
    folder is searched last, so that its files do not hide installed packages."""
    words = [word.rpartition("=")[2] for word in argv]
    if any(map(is_import_path, words)) and os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())


def _found(argv: list[str]) -> tuple[str, str | None, Any, list[str]]:
    """Return name and description of the requested command, its function or functions,
    and the remaining words."""
    first = argv[0] if argv else "--help"
    if first == "plugins":
        return "eqsim plugins", _plugins.__doc__, _PLUGIN_COMMANDS, argv[1:]
    commands: dict[str, Any] = dict(_COMMANDS)
    if first.startswith("-"):
        others, broken = summaries()
        commands = {**others, **commands}
        for message in broken:
            print(f"eqsim: {message}", file=sys.stderr)
    elif first not in commands:
        command = published(first)
        if isinstance(command, DynamicCommand):
            command = command.build(argv[1:])
        if command is not None:
            return f"eqsim {first}", None, command, argv[1:]
        check_known("command", first, {*commands, *COMMANDS.names(), *_ELSEWHERE})
    return "eqsim", "A differentiable robot simulator.", commands, argv


def _failed(error: Exception | str, status: int) -> int:
    print(f"eqsim: {error}", file=sys.stderr)
    return status


def _say(message, category, filename, lineno, file=None, line=None) -> None:
    if issubclass(category, PluginWarning):
        print(f"eqsim: {message}", file=sys.stderr)
    else:
        text = warnings.formatwarning(message, category, filename, lineno, line)
        print(text, file=sys.stderr, end="")


# --- Commands of other packages ---


Command = Callable | dict[str, Callable] | DynamicCommand


# Commands of packages that may not be installed.
_ELSEWHERE = {
    name: "eqsim-zoo"
    for name in ("train", "resume", "eval", "record", "export", "replay", "runs")
}


def published(name: str) -> Command | None:
    """Import and return the command of the given name; None if no package has it.

    **Raises:** `PluginError` if it cannot be used; `CommandError` if it belongs to a
    package that is not installed.
    """
    if name not in COMMANDS.names() and name not in COMMANDS.hidden():
        if name in _ELSEWHERE:
            package = _ELSEWHERE[name]
            raise CommandError(
                f"The command {name!r} comes with the package {package}, which is not "
                f"installed. Run `pip install '{package}[cli]'`."
            )
        return None
    return _checked(name, COMMANDS.get(name))


def summaries() -> tuple[dict[str, Callable], list[str]]:
    """Return stand-ins for all published commands, with their documentation, and the
    errors of broken ones. All commands are imported; broken ones are left out."""
    found, broken = {}, []
    for name in COMMANDS.names():
        try:
            found[name] = _stand_in(_checked(name, COMMANDS.get(name)))
        except PluginError as error:
            broken.append(str(error))
    return found, broken


def _checked(name: str, value: Any) -> Command:
    group = isinstance(value, Mapping) and value and all(map(callable, value.values()))
    if group:
        return dict(value)
    if callable(value) or isinstance(value, DynamicCommand):
        return value
    raise PluginError(
        f"The command {name!r} must be a function, a dictionary of functions by name, "
        f"or a `DynamicCommand`, got {value!r}. Report this to the authors of the "
        "package."
    )


def _stand_in(command: Command) -> Callable:
    def nothing() -> None: ...

    if isinstance(command, DynamicCommand):
        nothing.__doc__ = command.summary
    elif isinstance(command, dict):
        nothing.__doc__ = f"Subcommands: {', '.join(command)}."
    else:
        nothing.__doc__ = command.__doc__
    return nothing
