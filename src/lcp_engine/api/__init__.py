"""The engine for programs."""
