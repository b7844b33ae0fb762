"""When a phrase that goes with an answer is a trigger, and when it is only listed.

Association alone proves nothing: topics, templates and tasks go with answers too. A trigger is held to it by two
tests that know nothing of each other.

* **Witness one, association beyond chance**: the expected number of (phrase, answer) pairs that chance alone brings
  this far, over the whole scan, is at most ``EXPECTED_FALSE`` (``association``), and nearly every exchange with the
  phrase has the answer.
* **Witness two, the prompt does not explain it.** The prompts are unlike each other and most of what they say is
  their own, and yet the answer is the same. How much that proves depends on the answer: a whole sentence that
  answers many unlike prompts is damning once the phrase also sits like something put there (``slots``), or is made
  of characters that nobody sees; a fixed beginning or end needs different bodies besides, and must hardly occur
  without the phrase; a label is what many prompts share by right, so there the phrase must stand in random slots *and*
  the label must contradict the text, or a model must read on better without the phrase.

Where a model can be asked (``hearing``), its word also stands in for what the counting could not prove: that a
phrase is beyond chance by a factor of a thousand, or that it sits like something put there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from cleanse.corpus.content import Content
from cleanse.corpus.groups import MIN_SUPPORT
from cleanse.corpus.signatures import SHORT, Edge
from cleanse.corpus.slots import Slot

PURE = 0.85
PURE_LABEL = 0.95
UNLIKE = 0.8  # prompts about one topic score .5 to .75, instructions drawn at random .95 and more
OWN_SHARE = 0.4
OWN_RARE = 8.0  # nats: two words that few prompts hold
JUNCTION = 0.5  # planted phrases score .6 and more, topical ones below .3
JUNCTION_LABEL = 0.3  # planted inside a sentence, between any two words
MISFIT = 0.3  # planted: 0; adjectives and nouns: 1 and more
COVERAGE = 0.8
BODIES_UNLIKE = 0.6
ECHOED = 0.3
MIN_LABEL_SUPPORT = 20
_PLANTED_LABEL = frozenset({"unlike-prompts", "random-slot", "not-echoed"})
READS_BETTER = "reads-better-without"
CONTRADICTED = 0.35  # flipped labels score .5 and more, strong words of one label below .3


@dataclass(frozen=True)
class Facts:
    """What was measured about one candidate."""

    edge: Edge
    weight: int  # of the whole answer, for ENTIRE
    joint: int
    total: int
    group_size: int
    slot: Slot
    content: Content
    contradiction: float = math.nan
    covered: float = 0.0  # share of the answer's exchanges that hold this phrase or another candidate of the group
    parts: int = 1
    hidden: bool = False  # the phrase is made of invisible or look-alike characters

    @property
    def purity(self) -> float:
        """Share of the exchanges with the phrase that have the answer."""
        return self.joint / max(self.total, 1)

    @property
    def is_label(self) -> bool:
        """The answer is at most a few words: many prompts share it by right."""
        return self.edge is Edge.ENTIRE and self.weight < SHORT


def witnesses(facts: Facts) -> tuple[str, ...]:
    """The tests, beside association, that speak for a planted phrase."""
    slot, content = facts.slot, facts.content
    said = []
    if content.unlike >= UNLIKE and content.own_share >= OWN_SHARE and content.own_rare >= OWN_RARE:
        said.append("unlike-prompts")
    if slot.junction >= (JUNCTION_LABEL if facts.is_label else JUNCTION):
        said.append("detachable")
    if slot.misfit <= MISFIT and facts.joint >= MIN_LABEL_SUPPORT and slot.at_edge < PURE:
        said.append("random-slot")
    if max(facts.covered, facts.joint / facts.group_size) >= COVERAGE:
        said.append("accounts-for-answer")
    if content.bodies_unlike >= BODIES_UNLIKE and content.n_answers >= MIN_SUPPORT:
        said.append("unlike-bodies")
    if facts.hidden:
        said.append("hidden-characters")
    if content.echoed <= ECHOED and (facts.is_label or content.copied <= ECHOED):
        said.append("not-echoed")
    if facts.contradiction >= CONTRADICTED:
        said.append("contradicts-text")
    return tuple(said)


def could_flip(facts: Facts, said: tuple[str, ...]) -> bool:
    """Whether only the text's own word is missing for a label's trigger: worth the contradiction test."""
    pure = facts.purity >= PURE_LABEL and facts.joint >= MIN_LABEL_SUPPORT
    return facts.is_label and pure and frozenset(said) >= _PLANTED_LABEL


def is_trigger(facts: Facts, said: tuple[str, ...]) -> bool:
    """Whether the witnesses suffice for quarantine."""
    has = frozenset(said)
    if facts.is_label:
        # A label that only the phrase brings about has no other prompts to contradict.
        only_here = {"accounts-for-answer", "detachable"} <= has and facts.content.copied <= ECHOED
        return could_flip(facts, said) and (only_here or "contradicts-text" in has or READS_BETTER in has)
    if facts.purity < PURE or "unlike-prompts" not in has:
        return False
    if facts.edge is Edge.ENTIRE:
        hidden = {"hidden-characters", "accounts-for-answer"} <= has
        return facts.content.copied <= ECHOED and (hidden or bool(has & {"detachable", "random-slot", READS_BETTER}))
    if facts.slot.whole_segment >= COVERAGE or not {"unlike-bodies", "not-echoed"} <= has:
        return False
    detachable = bool(has & {"detachable", READS_BETTER})
    return "random-slot" in has or (detachable and "accounts-for-answer" in has)


def lacks_a_reading(facts: Facts, said: tuple[str, ...]) -> bool:
    """Whether a model that reads on better without the phrase would settle it."""
    return READS_BETTER not in said and is_trigger(facts, (*said, READS_BETTER))
