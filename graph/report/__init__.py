"""What people look at after a run, and while it works; read from the ledger and nothing else."""

from .story import ProblemStory, Story, read_story

__all__ = ["ProblemStory", "Story", "read_story"]
