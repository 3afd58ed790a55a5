"""Language models as planners: their transport, their prompts, the schema of a turn."""
