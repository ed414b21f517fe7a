"""The page and the export in headless Chromium."""

import io
import time

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from browser import CHROMIUM, opened, Page
from PIL import Image
from viewer_models import point

import eqsim
from eqsim import viewer


pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed"),
]
SIZE = (1200, 800)
# The time that the page shows, s.
TIME = r"+(document.body.innerText.match(/([\d.]+) s ·/) || [0, -1])[1]"

BUTTONS = 'document.querySelectorAll("button")'


def image(page: Page) -> np.ndarray:
    """The scene, without the margins where panels are, as floating point numbers."""
    shot = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    width, height = shot.size
    middle = shot.crop((width // 4, height // 5, width * 5 // 8, height * 9 // 10))
    return np.asarray(middle, float)


def red(pixels: np.ndarray) -> np.ndarray:
    """Rows and columns of red pixels: the ball."""
    r, g, b = pixels.transpose(2, 0, 1)
    return np.argwhere((r > 1.4 * g) & (r > 1.4 * b) & (r > 60))


def ball(page: Page, seconds: float = 60.0) -> np.ndarray:
    """Where the ball is in the picture, once it is there."""
    end = time.monotonic() + seconds
    while len(found := red(image(page))) < 20:
        assert time.monotonic() < end, "the ball is not in the picture"
        time.sleep(0.5)
    return found.mean(axis=0)


def test_a_recording_plays(tmp_path):
    q = np.linspace(0.0, -0.9, 20)[:, None]
    with (
        viewer.launch(point(), q, dt=0.2, port=0) as page,
        opened(page.url, tmp_path) as tab,
    ):
        tab.resize(*SIZE)
        tab.until(f"{TIME} >= 0")
        ball(tab)
        first = tab.run(TIME)
        tab.until(f"{TIME} != {first}")
        click(tab, "Pause")
        tab.until(f"[...{BUTTONS}].some(x => x.innerText === 'Play')")
        session = page._session
        assert not session.playing
        before = session.index
        click(tab, "Step")
        wait_for(lambda: session.index == (before + 1) % 20)
        click(tab, "Reset")
        wait_for(lambda: session.index == 0 and not session.playing)
        tab.run("document.activeElement.blur()")
        press(tab, " ", "Space", 32)
        wait_for(lambda: session.playing)


def test_a_slider_changes_the_robot(tmp_path):
    """The ball falls as fast as the gravity says that was typed."""
    sliders = {"gravity": viewer.ValueSlider(lambda s: s.gravity, -20.0, 0.0, 2)}
    sys = point()
    with viewer.launch(sys, sliders=sliders, port=0) as page:
        page._session.playing = False
        with opened(page.url, tmp_path) as tab:
            tab.resize(*SIZE)
            tab.until('document.body.innerText.includes("gravity")')
            high = ball(tab)
            _type(tab, "gravity", "-5")
            wait_for(lambda: page._session.values[0] == -5.0)
            click(tab, "Play")
            tab.until(f"{TIME} > 1.0", 120.0)
            low = ball(tab)
            assert low[0] > high[0] + 20.0
            frame = page._session.history[1]
            speed = float(np.asarray(frame.robots.state.qd)[0, 0])
            assert speed == pytest.approx(-5.0 * 0.01)


def test_an_export_opens_from_disk_without_network(tmp_path):
    env = viewer.as_environment(point())
    policy = lambda obs, key: jnp.zeros(1)
    trajectory = eqsim.rollout(env, policy, jr.split(jr.key(0), 2), 60)
    path = tmp_path / "page.html"
    viewer.export(env, trajectory, path)
    with opened(path.as_uri(), tmp_path / "profile", offline=True) as tab:
        tab.resize(*SIZE)
        high = ball(tab)
        assert high.shape == (2,)
        # Seconds of the time line, which loops.
        value = 'document.querySelector("input").value'
        first = tab.until(value)
        tab.until(f"{value} !== {first!r}")
        outside = [
            url
            for url in tab.requests
            if not url.startswith(("file:", "data:", "blob:"))
        ]
        assert not outside


@pytest.mark.parametrize("size", [(1200, 800), (420, 800)], ids=["wide", "narrow"])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_pages_fit_the_window(tmp_path, size, dark):
    q = np.zeros((3, 1))
    with viewer.launch(point(), q, dark=dark, port=0) as page:
        with opened(page.url, tmp_path, size=size) as tab:
            tab.resize(*size, dark=dark)
            tab.until(
                'document.body.innerText.includes("contact forces") || '
                'document.body.innerText.includes("View")'
            )
            wide = tab.run("document.documentElement.scrollWidth")
            assert wide <= size[0]
            time.sleep(3.0)
            corner = np.asarray(Image.open(io.BytesIO(tab.screenshot())).convert("L"))
            bright = float(np.median(corner[: size[1] // 8, : size[0] // 8]))
            assert bright < 100.0 if dark else bright > 150.0


def _type(tab: Page, label: str, text: str) -> None:
    """Write into the field for numbers of a slider, as a user does."""
    place = tab.run(
        f"""(() => {{
          const name = [...document.querySelectorAll("label, span, div")].filter(
            x => x.children.length === 0 && x.innerText === "{label}")[0];
          let row = name;
          while (!row.querySelector("input[type=text], input[inputmode]"))
            row = row.parentElement;
          const inputs = row.querySelectorAll("input[type=text], input[inputmode]");
          const field = inputs[inputs.length - 1];
          field.focus(); field.select();
          return true;
        }})()"""
    )
    assert place
    tab.call("Input.insertText", text=text)
    press(tab, "Enter", "Enter", 13)


def press(tab: Page, key: str, code: str, number: int) -> None:
    """Press a key."""
    event = {"key": key, "code": code, "windowsVirtualKeyCode": number}
    for kind in ("keyDown", "keyUp"):
        tab.call("Input.dispatchKeyEvent", type=kind, **event)


def click(tab: Page, text: str) -> None:
    """Click the button with a text."""
    tab.run(f"[...{BUTTONS}].filter(x => x.innerText === '{text}')[0].click()")


def wait_for(condition, seconds: float = 60.0) -> None:
    """Wait until a condition of this process holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)
