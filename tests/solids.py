"""Meshes and height fields for tests, as MJCF."""

import numpy as np


_CORNER = [(0, 0), (2, 0), (2, 1), (1, 1), (1, 3), (0, 3)]


def corner():
    """Vertices and triangles of a prism over an L, which is not convex."""
    n = len(_CORNER)
    points = [(0.1 * x, 0.1 * y, z) for z in (0.0, 0.13) for x, y in _CORNER]
    caps = [(0, 1, 2), (0, 2, 3), (0, 3, 4), (0, 4, 5)]
    faces = [(a, c, b) for a, b, c in caps]
    faces += [(a + n, b + n, c + n) for a, b, c in caps]
    for k in range(n):
        a, b = k, (k + 1) % n
        faces += [(a, b, b + n), (a, b + n, a + n)]
    return np.array(points), np.array(faces)


def numbers(values):
    """Text of numbers."""
    return " ".join(map(str, np.ravel(values).tolist()))


def mesh(name, points, faces=None, **attributes):
    """An element `mesh`."""
    words = {"vertex": numbers(points), **attributes}
    if faces is not None:
        words["face"] = numbers(faces)
    text = " ".join(f'{key}="{value}"' for key, value in words.items())
    return f'<mesh name="{name}" {text}/>'


CUBE = np.array([(x, y, z) for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)]) * 0.2
TETRAHEDRON = np.array([(0, 0, 0), (0.3, 0, 0), (0, 0.4, 0), (0, 0, 0.5)])
HILLS = np.random.default_rng(0).uniform(0.0, 1.0, (5, 7))
APART = 'contype="0" conaffinity="0"'


def assets(inertia="legacy"):
    """All of them: `corner` (not convex), `cube`, `tent` (mirrored) and `hills`."""
    parts = (
        mesh("corner", *corner(), inertia=inertia),
        mesh("cube", CUBE),
        mesh("tent", TETRAHEDRON, scale="1 1 -0.5", inertia=inertia),
        '<hfield name="hills" nrow="5" ncol="7" size=".5 .7 .4 .1" '
        f'elevation="{numbers(HILLS)}"/>',
    )
    return f"<asset>{''.join(parts)}</asset>"


ROBOT = """
<mujoco>{assets}<worldbody>
  <geom name="ground" type="hfield" hfield="hills" pos="0 0 -1" {apart}/>
  <body name="arm" pos="0 0 .5"><joint type="hinge" axis="0 1 0"/>
    <geom name="one" type="mesh" mesh="corner" pos=".1 .2 .3" quat="1 2 3 4" {apart}/>
    <geom name="two" type="mesh" mesh="tent" pos="0 0 .3" contype="4" conaffinity="4"/>
    <geom name="three" type="mesh" mesh="corner" {apart}/>
    <geom name="ball" size=".1"/>
    <body name="hand" pos=".3 0 0"><joint type="slide"/>
      <geom name="four" type="mesh" mesh="cube" contype="2" conaffinity="2"/></body>
  </body></worldbody></mujoco>"""


def robot(inertia="legacy"):
    """Text of a robot with meshes and a terrain, which touch nothing."""
    return ROBOT.format(assets=assets(inertia), apart=APART)
