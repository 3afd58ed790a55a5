"""The page: missions, jobs and decisions in a browser (`lcp serve`, extra `web`)."""
