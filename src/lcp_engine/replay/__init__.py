"""Run missions again from their history."""
