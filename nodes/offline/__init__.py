"""The built-in model: answers the roles' prompts without a network, always in the same way.

It knows nothing but what stands in the prompt. It reads the kernel, the profile and the experiences out of the text,
ranks the deterministic rewrites that apply, and writes the plan, the code or the summary.
"""

from .ideas import Workshop
from .model import OfflineChatModel

__all__ = ["OfflineChatModel", "Workshop"]
