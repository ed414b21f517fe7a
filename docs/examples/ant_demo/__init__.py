"""The parts of `demo.py`, one file each."""
