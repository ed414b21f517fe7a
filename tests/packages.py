"""Throw-away packages: what `pip install` leaves behind of them."""

GROUP = "eqsim.test_things"


def publish(folder, package, points, version="1.0", group=GROUP):
    """Writes the metadata of a package.

    **Arguments:**

    - `points`: targets by name, or the bytes of the whole file.

    **Returns:** the folder of the metadata.
    """
    info = folder / f"{package}-{version}.dist-info"
    info.mkdir()
    if not isinstance(points, bytes):
        lines = "".join(f"{name} = {target}\n" for name, target in points.items())
        points = f"[{group}]\n{lines}".encode()
    (info / "entry_points.txt").write_bytes(points)
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n"
        f"Summary: What {package} is.\n"
    )
    return info
