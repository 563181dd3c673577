"""The work of the search, one file a node, and what flows between the nodes."""
