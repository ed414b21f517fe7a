"""The maximal-coordinate pipelines `Spring` and `Positional`."""
