"""Archives of arrays: what a file claims is not believed."""

import io
import zipfile

import jax.numpy as jnp
import numpy as np
import pytest
from fuzz.mutations import bomb, npy

import eqsim
from eqsim.io import open_arrays


def archive(path, **members: bytes):
    with zipfile.ZipFile(path, "w") as file:
        for name, content in members.items():
            file.writestr(f"{name}.npy", content)
    return path


def read(path, name="a"):
    with open_arrays(path) as arrays:
        return arrays[name]


@pytest.mark.parametrize(
    "array",
    (
        np.arange(6.0).reshape(2, 3),
        np.asfortranarray(np.arange(6, dtype=">i2").reshape(2, 3)),
        np.array(True),
        np.zeros((0, 5), np.float32),
        np.array(["a", "bcd"]),
        np.array([(1, 2.5)], [("x", "i4"), ("y", "f8")]),
    ),
    ids=lambda x: f"{x.dtype}-{x.ndim}",
)
def test_arrays_are_those_of_numpy(tmp_path, array):
    found = read(archive(tmp_path / "x.npz", a=npy(array)))
    assert found.dtype == array.dtype and np.array_equal(found, array)
    assert found.flags.writeable


def test_names(tmp_path):
    path = archive(tmp_path / "x.npz", a=npy(np.ones(2)), b=npy(np.ones(3)))
    with open_arrays(path) as arrays:
        assert set(arrays) == {"a", "b"} and len(arrays) == 2 and "c" not in arrays


def test_an_array_that_is_not_there_is_not_allocated(tmp_path):
    """A header of 100 bytes asks for 8 PB."""
    head = io.BytesIO()
    about = {"descr": "<f8", "fortran_order": False, "shape": (10**15,)}
    np.lib.format.write_array_header_1_0(head, about)
    path = archive(tmp_path / "x.npz", a=head.getvalue() + bytes(64))
    with pytest.raises(ValueError, match="need 8,000,000,000,000,000 bytes, but there"):
        read(path)


def test_an_archive_that_expands_is_refused(tmp_path):
    """Before anything is read: it has 300 MiB of zeros in 1.4 MB."""
    path = tmp_path / "x.npz"
    path.write_bytes(bomb(300))
    assert path.stat().st_size < 2 << 20
    with pytest.raises(ValueError, match="expands to 314,57"):
        read(path)
    for load in (eqsim.load, eqsim.identify.load_recordings):
        with pytest.raises(ValueError, match="expands to"):
            load(path)


def test_objects_and_duplicates_are_refused(tmp_path):
    pickled = npy(np.array([{}], object), pickles=True)
    with pytest.raises(ValueError, match="contains Python objects"):
        read(archive(tmp_path / "x.npz", a=pickled))
    path = tmp_path / "y.npz"
    with zipfile.ZipFile(path, "w") as file, pytest.warns(UserWarning, match="Duplic"):
        file.writestr("a.npy", npy(np.ones(1)))
        file.writestr("a.npy", npy(np.zeros(1)))
    with pytest.raises(ValueError, match="contains a.npy twice"):
        read(path)


def test_a_header_that_someone_changed_is_one_error(tmp_path):
    """Fields of the header have other types, or name what is not there."""
    path = tmp_path / "x.npz"
    eqsim.save(path, {"a": jnp.ones(3), "b": 2.0})
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    text = arrays["header"].tobytes().decode()
    for old, new in (
        ('"kind": "float64"', '"kind": null'),
        ('"kind": "float64"', '"kind": "key:none"'),
        ('"leaf": 0', '"leaf": 7'),
        ('{"dict"', '{"class": "os", "dict"'),
        ('"structure": {', '"structure": [{'),
        (text, "[" * 5000),
    ):
        assert old in text
        changed = text.replace(old, new, 1)
        if new.endswith("[{"):
            changed = changed[:-1] + "]}"
        header = np.frombuffer(changed.encode(), np.uint8)
        np.savez(path, **(arrays | {"header": header}))
        with pytest.raises(ValueError, match="was not written by this version"):
            eqsim.load(path)
