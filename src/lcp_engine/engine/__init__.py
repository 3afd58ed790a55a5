"""Carry out use cases, one transaction each: launch, ask, settle, decide."""
