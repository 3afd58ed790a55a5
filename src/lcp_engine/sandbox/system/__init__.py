"""Confinement and places as the operating system has them."""
