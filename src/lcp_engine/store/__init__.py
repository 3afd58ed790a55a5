"""Keep everything in one database: all SQL of the engine is in here."""
