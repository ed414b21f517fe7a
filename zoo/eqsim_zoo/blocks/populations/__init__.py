"""Populations of policies, evaluated in whole episodes."""

from ._evaluate import (
    evaluate_pairs as evaluate_pairs,
    evaluate_policies as evaluate_policies,
    Perturbations as Perturbations,
)
