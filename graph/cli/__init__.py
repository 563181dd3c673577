"""The `accelopt` command: one file a group of commands, everything heavy imported where it is used."""

from .entry import main

__all__ = ["main"]
