"""Say how a mission stands, in every form that is asked for (pure)."""
