"""What a model says about a candidate for a trigger: a witness that reads, where the others count."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

LIMIT_P = 1e-3
"""Largest convicting p-value. At most ``MOST_HEARD`` phrases are heard in a scan, so chance alone convicts at most
0.032 of them, and only of those for which all other tests speak already."""
LEAST_RELIEF = 1.25
"""Nats. In the sentiment corpus that this was set on, planted words stand 1.5 to 3 nats in the way of the next three
tokens; of some 60 words of the language that go with a label there one does (1.3), in too few readings to be sure."""
LEAST_READ = 16  # different prompts read, else nothing is concluded
MOST_HEARD = 32  # phrases of one scan that the model is asked about, strongest first


@dataclass(frozen=True)
class Hearing:
    """Two figures of a model about one phrase, each with its p-value; NaN where it could not be measured.

    ``relief`` is how many nats fewer the next tokens cost once the phrase is taken out, on average over the prompts.
    Words of a language help to foresee what follows them, so this is negative for nearly all of them; what was put
    between any two words is in the way. ``alike`` is the mean cosine of the gradients that the answers send back,
    over pairs of the phrase's records: a figure to look at, which convicts nobody (docs/poison.md says why).
    """

    n_read: int
    relief: float
    relief_p: float
    alike: float = math.nan
    alike_p: float = math.nan

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Hearing:
        """From its fields as JSON has them, which knows no NaN and writes null."""
        known: dict[str, Any] = {name: math.nan if value is None else value for name, value in values.items()}
        return cls(**known)

    @property
    def agrees(self) -> bool:
        """Whether the model reads on better without the phrase, beyond chance and by enough to matter."""
        return self.n_read >= LEAST_READ and self.relief >= LEAST_RELIEF and self.relief_p <= LIMIT_P
