"""Values of the configuration that features state, and secrets that it names."""
