"""What a record's columns mean: detected formats, and one view of the text in all of them."""

from __future__ import annotations

from cleanse.formats.conversation import Conversation, Conversations, conversation
from cleanse.formats.detect import FORMATS, detect
from cleanse.formats.paths import get_text, replace_text
from cleanse.formats.spec import Format, FormatError, Part
from cleanse.formats.textview import TextView, view
from cleanse.formats.turns import Turns

__all__ = [
    "FORMATS",
    "Conversation",
    "Conversations",
    "Format",
    "FormatError",
    "Part",
    "TextView",
    "Turns",
    "conversation",
    "detect",
    "get_text",
    "replace_text",
    "view",
]
