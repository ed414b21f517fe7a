"""Short files from which MuJoCo's compiler makes more than it can in seconds."""

import mujoco
import pytest

from eqsim.io import load_mjcf
from eqsim.io.mjcf.sources import check_expansion, MOST_COPIES


HUGE = 2**31 - 1
BALL = '<body><freejoint/><geom size=".1"/></body>'


def world(inside, more=""):
    return f"<mujoco>{more}<worldbody>{inside}</worldbody></mujoco>"


def copies(count, inside=BALL):
    return f'<replicate count="{count}" offset="1 0 0">{inside}</replicate>'


def cable(count):
    return f'<flexcomp name="f" type="grid" count="{count}" dim="1" spacing="1 1 1"/>'


def attached(count, bomb="c.xml"):
    model = f'<asset><model name="m" file="{bomb}"/></asset>'
    attach = '<attach model="m" body="b" prefix="p"/>'
    return f"<mujoco><worldbody>{copies(count, attach)}</worldbody>{model}</mujoco>"


REFERENCES = """<mujoco><worldbody><replicate count="3000"><site name="s"/></replicate>
  </worldbody><sensor><framepos objtype="site" objname="s"/></sensor></mujoco>"""
DOUBLING = {
    f"m{k}.xml": f"""<mujoco><asset><model name="n" file="m{k + 1}.xml"/></asset>
      <worldbody><body name="b"><attach model="n" body="b" prefix="l"/>
      <attach model="n" body="b" prefix="r"/></body></worldbody></mujoco>"""
    for k in range(60)
}
REFUSED = {
    "replicate": (world(copies(HUGE)), {}, f'<replicate count="{HUGE}">'),
    "empty": (world(f'<replicate count="{HUGE}"/>'), {}, "replicate"),
    "nested": (world(copies(50, copies(50, copies(50)))), {}, "125,000 in nested"),
    "hidden": (world(copies(0, copies("&#50;147483647"))), {}, "<replicate count"),
    "siblings": (world(copies(3000) * 3), {}, "30,000 copies"),
    "flexcomp": (world(f"<body>{cable('2000 2000 2000')}</body>"), {}, "<flexcomp"),
    "flexcomp in replicate": (world(copies(200, cable("200 1 1"))), {}, "40,000 in"),
    "composite": (
        world('<composite type="cable" count="9999 9 9"/>'),
        {},
        "<composite",
    ),
    "included": (
        world('<include file="sub/A.xml"/>'),
        {"a.xml": f"<mujocoinclude>{copies(HUGE)}</mujocoinclude>"},
        str(HUGE),
    ),
    "include in replicate": (
        world(copies(200, '<include file="a.xml"/>')),
        {"a.xml": f"<mujocoinclude>{copies(200)}</mujocoinclude>"},
        "40,000 in nested",
    ),
    "attached": (attached(1), {"c.xml": world(copies(HUGE))}, str(HUGE)),
    "attach in replicate": (
        attached(100),
        {"c.xml": world(f'<body name="b">{BALL * 150}</body>')},
        '<replicate count="100">',
    ),
    "doubling": (DOUBLING["m0.xml"], DOUBLING, '<attach model="n">'),
    "references": (REFERENCES, {}, "sensor"),
    "height field": (
        world("", '<asset><hfield name="h" nrow="20000" ncol="20000"/></asset>'),
        {},
        "nrow times ncol of <hfield> must be at most 16,777,216, got 400,000,000",
    ),
    "texture": (
        world("", '<asset><texture name="t" width="30000" height="30000"/></asset>'),
        {},
        "width times height of <texture>",
    ),
    "builtin mesh": (
        world("", '<asset><mesh builtin="supersphere" params="2000 1 1"/></asset>'),
        {},
        "params of <mesh> must be at most 300, got 2,000",
    ),
    "user data": (world("", '<size nuser_body="500000000"/>'), {}, "nuser_body"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_before_it_is_compiled(name, monkeypatch):
    text, files, says = REFUSED[name]
    compiled = []
    compiler = lambda *args: compiled.append(args)
    monkeypatch.setattr(mujoco.MjModel, "from_xml_string", compiler)
    with pytest.raises(ValueError, match="The MJCF text") as caught:
        load_mjcf(text, files)
    assert says in str(caught.value) and "pass the `mujoco.MjModel`" in str(
        caught.value
    )
    assert "by MuJoCo" not in str(caught.value)
    assert not compiled


def test_files_that_are_included_or_attached(tmp_path):
    (tmp_path / "sub").mkdir()
    main, part = tmp_path / "main.xml", tmp_path / "sub" / "part.xml"
    main.write_text(world('<include file="sub/part.xml"/>'))
    part.write_text(f"<mujocoinclude>{copies(HUGE)}</mujocoinclude>")
    with pytest.raises(ValueError, match=f'main.xml makes .*count="{HUGE}"'):
        load_mjcf(main)
    part.write_text(f"<mujocoinclude>{copies(2)}</mujocoinclude>")
    assert load_mjcf(main).nv == 12
    main.write_text(attached(1, "sub/part.xml"))
    part.write_text(world(f'<body name="b">{copies(HUGE)}</body>'))
    with pytest.raises(ValueError, match=f'count="{HUGE}"'):
        load_mjcf(main)


def test_accepted():
    mats = '<asset><texture name="t" type="2d" builtin="flat" width="9" height="9"/>'
    inner = copies(2, '<geom name="g" size=".1"/>')
    text = world(copies(3, f"<body><freejoint/>{inner}</body>"), mats + "</asset>")
    comment = f"<!-- {copies(HUGE)} --><mujoco><worldbody/></mujoco>"
    sys = load_mjcf(text)
    assert sys.nv == 18 and len(sys.geoms.names) == 6
    assert load_mjcf(comment).nv == 0


def test_the_limit_is_the_number_of_copies():
    # Each copy is a geom; the <replicate> itself counts once for each copy.
    allowed = world(copies(MOST_COPIES // 2, '<geom size=".1"/>'))
    check_expansion("It", allowed, ".", None)
    more = allowed.replace(str(MOST_COPIES // 2), str(MOST_COPIES // 2 + 1))
    with pytest.raises(ValueError, match="It makes too many copies"):
        check_expansion("It", more, ".", None)


def test_files_that_refer_to_themselves_or_to_nothing():
    files = {"a.xml": '<mujocoinclude><include file="a.xml"/></mujocoinclude>'}
    for text in (
        world('<include file="a.xml"/>'),
        world('<include file="no.xml"/>'),
        world('<attach model="no" body="b" prefix="p"/>'),
        world('<include file="/dev/zero"/>'),
        world(f'<include file="{"x" * 5000}"/>'),
        world(copies("many")),
        "<" * 100_000,
        '<a "' * 100_000,
        world("<body " * 100_000),
    ):
        with pytest.raises(ValueError, match="cannot be read by MuJoCo"):
            load_mjcf(text, files)
    own = attached(1, "m.xml")
    with pytest.raises(ValueError):
        load_mjcf(own, {"m.xml": own})
