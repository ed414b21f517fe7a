"""Cluster-robust covariances against their definition, and their coverage."""

import numpy as np
import pytest
from scipy import stats

from eqsim.identify._assessment import cluster_robust, pseudo_inverse, quantile


def _regression(rng, clusters: int, size: int, parameters: int, spread: float):
    """Rows of a linear regression in clusters of different weights."""
    weight = np.exp(spread * rng.normal(size=(clusters, 1)))
    rows = rng.normal(size=(clusters * size, parameters))
    return rows * np.repeat(weight, size, axis=0), np.repeat(np.arange(clusters), size)


def _robust(rows, labels, y, prior, contrasts=None):
    """The covariance of a least-squares fit to `y`, with windows of one row."""
    matrix = rows.T @ rows + prior
    found = np.linalg.solve(matrix, rows.T @ y)
    score = rows * (y - rows @ found)[:, None]
    information = rows[:, :, None] * rows[:, None, :]
    contrasts = np.eye(len(matrix)) if contrasts is None else contrasts
    return found, cluster_robust(
        *pseudo_inverse(matrix), score, information, contrasts, labels
    )


def _dense(rows, labels, y, prior, contrast):
    """CR2 and Satterthwaite's degrees of freedom by matrices of all residuals: Bell and
    McCaffrey (2002), with a prior that is known."""
    inverse = np.linalg.inv(rows.T @ rows + prior)
    hat = rows @ inverse @ rows.T
    residual = y - hat @ y
    middle, columns, z = prior.copy(), [], inverse @ contrast
    for label in np.unique(labels):
        own = labels == label
        values, vectors = np.linalg.eigh(np.eye(own.sum()) - hat[np.ix_(own, own)])
        adjust = (vectors / np.sqrt(values)) @ vectors.T
        score = rows[own].T @ adjust @ residual[own]
        middle += np.outer(score, score)
        column = np.zeros(len(rows))
        column[own] = adjust @ rows[own] @ z
        columns.append(column)
    # Covariance of the residuals if noise is independent and parameters are as the prior.
    omega = np.array(columns) @ (np.eye(len(rows)) - hat) @ np.array(columns).T
    mean = np.trace(omega) + z @ prior @ z
    return inverse @ middle @ inverse, mean**2 / (omega**2).sum(), mean


@pytest.mark.parametrize("prior", (np.zeros(3), np.array([50.0, 0.0, 3.0])))
def test_is_its_definition(prior):
    rng = np.random.default_rng(0)
    rows, labels = _regression(rng, 12, 5, 3, 0.5)
    y, prior = rng.normal(size=len(rows)), np.diag(prior)
    contrasts = np.concatenate([np.eye(3), [[1.0, -2.0, 0.5]]])
    _, found = _robust(rows, labels, y, prior, contrasts)
    inverse = np.linalg.inv(rows.T @ rows + prior)
    for contrast, freedom in zip(contrasts, found.freedom, strict=True):
        matrix, expected, mean = _dense(rows, labels, y, prior, contrast)
        np.testing.assert_allclose(found.matrix, matrix, rtol=1e-9, atol=1e-15)
        assert freedom == pytest.approx(expected)
        # Unbiased if residuals are independent.
        assert mean == pytest.approx(contrast @ inverse @ contrast)
    assert found.unbiased.all()


def test_coverage_with_few_clusters():
    """Residuals that share a part within each of 15 clusters: about 95 %, where the inverse
    Hessian is far too sure."""
    rng, held, naive = np.random.default_rng(1), [], []
    for _ in range(400):
        rows, labels = _regression(rng, 15, 6, 2, 0.4)
        rows[:, 0] = np.abs(rows[:, 0])
        y = rng.normal(size=len(rows)) + 1.5 * rng.normal(size=15)[labels]
        value, found = _robust(rows, labels, y, np.zeros((2, 2)))
        reach = quantile(0.95, found.freedom) * np.sqrt(np.diag(found.matrix))
        held.append(np.abs(value) <= reach)
        inverse = np.linalg.inv(rows.T @ rows)
        sigma = np.sqrt((y - rows @ value) @ (y - rows @ value) / (len(y) - 2))
        naive.append(np.abs(value[0]) <= 1.99 * sigma * np.sqrt(inverse[0, 0]))
    assert 0.93 <= np.mean(held) <= 0.98
    assert np.mean(naive) < 0.85


def test_a_value_of_one_cluster_is_not_reliable():
    """The scatter between clusters says nothing of what only one of them tells."""
    rng = np.random.default_rng(2)
    rows, labels = _regression(rng, 20, 5, 2, 0.2)
    y = rng.normal(size=len(rows))
    assert _robust(rows, labels, y, np.zeros((2, 2)))[1].reliable
    rows[5:, 1] = 0.0
    found = _robust(rows, labels, y, np.zeros((2, 2)))[1]
    assert found.unbiased.tolist() == [True, False] and not found.reliable
    # A prior that says more than this cluster makes it reliable again.
    assert _robust(rows, labels, y, np.diag([0.0, 1e4]))[1].reliable


def test_no_information_is_a_large_variance():
    rng = np.random.default_rng(3)
    rows, labels = _regression(rng, 20, 5, 2, 0.2)
    rows[:, 1] = 0.0
    inverse, matrix = pseudo_inverse(rows.T @ rows)
    np.testing.assert_allclose(inverse @ matrix, np.eye(2), atol=1e-12)
    score = rows * rng.normal(size=(len(rows), 1))
    information = rows[:, :, None] * rows[:, None, :]
    found = cluster_robust(inverse, matrix, score, information, np.eye(2), labels)
    assert found.matrix[1, 1] == pytest.approx(inverse[1, 1]) and inverse[1, 1] > 1e5


def test_quantiles():
    """Of Student's t: the table's value, SciPy's, and the normal one."""
    assert quantile(0.95, np.array([10.0]))[0] == pytest.approx(2.228, abs=5e-4)
    freedom = np.array([1.0, 4.3, 1e6])
    np.testing.assert_allclose(
        quantile(0.9, freedom), stats.t.ppf(0.95, freedom), rtol=1e-9
    )
