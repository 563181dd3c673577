"""Assembles the other rooms into a graph, and exposes it: command line, server, report."""
