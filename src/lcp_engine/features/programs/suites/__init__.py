"""Outputs of test suites, read for their verdicts."""
