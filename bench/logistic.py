"""Logistic regression: what the tables of weights of the end of a turn are set by."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize
from scipy.sparse import sparray

Matrix = npt.NDArray[np.float64]


def logistic(
    rows: Matrix | sparray,
    y: Matrix,
    *,
    count: Matrix,
    penalty: Matrix | sparray,
    known: Matrix | float = 0.0,
) -> Matrix:
    """The weight of each column of `rows`. `y`: 1 or -1 of each row, `count`: what it counts; `penalty`: the
    quadratic form of what weights cost; `known`: odds that stand beside the rows'."""

    def cost(weights: Matrix) -> tuple[float, Matrix]:
        margin = (rows @ weights + known) * y
        slope = -y * count * np.exp(-np.logaddexp(0.0, margin))
        loss = float((count * np.logaddexp(0.0, -margin)).sum() + weights @ (penalty @ weights))
        return loss, rows.T @ slope + 2.0 * (penalty @ weights)

    start = np.zeros(rows.shape[1])
    return np.asarray(minimize(cost, start, jac=True, method="L-BFGS-B", options={"maxiter": 3000}).x)
