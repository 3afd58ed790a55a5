"""Evaluations: a file of missions with what is expected of them, and what came of it in figures."""
