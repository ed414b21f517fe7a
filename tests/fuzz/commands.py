"""Arguments of the command `eqsim`."""

import contextlib
import io
import os
import shutil
from random import Random

import numpy as np

import eqsim
import eqsim_zoo
from eqsim._cli import _plugin_commands, _simulation_commands, _view_command, main

from .models import MODELS
from .mutations import word


_PARAMETERS = '[damping]\nkind = "positive"\npath = "joints.damping"\n'
_FILES = tuple("model.xml data.npz p.toml p.json run nothing empty rollout.npz".split())
_NAMES = tuple("point_mass ant reacher ppo sac iql eqsim:ant generalized antt".split())
_NUMBERS = ("9" * 30, *"0 1 -1 3 1e6 1e400 nan inf -0 0x10 1_0 1.5".split())
_COMMANDS = {
    command: options.split()
    for command, options in {
        "": "--help --version -h",
        "list": "",
        "show": "--pipeline",
        "rollout": "--pipeline --num-envs --length --seed --randomize --out --picture",
        "view": (
            "--pipeline --num-envs --randomize --length --seed --export --port --dark"
        ),
        "control": (
            "--solver --pipeline --horizon --steps --samples --contact --seed "
            "--out --picture"
        ),
        "identify": (
            "--parameters --parameters --ctrl --channel --window --hold-out "
            "--seed --out"
        ),
        "plugins": "list show check new --json --check --timeout --kind --out",
        "train": (
            "--preset --steps --seed --out --set --sweep --num-seeds --pipeline "
            "--episode-length --randomize --skills --data --pool-size "
            "--evaluations --turns --learning-rate --hidden --discount --num-envs "
            "--overwrite --logger"
        ),
        "resume": "--steps --logger",
        "eval": "--episodes --best --last --seed --json --picture",
        "record": (
            "--policy --share --steps --out --noise --expert --seed --random-return "
            "--expert-return --episodes --num-envs --pool-size --episode-length "
            "--pipeline --overwrite --best --last --drawn"
        ),
        "runs": "compare page --out",
    }.items()
}
_WORDS = (*_NAMES, *_FILES)
_WORDS += tuple("ilqr cem env agent default q none wide my-robot".split())


class Reached(BaseException):
    """The arguments are accepted, and the work would begin."""


def _reached(*args, **kwargs):
    raise Reached


class Kind:
    """Law: the arguments are accepted, or the exit status is 1 or 2 with one message."""

    REFUSALS = ()
    WRITES = _FILES[:5] + ("empty", "rollout.npz")

    def __init__(self, folder):
        self.here = folder / "here"
        # Work that takes long; what comes before it has checked the arguments.
        places = [(_simulation_commands, "_run"), (_simulation_commands, "_solved")]
        places += [(_view_command, "_show"), (_view_command, "_export")]
        places += [(_plugin_commands, "outcomes"), (_plugin_commands, "probe")]
        places += [(eqsim.identify, "fit")]
        for name, work in (
            ("_train_commands", "train"),
            ("_train_commands", "resume"),
            ("_reading", "evaluate_members"),
        ):
            places.append((_module(name), work))
        places += [
            (_module("_policy_commands"), "record"),
            (_module("_reading"), "write_curves"),
            (_module("_reading"), "write_page"),
        ]
        for module, name in places:
            assert hasattr(module, name), f"{module.__name__}.{name} is gone"
            setattr(module, name, _reached)
        _simulation_commands.eqx = Stub  # type: ignore
        os.chdir(self.here)
        self._write()

    def _write(self):
        for path in self.here.iterdir():
            if path.name not in self.WRITES:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        if (self.here / "run").exists():
            return
        (self.here / "run").mkdir()
        (self.here / "run/config.json").write_text("{}")
        (self.here / "model.xml").write_text(MODELS[0])
        (self.here / "p.toml").write_text(_PARAMETERS)
        (self.here / "p.json").write_text('{"damping": {"path": "joints.damping"}}')
        (self.here / "empty").write_text("")
        time = np.arange(30) * 0.01
        arrays = {"time": time, "ctrl": np.zeros((30, 4)), "q": np.zeros((30, 2))}
        np.savez(self.here / "data.npz", **arrays)
        q = np.zeros((1, 3, 1))
        np.savez(self.here / "rollout.npz", q=q, dt=0.1, env="point_mass")

    def attempt(self, rng: Random):
        argv = _argv(rng)
        out, err = io.StringIO(), io.StringIO()
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                status = main(argv)
        except Reached:
            return None
        finally:
            self._write()
        text = err.getvalue() or out.getvalue()
        assert status in (0, 1, 2), f"{argv}: status {status}"
        assert "Traceback (most" not in text, f"{argv}: {text}"
        assert text.strip() or status == 0 and argv, f"{argv}: no message"
        assert len(text) < 200_000, f"{argv}: {len(text)} characters"
        return f"{status}: {text[-300:]}" if status else None


class Stub:
    """Stands in the place of equinox where compiling begins."""

    filter_jit = staticmethod(_reached)
    filter_vmap = staticmethod(_reached)


def _module(name: str):
    import importlib

    return importlib.import_module(f"{eqsim_zoo.__name__}._cli.{name}")


def _argv(rng: Random) -> list[str]:
    command = rng.choice(list(_COMMANDS))
    argv = [command] if command else []
    if rng.random() < 0.03:
        argv = [_word(rng)]
    for _ in range(_positionals(rng, command)):
        argv.append(rng.choice(_WORDS) if rng.random() < 0.9 else _word(rng))
    if command == "identify" and rng.random() < 0.8:
        argv = [
            "identify",
            "model.xml",
            "data.npz",
            "--parameters",
            rng.choice(("p.toml", "p.json")),
        ]
    if command in ("rollout", "show", "control", "view") and rng.random() < 0.5:
        argv[1:2] = ["point_mass"]
    if command in ("train", "record") and rng.random() < 0.6:
        argv[1:] = ["ppo", "point_mass"] if command == "train" else ["point_mass"]
    for _ in range(rng.choice((0, 1, 1, 2, 3))):
        option = rng.choice(_COMMANDS[command] or ("--help",))
        kind = rng.random()
        if kind < 0.45:
            value = rng.choice(_NUMBERS)
        elif kind < 0.75:
            value = rng.choice(_WORDS)
        else:
            value = _word(rng)
        if option in ("--set", "--sweep") and rng.random() < 0.8:
            name = rng.choice(("learning_rate", "hidden", "discount", "num_envs", "xx"))
            value = f"{name}={value}"
        action = rng.random()
        if action < 0.6:
            argv += [option, value]
        elif action < 0.8:
            argv.append(f"{option}={value}")
        else:
            argv.append(option)
    if rng.random() < 0.1:
        rng.shuffle(argv)
    return argv


def _positionals(rng: Random, command: str) -> int:
    usual = {"": 0, "list": 0, "train": 2, "identify": 2, "plugins": 2, "runs": 2}
    return usual.get(command, 1) if rng.random() < 0.85 else rng.randrange(4)


def _word(rng: Random) -> str:
    """A word that names no file outside the working folder."""
    text = word(rng).replace("\0", "")
    return "x" if {"/", "~", "\\"} & {*text} or ".." in text else text[:2000]
