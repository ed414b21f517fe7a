"""MuJoCo MJX as a pipeline of eqsim."""

from ._pipeline import Mjx as Mjx


# Version of eqsim's plugin API.
__eqsim_api__ = "1.0"
