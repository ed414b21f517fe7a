"""`python -m fuzz KIND [FIRST [COUNT]]`, in the folder `tests`: outcomes of some seeds."""

import pathlib
import sys
import tempfile

from .process import summary, Worker


def main(kind: str, first: str = "0", count: str = "1") -> None:
    with tempfile.TemporaryDirectory() as folder:
        worker = Worker(pathlib.Path(folder))
        seeds = range(int(first), int(first) + int(count))
        found = [worker.ask(kind, seed) for seed in seeds]
        worker.close()
    for one in found if len(found) <= 20 else ():
        print(one.seed, one.status, one.seconds, one.text[:300])
    print(summary(found))


main(*sys.argv[1:])
