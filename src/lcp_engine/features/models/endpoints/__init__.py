"""Servers of models: their wires, refusals, keys and tokens."""
