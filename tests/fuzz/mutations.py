"""Changes of bytes, of values and of archives."""

import functools
import io
import json
import pathlib
import pickle
import tarfile
import zipfile
from random import Random
from typing import Any

import numpy as np


NUMBERS = (
    *(0, -0.0, 1, -1, 2, 0.5, 1e-3, 1e-20, 1e-320, 1e20, 1e300, -1e300),
    *map(float, ("nan", "inf", "-inf")),
    *(2**31, 2**31 - 1, -(2**31), 2**63, 2**64),
    *(10**400, True, False, 3.7, 255, 256, 65536),
)
WORDS = tuple(
    """
    a 0 -1 nan inf 1e999 None null true false ../x /etc/passwd ~ %s%n {} ${x} a/b
    a:b <x> &amp; ]]> ' [bold] [/] 1,2,3 (1) [] --help -- - a=b __class__
    __init__ class __import__('os').system('x')
    """.split()
)
WORDS += ("", " ", "\t", "\n", "\0", '"', "\\", "é", "🤖", "\u202e", "\ud800")
WORDS += ("x" * 300, "x" * 20_000, "1 2 3", "lambda: 0")


class Trap:
    """A pickle that makes a file where it is read."""

    def __init__(self, path: pathlib.Path):
        self.path = path

    def __reduce__(self):
        return pathlib.Path.touch, (self.path,)


def number(rng: Random) -> Any:
    """A number that is rarely expected."""
    return rng.choice(NUMBERS)


def word(rng: Random) -> str:
    """A text that is rarely expected."""
    if rng.random() < 0.7:
        return rng.choice(WORDS)
    return "".join(
        chr(rng.choice((rng.randrange(32, 127), rng.randrange(0xD800))))
        for _ in range(rng.randrange(12))
    )


def value(rng: Random, depth: int = 0) -> Any:
    """Anything that JSON can write."""
    kind = rng.randrange(6 if depth < 3 else 4)
    if kind == 0:
        return None
    if kind < 3:
        return number(rng)
    if kind == 3:
        return word(rng)
    items = [value(rng, depth + 1) for _ in range(rng.randrange(4))]
    return items if kind == 4 else {word(rng): item for item in items}


def changed(rng: Random, tree: Any) -> Any:
    """JSON with one value, key or item changed at random."""
    if isinstance(tree, dict) and tree and rng.random() < 0.9:
        key, out = rng.choice(list(tree)), dict(tree)
        action = rng.random()
        if action < 0.12:
            del out[key]
        elif action < 0.2:
            out[word(rng)] = out.pop(key)
        elif action < 0.26:
            out[word(rng)] = value(rng)
        else:
            out[key] = changed(rng, out[key])
        return out
    if isinstance(tree, list) and tree and rng.random() < 0.85:
        place, out = rng.randrange(len(tree)), list(tree)
        action = rng.random()
        if action < 0.15:
            del out[place]
        elif action < 0.3:
            out.insert(place, rng.choice(out))
        else:
            out[place] = changed(rng, out[place])
        return out
    return value(rng)


def damaged(rng: Random, data: bytes) -> bytes:
    """Bytes with flips, cuts, repetitions or insertions."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4, 16))):
        place = rng.randrange(len(out) + 1) if out else 0
        action = rng.randrange(6)
        if action < 2 and place < len(out):
            out[place] ^= 1 << rng.randrange(8)
        elif action == 2:
            del out[place:]
        elif action == 3:
            del out[place : place + rng.randrange(64)]
        elif action == 4:
            out[place:place] = rng.randbytes(rng.randrange(32))
        elif out:
            start = rng.randrange(len(out))
            out[place:place] = out[start : start + rng.randrange(256)]
    return bytes(out)


def foreign(rng: Random, trap: pathlib.Path) -> bytes:
    """A file of another kind."""
    out = io.BytesIO()
    kind = rng.randrange(12)
    if kind == 0:
        return b""
    if kind == 1:
        return rng.randbytes(rng.randrange(2000))
    if kind == 2:
        return pickle.dumps(Trap(trap), protocol=rng.choice((0, 2, 5)))
    if kind == 3:
        np.save(out, np.array([Trap(trap)], object), allow_pickle=True)
    elif kind == 4:
        np.save(out, np.arange(5.0))
    elif kind == 5:
        with tarfile.open(fileobj=out, mode="w:gz") as archive:
            archive.addfile(tarfile.TarInfo("../escaped"), io.BytesIO())
    elif kind == 6:
        # The layout of safetensors: length of the header, header, data.
        head = json.dumps(
            {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}
        ).encode()
        return len(head).to_bytes(8, "little") + head + bytes(8)
    elif kind == 7:
        return b"\x89HDF\r\n\x1a\n" + rng.randbytes(500)
    elif kind == 8:
        return b"\x89PNG\r\n\x1a\n" + rng.randbytes(500)
    elif kind == 9:
        return b"<mujoco><worldbody/></mujoco>"
    elif kind == 10:
        return json.dumps(value(rng)).encode()
    else:
        with zipfile.ZipFile(out, "w") as archive:
            archive.writestr("word/document.xml", "<x/>")
    return out.getvalue()


def npy(array: np.ndarray, pickles: bool = False) -> bytes:
    """An array in the format of NumPy."""
    out = io.BytesIO()
    np.save(out, array, allow_pickle=pickles)
    return out.getvalue()


def claimed(rng: Random, data: bytes = b"") -> bytes:
    """An array whose header claims what does not follow."""
    shapes = "(10**9,) (1000000000,) (1000000000000000,) (-1,) (99999,99999) (2**70,)"
    shapes += " (0,1000000000000) () 3 (1.5,) (True,)"
    shape = rng.choice([*shapes.split(), f"({'9' * 30},)"])
    kinds = (
        "'<f8' '<f4' '|O' '<U1000000000' '|V8' '<M8[ns]' '<c16' 'x' '|S0' '<f2' '|b1'"
    )
    kinds += " [('a','<f8'),('b','|O')] __import__('os')"
    kind = rng.choice(kinds.split())
    head = f"{{'descr': {kind}, 'fortran_order': False, 'shape': {shape}, }}"
    if rng.random() < 0.1:
        head = rng.choice(
            ("(" * 3000, "[" * 9000, "{}", "\0", "x" * 70000, "{'descr':")
        )
    text = head.encode("latin-1")[:65000] + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + data


def archive(
    rng: Random, arrays: dict[str, np.ndarray], trap: pathlib.Path, change: bool = True
) -> bytes:
    """An `.npz` file of arrays, with members that no writer makes."""
    members = {f"{name}.npy": npy(np.asarray(x)) for name, x in arrays.items()}
    method = rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
    action = rng.randrange(12) if change else 12
    key = rng.choice(list(members)) if members else "a.npy"
    if action == 0:
        bad = np.array([Trap(trap), 1], object)
        members[key] = npy(bad, True)
    elif action == 1:
        members[key] = claimed(rng, rng.randbytes(rng.randrange(64)))
    elif action == 2:
        members[
            rng.choice(("../escaped.npy", "/escaped.npy", "a/../../b", "..\\x.npy"))
        ] = b""
    elif action == 3:
        members[key] = damaged(rng, members.get(key, b""))
    elif action == 4:
        members[key] = pickle.dumps(Trap(trap))
    elif action == 5:
        members[key.removesuffix(".npy")] = members.pop(key, b"")
    elif action == 6:
        method = rng.choice((zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA))
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as file:
        for name, data in members.items():
            file.writestr(name, data)
        if action == 7:
            file.writestr(zipfile.ZipInfo(key), members.get(key, b""))
    if action == 8 and rng.random() < 0.3:
        return with_bomb(rng, members, key)
    data = out.getvalue()
    return damaged(rng, data) if action in (9, 10) else data


@functools.cache
def bomb(megabytes: int = 768) -> bytes:
    """An `.npz` file that is a thousandth of the array in it, of zeros."""
    out, head = io.BytesIO(), io.BytesIO()
    about = {"descr": "<f8", "fortran_order": False, "shape": (megabytes << 17,)}
    np.lib.format.write_array_header_1_0(head, about)
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file:
        with file.open("bomb.npy", "w", force_zip64=True) as member:
            member.write(head.getvalue())
            for _ in range(megabytes):
                member.write(bytes(1 << 20))
    return out.getvalue()


def with_bomb(rng: Random, members: dict[str, bytes], key: str) -> bytes:
    """An archive in which one member is that of `bomb`."""
    out, source = io.BytesIO(bomb()), zipfile.ZipFile(io.BytesIO(bomb()))
    with zipfile.ZipFile(out, "a") as file:
        for name, data in members.items():
            if name != key:
                file.writestr(name, data)
        if rng.random() < 0.8:
            # The directory of the archive gives the compressed data another name.
            file.getinfo("bomb.npy").filename = key
    source.close()
    return out.getvalue()


def arrays_changed(rng: Random, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Arrays of which some have another shape, type, name or content."""
    out = dict(arrays)
    for _ in range(rng.choice((0, 1, 1, 1, 2, 3))):
        if not out:
            break
        name = rng.choice(sorted(out))
        action = rng.randrange(9)
        if action == 0:
            del out[name]
        elif action == 1:
            out["x" + word(rng)[:60].replace("\ud800", "")] = out.pop(name)
        elif action == 2:
            out[name] = _other_type(rng, out[name])
        elif action == 3:
            out[name] = _other_shape(rng, out[name])
        elif action == 4:
            out[name] = np.asarray(rng.choice((0, 1.5, "x", b"x", True, 1j, np.nan)))
        elif action == 5:
            out[name] = out[rng.choice(sorted(out))]
        else:
            out[name] = _other_content(rng, out[name])
    return out


def _other_type(rng: Random, x: np.ndarray) -> np.ndarray:
    kind = rng.choice("f2 f4 f8 i1 u1 i8 u8 c16 ? U5 S3 M8[s] V4".split())
    try:
        with np.errstate(all="ignore"):
            return x.astype(kind)
    except (ValueError, TypeError):
        return np.zeros(x.shape, kind)


def _other_shape(rng: Random, x: np.ndarray) -> np.ndarray:
    action = rng.randrange(7)
    if action == 0:
        return x[None]
    if action == 1:
        return x[..., None]
    if action == 2:
        return x.ravel()
    if action == 3:
        return x[:0] if x.ndim else x[None][:0]
    if action == 4:
        return x[:-1] if x.ndim else x
    if action == 5:
        return x.T
    return np.zeros(tuple(rng.randrange(4) for _ in range(rng.randrange(5))), x.dtype)


def _other_content(rng: Random, x: np.ndarray) -> np.ndarray:
    x = np.array(x)
    if not x.size or x.dtype.kind not in "biuf":
        return x
    flat = x.reshape(-1)
    for _ in range(rng.choice((1, 1, 3))):
        with np.errstate(all="ignore"):
            new = np.asarray(float(min(max(number(rng), -1e308), 1e308))).astype(
                x.dtype
            )
        flat[rng.randrange(flat.size)] = new
    return x
