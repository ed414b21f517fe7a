"""MuJoCo MJX as a pipeline of eqsim."""

from ._pipeline import Mjx as Mjx
