"""`eqsim export` writes the policy of a run, and `eqsim replay` runs it in MuJoCo."""

import pathlib
from typing import Annotated

import numpy as np
import tyro

from eqsim.plugins import CommandError

from ..export import export_policy, PolicyFormat, Replay, replay
from ..export.mujoco_robot import Servo
from ..runs.folders import read_config
from ._printing import console, plain_table, sentences
from ._reading import read


def export_run(
    folder: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")],
    out: str,
    format: PolicyFormat = "onnx",
    env: str | None = None,
    best: bool = False,
    last: bool = False,
    member: int = 0,
) -> None:
    """Write the policy of a run to a file that needs no JAX: an ONNX model, a NumPy module
    or a TorchScript module. Normalization and scaling are included.

    Args:
        folder: folder of the run.
        out: file to write, which ends with .onnx, .py or .pt.
        format: `onnx` needs the extra `export`, `torchscript` PyTorch.
        env: name of the environment, or `module:Class`; by default the stored name.
        best: use the checkpoint with the best evaluation. This is the default, except for
            skills.
        last: use the last checkpoint.
        member: number of the member in the order of `eqsim eval`, from 0.
    """
    if best and last:
        raise CommandError("`--best` and `--last`: choose one of them.")
    with sentences():
        run = read(folder, env, best, last)
        if not 0 <= member < run.members.count:
            raise CommandError(
                f"`--member` must be at least 0 and below {run.members.count}, got {member}."
            )
        name = env or read_config(pathlib.Path(folder))["run"]["env"] or ""
        about = export_policy(
            *run.member(member), run.environment(), out, format=format, name=name
        )
    screen = console()
    screen.print(f"wrote {out}: {about.agent} on {about.env}")
    if about.start:
        screen.print(f"The policy has a memory: {', '.join(about.start)}.")
    if about.deployment is None:
        screen.print(
            f"Without a deployment, so `eqsim replay` refuses it: {about.reason}"
        )


def replay_policy(
    policy: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="POLICY")],
    model: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")],
    command: tuple[float, float, float] = (0.5, 0.0, 0.0),
    seconds: float = 20.0,
    latency: float = 0.0,
    noise: float = 0.0,
    push: float = 0.0,
    gait: float = 0.0,
    servo: Servo = "policy",
    seed: int = 0,
    video: str | None = None,
) -> None:
    """Run a policy in MuJoCo C on the scene of a robot, and print how it tracks commands.

    Args:
        policy: ONNX file, written by `eqsim export`.
        model: MJCF file of the scene.
        command: forward and lateral velocity, m/s, and yaw rate, rad/s.
        seconds: duration, s.
        latency: time from an observation to the new targets of the servos, s.
        noise: level of noise on observations; 1 is typical of sensors of legged robots.
        push: force on the root in random horizontal directions, 0.2 s every 5 s, N.
        gait: frequency of the gait phases, Hz, if the policy observes them.
        servo: gains of the joint servos: those the policy was trained with, or those of
            the model file.
        seed: random seed of noise and pushes.
        video: write an animation (.gif).
    """
    with sentences():
        found = replay(
            policy,
            model,
            command=command,
            seconds=seconds,
            latency=latency,
            noise=noise,
            push=push,
            gait=gait,
            servo=servo,
            seed=seed,
            video=video,
        )
    screen = console()
    table = plain_table("", "mean", "largest")
    for row in _rows(found):
        table.add_row(*row)
    screen.print(table)
    screen.print(
        f"{found.seconds:g} s: {found.falls} falls, torques saturated "
        f"{100 * found.saturation:.2g} % of the time, mean power {found.power:.4g} W"
    )
    if video is not None:
        screen.print(f"wrote {video}")


def _rows(found: Replay) -> list[tuple[str, str, str]]:
    velocity = found.velocity_error, found.largest_velocity_error
    yaw = found.yaw_error, found.largest_yaw_error
    names = "velocity error (m/s)", "yaw rate error (rad/s)"
    show = lambda x: f"{x:.3g}" if np.isfinite(x) else "none"
    pairs = zip(names, (velocity, yaw))
    return [(name, show(mean), show(largest)) for name, (mean, largest) in pairs]
