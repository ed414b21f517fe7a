#!/usr/bin/env bash
# Installs eqsim and eqsim-example from wheels into a new environment, as a user would, and
# checks that the names of the example appear, run, and go again. Needs Python 3.11 with
# pip; takes some minutes, most of them for installing.
#
# PYTHON: the interpreter to make the environment with.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

say() { printf '\n== %s\n' "$*"; }
fail() {
  printf 'check_wheels: %s\n' "$*" >&2
  exit 1
}

say "build the wheels"
"${PYTHON:-python3.11}" -m venv "$work/venv"
bin=$work/venv/bin
pip=("$bin/python" -m pip --disable-pip-version-check --quiet)
"${pip[@]}" wheel --no-deps --wheel-dir "$work/dist" "$root" "$root/plugins/eqsim-example"

say "install them"
eqsim_wheel=$(echo "$work"/dist/eqsim-[0-9]*.whl)
example_wheel=$(echo "$work"/dist/eqsim_example-*.whl)
"${pip[@]}" install --constraint "$root/constraints.txt" "${eqsim_wheel}[cli]" "$example_wheel"

# From here on nothing of the source tree is in the way.
cd "$work"
unset PYTHONPATH

say "the names are there"
"$bin/eqsim" list >list.txt
for name in ball_beam richardson; do
  grep -qw "$name" list.txt || fail "\`eqsim list\` does not show $name"
done
"$bin/python" - <<'END' || fail "eqsim imports a plugin before it is asked for"
import sys

import eqsim

assert "cross_entropy" in eqsim.AGENTS.names()
assert not any(name.startswith("eqsim_example") for name in sys.modules)
END

say "they run"
"$bin/eqsim" rollout ball_beam --pipeline richardson --num-envs 2 --length 10 --out run
"$bin/python" -c "import numpy; assert numpy.load('run.npz')['rewards'].shape == (2, 10)" ||
  fail "the rollout is not what was asked for"

say "they conform"
"$bin/eqsim" plugins list
for name in ball_beam richardson cross_entropy; do
  "$bin/eqsim" plugins check "$name"
done

say "they go"
"${pip[@]}" uninstall --yes eqsim-example
"$bin/eqsim" list >list.txt
! grep -qw ball_beam list.txt || fail "ball_beam is still listed"
! "$bin/eqsim" rollout ball_beam --length 1 --out gone >gone.txt 2>&1 || fail "it still runs"
grep -q "ball_beam" gone.txt || fail "the error does not name what is missing"

say "all is well"
