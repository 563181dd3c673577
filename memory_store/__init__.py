"""What outlives a run: experiences in Chroma, and a SQL ledger of everything that happened.

Importing this package is cheap on purpose: Chroma, the embedders and SQLAlchemy are loaded by the
modules that need them, so that a command line which only lists problems does not pay for them.
"""
