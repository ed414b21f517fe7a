"""Pages, without a browser: what is sent, what is written, what is refused."""

import base64
import re
import sys
import time
import urllib.error
import urllib.request

import jax.numpy as jnp
import jax.random as jr
import msgspec
import numpy as np
import pytest
import zstandard
from viewer_models import point, shapes

import eqsim
from eqsim import viewer


def content(page):
    """The recording in a page: its length, s, and its messages."""
    text = re.search(r'__VISER_EMBED_DATA__="([^"]+)"', page.html).group(1)
    data = base64.b64decode(text)
    raw = zstandard.ZstdDecompressor().decompress(
        data[8:], max_output_size=int.from_bytes(data[:8], "little")
    )
    size = int.from_bytes(raw[:8], "little")
    found = msgspec.msgpack.decode(raw[8 : 8 + size])
    return found["durationSeconds"], [message for _, message in found["messages"]]


def test_an_export_holds_the_motion_and_asks_for_nothing(tmp_path):
    q = np.linspace(0.0, 1.0, 41)[None, :, None]
    page = viewer.export(point(), q, tmp_path / "new" / "page.html", dt=0.02)
    assert (tmp_path / "new" / "page.html").read_text(encoding="utf-8") == page.html
    seconds, messages = content(page)
    # Every second frame, as a page has at most 30 frames per second.
    assert seconds == pytest.approx(0.8)
    moves = [x for x in messages if "batched_positions" in x.get("updates", {})]
    assert len(moves) == 21
    addresses = re.findall(r"""(?:src|href)=["']?(?:https?:)?//[^"'> ]+""", page.html)
    assert not addresses
    assert page._repr_html_().startswith("<iframe srcdoc=") and "bytes" in repr(page)


def test_every_kind_of_shape_is_exported():
    sys = shapes()
    q = np.tile(np.asarray(sys.joints.ref), (2, 2, 1))
    _, messages = content(viewer.export(sys, q, spacing=0.0, dark=True))
    names = {x["name"] for x in messages if x["type"] == "BatchedMeshesMessage"}
    words = {name.rpartition("/")[2] for name in names}
    assert words == {"sphere", "cylinder", "box", "square", "mesh 0", "field 0"}


def test_forces_are_arrows():
    env = eqsim.viewer.as_environment(point())
    start = env.begin(env.pipeline.init(env.sys, jnp.array([-0.89])))
    policy = lambda obs, key: jnp.zeros(1)
    trajectory = eqsim.rollout(env, policy, jr.key(0), 20, start=start)
    arrows = {}
    for forces in (True, False):
        _, messages = content(viewer.export(env, trajectory, forces=forces))
        arrows[forces] = [x for x in messages if x["type"] == "ArrowMessage"]
    assert len(arrows[True]) == 1 and not arrows[False]
    with pytest.raises(ValueError, match="Pass the environment"):
        viewer.export(env.sys, trajectory)


def test_a_page_is_served_on_this_machine():
    with viewer.launch(point(), np.zeros((3, 1)), port=0, forces=False) as page:
        assert page.url.startswith("http://127.0.0.1:")
        with urllib.request.urlopen(page.url, timeout=20) as answer:
            assert answer.status == 200 and b"<html" in answer.read()
        assert page.url in page._repr_html_()
        port = int(page.url.split(":")[2].strip("/"))
        with pytest.raises(OSError, match="or 0 for any"):
            viewer.launch(point(), np.zeros((3, 1)), port=port)
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(page.url, timeout=20)
    page.close()


def test_what_fails_in_the_simulation_reaches_the_caller():
    def policy(obs, key):
        raise ValueError("this policy fails")

    with viewer.launch(point(), policy=policy, port=0) as page:
        with pytest.raises(ValueError, match="this policy fails"):
            end = time.monotonic() + 60
            while time.monotonic() < end:
                page.wait()


def test_without_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "viser", None)
    with pytest.raises(ImportError, match=r"pip install 'eqsim\[viewer\]'"):
        viewer.launch(point(), np.zeros((3, 1)))
