"""A cheetah that learns to run, by two commands of the command line.

Each command is a separate process: training uses single precision and one device with all
cores, unlike the rest of the demonstration.
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


AGENT, ENV, STEPS, EPISODES = "ppo", "half_cheetah", "7e5", 64
TINY = (
    "--steps 4096 --num-envs 64 --episode-length 40 --pool-size 8 --turns 2 "
    "--evaluations 1 --episodes 2"
).split()
"""Options of a short run for tests."""
KNOWN = {
    "steps": "steps",
    "seconds": "seconds",
    "mean_return": "eval/return",
    "confidence": "eval/error",
    "standard_deviation": "eval/deviation",
    "length": "eval/length",
}
"""Values of each evaluation, and their columns in the metrics."""


class Learned(NamedTuple):
    """Result of a training run.

    - `commands`: commands and their outputs.
    - `evaluations`: a dictionary per evaluation, with the names of `KNOWN`.
    - `folder`: folder of the run.
    - `animation`: file; None if it could not be drawn, with the reason in `problem`.
    - `compiled`: compile time of the commands, s.
    """

    commands: list[tuple[str, str]]
    evaluations: list[dict]
    folder: pathlib.Path
    animation: pathlib.Path | None
    problem: str
    compiled: float


def learn(folder: pathlib.Path, quick: bool, say: Callable[[str], None]) -> Learned:
    """Train, evaluate, and draw an episode.

    **Arguments:**

    - `folder`: folder of the run.
    - `quick`: true for a short run.
    - `say`: function that receives each line of output.

    **Raises:** `RuntimeError` with the output if training fails.
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
    say("Evaluating the policy, and drawing an episode (compiles)")
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
    """Write a part of an animation, and eight frames of it in two rows.

    **Arguments:**

    - `animation`: a GIF.
    - `loop`, `strip`: files to write.
    - `first`, `frames`: first frame and number of frames of the part; at the end of a
        shorter animation, its last frames.
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
    """Return if it succeeded, its output, and its compile time in seconds."""
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
