"""What a model's message really holds: code, or fields, however it was wrapped.

Every deviation from a clean answer has a name in `Oddity`, and is counted by that name in the ledger. What can be
read out of an answer is read; what cannot is asked for again.
"""

from .code import Code, read_code, same_program
from .fields import Parsed, nothing_said, read_fields
from .message import Oddity, blocks, complaint, is_cut_off, reasoning_of, text_of

__all__ = [
    "Code",
    "Oddity",
    "Parsed",
    "blocks",
    "complaint",
    "is_cut_off",
    "nothing_said",
    "read_code",
    "read_fields",
    "reasoning_of",
    "same_program",
    "text_of",
]
