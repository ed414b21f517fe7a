"""Sources of `load_mjcf`: a file, XML text, an `MjSpec` or an `MjModel`.

Text is checked before MuJoCo compiles it: a short file can ask for a very large model.
`with_height_field` replaces a plane of a file by a height field.
"""

import contextlib
import copy
import html
import math
import os
import pathlib
import re
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from ..._errors import check_count
from .mujoco_names import engine


# Limits on what a short MJCF file makes MuJoCo's compiler create: copies and sizes.


MOST_COPIES = 30_000
"""Elements that `<replicate>`, `<attach>`, `<flexcomp>` and `<composite>` may make."""
MOST_ENTRIES = 2**24
"""Entries of a height field, pixels of a texture, or numbers of a `<size>`."""
MOST_SEGMENTS = 300
"""Largest parameter of a builtin mesh, such as its number of segments."""
# MuJoCo's compiler needs as long for n references to elements that are copied n times as
# for n^2 / 50 other elements (measured with sensors and actuators, MuJoCo 4.0).
_REFERENCES = 50
_COPYING = ("replicate", "flexcomp", "composite")
_REFERRING = ("sensor", "actuator", "tendon", "equality", "contact")
_EXPANDS = re.compile(
    "<(replicate|attach|flexcomp|composite|include|hfield|texture|mesh|size)"
)
_TAG = re.compile(
    r"""<(?:!--.*?--|\?.*?\?|!\[CDATA\[.*?\]\]|![^>]*"""
    r"""|(/?)([^\s<>/"'=!?]+)((?:[^<>"']|"[^"]*"|'[^']*')*+))>""",
    re.DOTALL,
)
_ATTRIBUTE = re.compile(r"""([\w:.-]+)\s*=\s*(?:"([^"]*)"|'([^']*)')""")


class _Tag(NamedTuple):
    """An opening tag, or a closing one, whose name begins with a slash."""

    name: str
    attributes: dict[str, str]
    is_empty: bool


class _Document:
    """One model: the files that it includes, and those that it may attach, by name."""

    def __init__(self):
        self.included: set[str] = set()
        self.models: dict[str, tuple[str, pathlib.Path]] = {}


class _File(NamedTuple):
    """A file to count, and where it is included or attached.

    - `factor`: number of its copies.
    - `copied`: true if its elements are copies.
    - `prefix`: prefix of its names.
    - `document`: the model that it is a part of.
    """

    text: str
    folder: pathlib.Path
    factor: float
    copied: bool
    prefix: str
    document: _Document


def check_expansion(
    label: str,
    text: str,
    folder: str | os.PathLike,
    assets: Mapping[str, bytes] | None,
) -> None:
    """Refuse MJCF text that makes more than MuJoCo's compiler can create in seconds.

    Counts elements of nested `<replicate>` elements, included files and attached models
    before they are made. References by sensors, actuators and others, which are copied
    with the elements they refer to, count `n**2 / 50` each.

    **Arguments:**

    - `label`: name of the source in messages.
    - `text`: the XML text, of which only ASCII characters matter.
    - `folder`: the folder in which names of files are looked up.
    - `assets`: contents of files by name.

    **Raises:** `ValueError` with the element, its size and the limit.
    """
    if not _EXPANDS.search(text):
        return
    count = _Count(label, pathlib.Path(folder), assets or {})
    count.pending.append(_File(text, count.folder, 1.0, False, "", _Document()))
    while count.pending or count.attached:
        if count.pending:
            count.file(count.pending.pop())
        else:
            count.attach(*count.attached.pop())
    for name in count.references:
        if copies := count.copied.get(name, 0.0):
            count.add(max(copies, copies * copies / _REFERENCES))


class _Count:
    """Number of elements that the files of one source make."""

    def __init__(self, label: str, folder: pathlib.Path, assets: Mapping[str, bytes]):
        self.label, self.folder, self.assets = label, folder, assets
        self.pending: list[_File] = []
        self.attached: list[tuple[_File, _Tag, float]] = []
        self.made, self.largest, self.cause = 0.0, 0.0, ""
        self.copied: dict[str, float] = {}
        self.references: list[str] = []

    def file(self, file: _File) -> None:
        """Count the elements of one file, and queue the files it refers to."""
        # Of each open element: copies of what it contains, and whether it has references.
        opened = [(file.factor, file.copied, False)]
        for tag in _tags(file.text):
            if tag.name.startswith("/"):
                del opened[max(len(opened) - 1, 1) :]
                continue
            _check_sizes(self.label, tag)
            factor, copied, refers = opened[-1]
            if tag.name in _COPYING:
                own = _product(tag, "count")
                factor, copied = factor * own, True
                self._name_cause(tag, own, factor)
            if copied:
                self.add(factor)
                name = file.prefix + tag.attributes.get("name", "")
                self.copied[name] = max(self.copied.get(name, 0.0), factor)
            if refers:
                self._refer(file.prefix, tag)
            self._queue(file, tag, factor, copied)
            if not tag.is_empty:
                opened.append((factor, copied, refers or tag.name in _REFERRING))

    def add(self, elements: float) -> None:
        self.made += elements
        if self.made > MOST_COPIES:
            raise ValueError(
                f"{self.label} makes too many copies of elements, among others by "
                f"{self.cause}. `load_mjcf` accepts {MOST_COPIES:,} copies; a sensor, "
                "actuator or other reference to an element that is copied n times counts "
                f"as n**2 / {_REFERENCES}. Lower `count`, or compile the file with MuJoCo "
                "and pass the `mujoco.MjModel`."
            )

    def attach(self, file: _File, tag: _Tag, factor: float) -> None:
        """Queue the model that an element attaches."""
        self.cause = self.cause or f'<attach model="{tag.attributes["model"][:40]}">'
        missing = "", file.folder
        text, folder = file.document.models.get(tag.attributes["model"], missing)
        prefix = file.prefix + tag.attributes.get("prefix", "")
        self.pending.append(_File(text, folder, factor, True, prefix, _Document()))

    def _name_cause(self, tag: _Tag, own: float, factor: float) -> None:
        if factor > self.largest:
            count = tag.attributes.get("count", "")[:40]
            nested = "" if factor == own else f" ({factor:,.0f} in nested elements)"
            self.largest, self.cause = factor, f'<{tag.name} count="{count}">{nested}'

    def _refer(self, prefix: str, tag: _Tag) -> None:
        values = {prefix + v for k, v in tag.attributes.items() if k != "name"}
        # Copies are named after all files are counted.
        self.references.extend(values)

    def _queue(self, file: _File, tag: _Tag, factor: float, copied: bool) -> None:
        document, name = file.document, tag.attributes.get("file", "")
        if tag.name == "include" and name not in document.included:
            document.included.add(name)
            text, folder = self._read(name, file.folder)
            part = _File(text, folder, factor, copied, file.prefix, document)
            self.pending.append(part)
        elif tag.name == "model":
            text, folder = self._read(name, file.folder)
            root = next(_tags(text), _Tag("", {}, True)).attributes.get("model", "")
            document.models[tag.attributes.get("name", root)] = text, folder
        elif tag.name == "attach" and "model" in tag.attributes:
            self.attached.append((file, tag, factor))

    def _read(self, name: str, folder: pathlib.Path) -> tuple[str, pathlib.Path]:
        """Return the text that a name refers to, an asset or else a file, and its folder;
        MuJoCo refuses names that refer to nothing."""
        last = lambda x: x.replace("\\", "/").rsplit("/", 1)[-1].lower()
        for key, content in self.assets.items():
            if last(key) == last(name):
                return content.decode("latin-1"), folder
        for path in (folder / name, self.folder / name):
            with contextlib.suppress(OSError, ValueError):
                if path.is_file():
                    return path.read_text("latin-1"), path.parent
        return "", folder


def _tags(text: str) -> Iterator[_Tag]:
    """Yield tags up to the first that is not XML, where MuJoCo refuses the file."""
    at = text.find("<")
    while at >= 0 and (match := _TAG.match(text, at)):
        if match[2]:
            rest = match[3]
            found = _ATTRIBUTE.findall(rest)
            pairs = {name: html.unescape(one or two) for name, one, two in found}
            yield _Tag(match[1] + match[2], pairs, rest.endswith("/"))
        at = text.find("<", match.end())


def _product(tag: _Tag, attribute: str) -> float:
    """Return the product of the numbers of an attribute; MuJoCo refuses other words."""
    product = 1.0
    for word in tag.attributes.get(attribute, "").split():
        try:
            number = float(word)
        except ValueError:
            return 1.0
        product *= number if number >= 1.0 else 1.0
    return product


def _check_sizes(label: str, tag: _Tag) -> None:
    """Refuse height fields, textures and builtin meshes that fill the memory."""
    limits: dict[str, tuple[float, int]] = {}
    if tag.name == "hfield":
        size = _product(tag, "nrow") * _product(tag, "ncol")
        limits["nrow times ncol"] = size, MOST_ENTRIES
    elif tag.name == "texture":
        size = _product(tag, "width") * _product(tag, "height")
        limits["width times height"] = size, MOST_ENTRIES
    elif tag.name == "size":
        for name in tag.attributes:
            if name.startswith("nuser_"):
                limits[name] = _product(tag, name), MOST_ENTRIES
    elif tag.name == "mesh" and "builtin" in tag.attributes:
        words = tag.attributes.get("params", "").split()
        sizes = [_product(_Tag("", {"x": word}, True), "x") for word in words]
        limits["the largest of params"] = max(sizes, default=1.0), MOST_SEGMENTS
    for what, (size, most) in limits.items():
        if size > most or math.isnan(size):
            raise ValueError(
                f"{label} is too large to compile: {what} of <{tag.name}> must be at "
                f"most {most:,}, got {size:,.0f}. Lower it, or compile the file with "
                "MuJoCo and pass the `mujoco.MjModel`."
            )


# Sources of `load_mjcf`: a file, XML text, an `MjSpec`, an `MjModel`.


# The handlers of MuJoCo and of Python are those of the process: two threads that replace and
# restore them at the same time would leave one of the replacements in place.
_HANDLERS = threading.Lock()


class Compiled(NamedTuple):
    """A source compiled by MuJoCo.

    **Arguments:**

    - `label`: name of the source in messages.
    - `model`: a private `mujoco.MjModel`.
    - `warnings`: warnings of MuJoCo.
    """

    label: str
    model: Any
    warnings: tuple[str, ...]


def compile_source(
    source: Any, assets: Mapping[str, bytes | str] | None = None
) -> Compiled:
    """Compile a source with MuJoCo, without output to the terminal or to log files.

    **Arguments:**

    - `source`: path, XML text, `mujoco.MjSpec` or `mujoco.MjModel`.
    - `assets`: contents of files that a path or a text refers to, by name.

    **Raises:** `FileNotFoundError`, `TypeError`, or `ValueError` with MuJoCo's message.
    """
    mujoco = engine()
    label, shown, build = _reader(source, _assets(assets))
    try:
        model, said = _build(build)
        return Compiled(label, model, said)
    except (ValueError, RuntimeError, mujoco.FatalError) as error:
        raise ValueError(_rejected(label, shown, error)) from error


def _rejected(label: str, shown: str, error: Exception) -> str:
    return (
        f"{label}{shown} cannot be read by MuJoCo, which says:\n{error}\n"
        "Correct the file at the place named."
    )


def _build(build: Callable[[], Any]) -> tuple[Any, tuple[str, ...]]:
    """Return a model and the warnings of MuJoCo; one thread at a time."""
    mujoco, said = engine(), []
    with _HANDLERS:
        # Without a handler, MuJoCo prints, and writes a log file to the working directory.
        handler = mujoco.get_mju_user_warning()
        mujoco.set_mju_user_warning(said.append)
        try:
            # An MjSpec issues Python warnings.
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                model = build()
            said += [str(warning.message) for warning in caught]
        finally:
            mujoco.set_mju_user_warning(handler)
    return model, tuple(said)


def _assets(assets: Mapping[str, bytes | str] | None) -> dict[str, bytes] | None:
    if assets is None:
        return None
    if not isinstance(assets, Mapping):
        raise TypeError(
            "`assets` must be a dictionary of file contents by name, got "
            f"{type(assets).__name__}."
        )
    contents = {}
    for name, content in assets.items():
        if isinstance(content, str):
            content = content.encode()
        if not isinstance(content, bytes):
            raise TypeError(
                f"`assets[{name!r}]` must be bytes or text, got "
                f"{type(content).__name__}. Pass the content of the file."
            )
        contents[str(name)] = content
    return contents


def read_spec(source: Any, assets: Mapping[str, bytes | str] | None = None) -> Any:
    """Read a source as a new `mujoco.MjSpec`, which can be edited.

    **Arguments:** those of `compile_source`, without a `mujoco.MjModel`.

    **Raises:** see `compile_source`.
    """
    mujoco = engine()
    if isinstance(source, mujoco.MjModel):
        raise TypeError(
            "A compiled mujoco.MjModel cannot be edited. Pass the path of its file, XML "
            "text, or a mujoco.MjSpec."
        )
    label, shown, build = _reader(source, _assets(assets), mujoco.MjSpec)
    try:
        return _build(build)[0]
    except (ValueError, RuntimeError, mujoco.FatalError) as error:
        raise ValueError(_rejected(label, shown, error)) from error


def _reader(
    source: Any, assets: dict[str, bytes] | None, result: Any = None
) -> tuple[str, str, Callable[[], Any]]:
    """Return the name of the source in messages, its representation, and a function
    that reads it.

    **Arguments:**

    - `result`: `mujoco.MjSpec` to read a description; by default, a compiled
        `mujoco.MjModel`.
    """
    mujoco = engine()
    as_spec = result is mujoco.MjSpec
    if isinstance(source, (mujoco.MjModel, mujoco.MjSpec)):
        kind = type(source).__name__
        if assets is not None:
            raise ValueError(
                "`assets` can only be passed with a path or XML text, but the source "
                f"is an {kind}, which has its own assets. Leave `assets` out."
            )
        if isinstance(source, mujoco.MjSpec):
            return "The MjSpec", "", source.copy if as_spec else source.compile
        # Arrays of the model may be shared with JAX, so copy it.
        return "The MjModel", "", lambda: copy.copy(source)
    if not isinstance(source, (str, os.PathLike)):
        raise TypeError(
            "load_mjcf takes the path of a file, XML text, a mujoco.MjSpec or a "
            f"mujoco.MjModel, but got {type(source).__name__}."
        )
    text = str(source).lstrip("\ufeff \t\r\n")
    if isinstance(source, str) and text.startswith("<"):
        shown = f" ({text if len(text) <= 40 else text[:37] + '...'!r})"
        if not as_spec:
            _refuse_urdf("The MJCF text", text)
        check_expansion("The MJCF text", text, pathlib.Path.cwd(), assets)
        if as_spec:
            read = lambda: mujoco.MjSpec.from_string(text, assets=assets)
        else:
            read = lambda: mujoco.MjModel.from_xml_string(text, assets)
        return "The MJCF text", shown, read
    path = pathlib.Path(source).expanduser()
    if not path.is_file():
        raise FileNotFoundError(
            f"There is no MJCF file {str(source)!r} (looked in {pathlib.Path.cwd()}). "
            "Pass the path of an existing file, or the XML text itself, which starts "
            "with '<'."
        )
    text = path.read_text("latin-1")
    if not as_spec:
        _refuse_urdf(path.name, text)
    check_expansion(path.name, text, path.parent, assets)
    if as_spec:
        read = lambda: mujoco.MjSpec.from_file(str(path), assets=assets)
    else:
        read = lambda: mujoco.MjModel.from_xml_path(str(path), assets)
    return path.name, f" ({str(source)!r})", read


_BEFORE_ROOT = re.compile(
    r"[\s\ufeff\xef\xbb\xbf]+|<\?.*?\?>|<!--.*?-->|<![A-Z][^>]*>", re.S
)


def _refuse_urdf(label: str, text: str) -> None:
    """Raise `ValueError` if the root element is that of a URDF, which MuJoCo reads as well,
    but without fixed links and without actuators."""
    place = 0
    while match := _BEFORE_ROOT.match(text, place):
        place = match.end()
    if re.compile(r"<robot[\s>/]").match(text, place):
        raise ValueError(
            f"{label} is a URDF: its root element is <robot>. Load it by `load_urdf`, or "
            "pass a `mujoco.MjSpec` to load it as MuJoCo does."
        )


# Terrain in files without it.


def with_height_field(
    source: str | os.PathLike | Any,
    rows: int,
    columns: int,
    size: tuple[Any, Any],
    *,
    assets: Mapping[str, bytes | str] | None = None,
    plane: str | None = None,
    name: str = "terrain",
    base: float = 1.0,
    heights: Any = None,
) -> Any:
    """Read an MJCF file, and replace a plane of the world by a height field.

    Friction, material and all other properties of the plane are kept. The field has no
    ground beyond its sides.

    !!! example

        ```python
        spec = with_height_field("scene.xml", *grid.shape, grid.size)
        sys = with_terrain(load_mjcf(spec), grid.heights(key))
        ```

    **Arguments:**

    - `source`: path of a file, XML text, or a `mujoco.MjSpec`, which is not changed.
    - `rows`, `columns`: grid points along y and x, at least 2.
    - `size`: lengths along x and y, m.
    - `assets`: see `load_mjcf`.
    - `plane`: name of the plane; by default the only plane of the world.
    - `name`: name of the height field.
    - `base`: depth of its bottom below the ground, m.
    - `heights`: heights of the grid points above the plane, `(rows, columns)`, m; by
        default flat ground. A simulation of eqsim alone does not need them, see
        `eqsim.terrain.with_terrain`.

    **Returns:** a `mujoco.MjSpec` for `load_mjcf`.

    **Raises:** `ValueError` if there is no such plane, a number is out of range, or
    MuJoCo rejects the file.
    """
    check_count("rows", rows, 2)
    check_count("columns", columns, 2)
    for key, value in (("size", size[0]), ("size", size[1]), ("base", base)):
        if not (math.isfinite(value) and value > 0.0):
            raise ValueError(f"`{key}` must be positive and finite (m), got {value}.")
    spec, mujoco = read_spec(source, assets), engine()
    if any(field.name == name for field in spec.hfields):
        raise ValueError(
            f"The file has a height field {name!r} already. Load it as it is, or pass "
            "another `name`."
        )
    geom = _plane(spec, plane)
    # MuJoCo stores heights from 0 to 1, so the lowest point is in the plane of the shape.
    table = _heights((rows, columns), heights)
    low, above = table.min(), np.ptp(table) or 1.0
    spec.add_hfield(
        name=name,
        nrow=rows,
        ncol=columns,
        size=[float(size[0]) / 2, float(size[1]) / 2, above, base],
        userdata=((table - low) / above).ravel(),
    )
    down, quat = np.array([0.0, 0.0, low]), geom.quat / np.linalg.norm(geom.quat)
    mujoco.mju_rotVecQuat(down, down.copy(), quat)
    geom.pos = geom.pos + down
    geom.type, geom.hfieldname = mujoco.mjtGeom.mjGEOM_HFIELD, name
    geom.size = [0.0, 0.0, 0.0]
    return spec


def _heights(shape: tuple[int, int], heights: Any) -> np.ndarray:
    """Return heights of grid points as an array; zeros if there are none."""
    if heights is None:
        return np.zeros(shape)
    found = np.asarray(heights, float)
    if found.shape != shape:
        raise ValueError(
            f"`heights` have the shape {found.shape}, but the grid has {shape} (rows and "
            "columns)."
        )
    if not np.all(np.isfinite(found)):
        raise ValueError("`heights` must be finite, m.")
    return found


def _plane(spec: Any, name: str | None) -> Any:
    """Return the plane of the world with a name, or the only one."""
    kind = engine().mjtGeom.mjGEOM_PLANE
    planes = [geom for geom in spec.worldbody.geoms if geom.type == kind]
    chosen = [geom for geom in planes if name is None or geom.name == name]
    if len(chosen) != 1:
        names = [geom.name for geom in planes]
        wanted = "one plane" if name is None else f"a plane {name!r}"
        remedy = (
            "Pass `plane`, the name of the one to replace."
            if planes
            else "Add `<geom type='plane' size='0 0 1'/>` to its `worldbody`."
        )
        raise ValueError(
            f"The world of the file must have {wanted}; its planes are {names}. {remedy}"
        )
    return chosen[0]
