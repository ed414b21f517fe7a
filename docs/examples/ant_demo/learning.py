"""A cheetah that learns to run, by the two commands that a user would type.

Each is a process of its own: learning wants single precision, and cores that share one
device, which the rest of the demonstration has set otherwise.
"""

import pathlib
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable
from typing import NamedTuple

from PIL import Image

from eqsim_zoo.runs import read_metrics

from . import compilation


AGENT, ENV, STEPS, EPISODES = "ppo", "half_cheetah", "1e6", 64
TINY = (
    "--steps 4096 --num-envs 64 --episode-length 40 --pool-size 8 --turns 2 "
    "--evaluations 1 --episodes 2"
).split()
"""Options of a run that shows no more than that it runs."""
KNOWN = {
    "steps": "steps",
    "seconds": "seconds",
    "mean_return": "eval/return",
    "confidence": "eval/error",
    "standard_deviation": "eval/deviation",
    "length": "eval/length",
}
"""What is told of each evaluation, and its column in the metrics."""


class Learned(NamedTuple):
    """What became of a run.

    - `commands`: what was typed, and what it printed.
    - `evaluations`: a dictionary per evaluation, with the names of `KNOWN`.
    - `folder`: of the run.
    - `animation`: file; None if it could not be drawn, and then `problem` says why.
    - `compiled`: seconds that the commands compiled.
    """

    commands: list[tuple[str, str]]
    evaluations: list[dict]
    folder: pathlib.Path
    animation: pathlib.Path | None
    problem: str
    compiled: float


def learn(folder: pathlib.Path, quick: bool, say: Callable[[str], None]) -> Learned:
    """Trains, evaluates, and draws an episode.

    **Arguments:**

    - `folder`: for the run.
    - `quick`: whether to see no more than that it runs.
    - `say`: told each line that is printed.

    **Raises:** `RuntimeError` if training fails, with what it printed.
    """
    run = [
        "--out",
        str(folder),
        "--overwrite",
        *(TINY if quick else ("--steps", STEPS)),
    ]
    train = ["eqsim", "train", AGENT, ENV, *run]
    episodes = str(2 if quick else EPISODES)
    evaluate = ["eqsim", "eval", str(folder), "--episodes", episodes]
    done, printed, first = _execute(train, say)
    if not done:
        raise RuntimeError(f"`{shlex.join(train)}` failed:\n{printed}")
    commands = [(shlex.join(train), printed)]
    say("Evaluating what was learned, and drawing an episode (compiles)")
    evaluate += ["--picture"]
    done, printed, second = _execute(evaluate, lambda line: None)
    problem = "" if done else (printed.splitlines() or ["no reason given"])[-1]
    commands.append((shlex.join(evaluate), printed))
    rows = [row for row in read_metrics(folder) if "eval/return" in row]
    entries = [{name: row[column] for name, column in KNOWN.items()} for row in rows]
    animation = folder / "episode.gif" if done else None
    return Learned(commands, entries, folder, animation, problem, first + second)


def excerpt(
    animation: pathlib.Path,
    loop: pathlib.Path,
    strip: pathlib.Path,
    first: int = 40,
    frames: int = 100,
) -> None:
    """Writes a shorter animation, and eight pictures of it in two rows.

    **Arguments:**

    - `animation`: a GIF.
    - `loop`, `strip`: what to write.
    - `first`, `frames`: where the part begins, and how long it is; where there are fewer
        pictures, the last ones.
    """
    with Image.open(animation) as whole:
        first = max(0, min(first, whole.n_frames - frames))
        last = min(first + frames, whole.n_frames)
        duration, images = whole.info.get("duration", 50), []
        for number in range(first, last):
            whole.seek(number)
            images.append(whole.convert("RGB"))
    small = [image.quantize(64) for image in images]
    small[0].save(
        loop, save_all=True, append_images=small[1:], duration=duration, loop=0
    )
    width, height = images[0].size
    sheet = Image.new("RGB", (4 * width, 2 * height), "white")
    for number, image in enumerate(images[:8]):
        sheet.paste(image, (number % 4 * width, number // 4 * height))
    sheet.save(strip)


def _execute(command: list[str], say: Callable[[str], None]) -> tuple[bool, str, float]:
    """Whether it succeeded, what it printed, and for how many seconds it compiled."""
    with tempfile.TemporaryDirectory() as folder:
        measured = pathlib.Path(folder, "seconds")
        program = [sys.executable, compilation.__file__, str(measured), *command[1:]]
        done, printed = _run(program, say)
        return done, printed, float(measured.read_text() if measured.exists() else 0)


def _run(program: list[str], say: Callable[[str], None]) -> tuple[bool, str]:
    process = subprocess.Popen(
        program, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    lines = []
    with process:
        for line in process.stdout:
            lines.append(line.rstrip())
            say(lines[-1].strip())
    return process.returncode == 0, "\n".join(lines)
