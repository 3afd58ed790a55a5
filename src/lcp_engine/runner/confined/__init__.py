"""Execute file kinds in processes that can open nothing outside the root (R22)."""
