"""The probe in a scan: which records are replayed through a model, how their figures are judged, what is kept."""

from __future__ import annotations

from cleanse.probing.settings import ProbeSettings
from cleanse.probing.stage import ProbeStage

__all__ = ["ProbeSettings", "ProbeStage"]
