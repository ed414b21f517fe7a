"""MuJoCo MJX as a pipeline of eqsim."""

from ._pipeline import Mjx as Mjx


# Written for this version of eqsim's API.
__eqsim_api__ = "1.0"
