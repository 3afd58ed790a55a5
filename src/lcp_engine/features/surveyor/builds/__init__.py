"""Manifests and build files that a survey reads."""
