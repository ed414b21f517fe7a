"""Inputs that nobody means to write: each is accepted, or refused by one clear error.

`EQSIM_FUZZ` sets the number of inputs of all kinds together (`make fuzz` sets 100,000), and
`EQSIM_FUZZ_FIRST` the first seed. `python -m fuzz KIND SEED` in `tests` runs one input again.
"""

import os

import pytest
from fuzz.process import SECONDS, summary, Worker


COUNT = int(os.environ.get("EQSIM_FUZZ", "200"))
FIRST = int(os.environ.get("EQSIM_FUZZ_FIRST", "0"))
SHARES = {
    "mjcf": 0.15,
    "urdf": 0.05,
    "archives": 0.15,
    "checkpoints": 0.15,
    "datasets": 0.15,
    "recipes": 0.1,
    "plugins": 0.1,
    "commands": 0.15,
}


@pytest.fixture(scope="module")
def worker(tmp_path_factory):
    worker = Worker(tmp_path_factory.mktemp("fuzz"))
    yield worker
    worker.close()


@pytest.mark.parametrize("kind", SHARES)
def test_refused_or_accepted(kind, worker):
    count = max(1, round(SHARES[kind] * COUNT))
    outcomes = [worker.ask(kind, seed) for seed in range(FIRST, FIRST + count)]
    statuses = [x.status for x in outcomes]
    assert "broken" not in statuses, summary(outcomes)
    assert max(x.seconds for x in outcomes) < SECONDS
    # Inputs that are all refused, or all accepted, test little.
    assert count < 50 or {"accepted", "refused"} <= {*statuses}
