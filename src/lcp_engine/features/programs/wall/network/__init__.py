"""Hosts that a command may reach, through a proxy outside of its wall."""
