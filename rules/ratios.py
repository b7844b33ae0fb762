"""Division as measures need it: no value where there is nothing to divide by."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cleanse.measures import Values


def share(part: NDArray[Any], whole: NDArray[Any], at_least: float = 1) -> Values:
    """``part / whole`` by element; NaN where ``whole`` is under ``at_least``."""
    out: Values = np.full(len(whole), np.nan)
    np.divide(part, whole, out=out, where=whole >= at_least)
    return out
