"""Reports of a mission, in every format."""
