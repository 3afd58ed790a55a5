"""Commands of a mission: what may run, behind which wall, reaching which hosts."""
