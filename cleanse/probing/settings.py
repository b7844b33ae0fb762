"""What a scan was told about its probe. Everything here can change a verdict."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cleanse.calibrate import controls_needed
from cleanse.errors import UsageError

SCOPES = ("auto", "suspects", "all")
BACKENDS = ("torch", "mindspore")
LEAST_CONTROLS = 900  # half fits baselines and tails; the other half puts the 98th percentile between the 97th and 99th


@dataclass(frozen=True)
class ProbeSettings:
    """How suspects are replayed through a model."""

    model: str = "embedded"
    adapter: str | None = None
    backend: str = "torch"
    device: str = "auto"
    dtype: str = "auto"
    scope: str = "auto"
    budget: float = 0.001  # the largest share of clean records that the probe may quarantine
    max_tokens: int = 256  # of one window
    windows: int = 2  # of one long record
    batch_records: int = 8  # consecutive records that are reported as one batch of the reading order
    fp16: bool = False  # the run to come is in half precision: say what will overflow there
    loss_scale: float | None = None  # of that run, where it is static; None: dynamic
    trust_remote_code: bool = False

    def __post_init__(self) -> None:
        if self.scope not in SCOPES:
            raise UsageError(f"the probe's scope is {self.scope!r}: expected one of {', '.join(SCOPES)}")
        if self.backend not in BACKENDS:
            raise UsageError(f"backend is {self.backend!r}: expected one of {', '.join(BACKENDS)}")
        if not 0 < self.budget <= 0.5:  # noqa: PLR2004 - more than half is no budget
            raise UsageError(f"the budget is {self.budget}: expected a share of records above 0 and up to 0.5")
        if self.loss_scale is not None and not (self.fp16 and self.loss_scale > 0):
            raise UsageError(f"the loss scale is {self.loss_scale}: expected a number above 0, beside --dtype fp16")
        if min(self.max_tokens - 1, self.windows, self.batch_records) < 1:
            raise UsageError("the probe needs at least 2 tokens, 1 window and batches of 1 record")

    @staticmethod
    def controls_wanted(level: float) -> int:
        """Controls to replay where p-values up to ``level`` convict: enough for that, and a tenth more for bad luck."""
        return round(1.1 * max(controls_needed(level), LEAST_CONTROLS))

    def identity(self) -> dict[str, Any]:
        """All that decides what the probe concludes. JSON-serialisable."""
        return dict(vars(self))
