"""Forces and accelerations: one algorithm, one file."""
