"""Paths as policy reads them: patterns, ignore files, secret files, and what became of a path."""
