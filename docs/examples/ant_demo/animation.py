"""A GIF of two ants side by side, drawn by MuJoCo.

Run as a program, because the choice of an OpenGL library must be made before MuJoCo is
imported, and because a broken one may take the process with it.
"""

import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np


SIZE = (240, 320)


def animate(path: pathlib.Path, left: np.ndarray, right: np.ndarray, fps: int) -> str:
    """Write a GIF of two sequences of coordinates.

    **Returns:** an empty string, or the reason why MuJoCo could not draw.
    """
    # The program runs in another folder.
    path, reasons = path.resolve(), []
    with tempfile.TemporaryDirectory() as folder:
        motion = pathlib.Path(folder) / "motion.npz"
        np.savez(motion, left=left, right=right)
        for library in ("egl", "osmesa"):
            done = subprocess.run(
                [sys.executable, "-m", __name__, str(motion), str(path), str(fps)],
                env=os.environ | {"MUJOCO_GL": library},
                cwd=pathlib.Path(__file__).parents[1],
                capture_output=True,
                text=True,
            )
            if done.returncode == 0:
                return ""
            lines = done.stderr.strip().splitlines()
            reason = lines[-1] if lines else f"exit code {done.returncode}"
            reasons.append(f"{library}: {reason}")
    return f"No GIF, as MuJoCo could not draw it ({'; '.join(reasons)})."


def main(motion: str, path: str, fps: str) -> None:
    import mujoco
    from PIL import Image

    from .robot import mujoco_model

    model = mujoco_model()
    model.vis.global_.offheight, model.vis.global_.offwidth = SIZE
    data, frames = mujoco.MjData(model), []
    sides = np.load(motion)
    with mujoco.Renderer(model, *SIZE) as renderer:
        for pair in zip(sides["left"], sides["right"], strict=True):
            images = [_draw(model, data, renderer, q) for q in pair]
            gap = np.full((SIZE[0], 4, 3), 255, np.uint8)
            frame = np.concatenate([images[0], gap, images[1]], axis=1)
            frames.append(Image.fromarray(frame).quantize(64))
    duration = 1000 // int(fps)
    frames[0].save(
        path, save_all=True, append_images=frames[1:], duration=duration, loop=0
    )


def _draw(model, data, renderer, q):
    import mujoco

    data.qpos[:] = q
    mujoco.mj_forward(model, data)
    renderer.update_scene(data, camera="track")
    for flag in (mujoco.mjtRndFlag.mjRND_REFLECTION, mujoco.mjtRndFlag.mjRND_SHADOW):
        renderer.scene.flags[flag] = False
    return renderer.render()


if __name__ == "__main__":
    main(*sys.argv[1:])
