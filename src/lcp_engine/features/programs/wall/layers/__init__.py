"""Changes of a command, kept in a layer over the root."""
