"""Pages of missions and jobs, and the forms on them."""
