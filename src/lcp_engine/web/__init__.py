"""Show the engine in a browser: missions, jobs, and what waits for a person (`lcp serve`, extra `web`)."""
