"""Replay missions from their history, and fork them."""
