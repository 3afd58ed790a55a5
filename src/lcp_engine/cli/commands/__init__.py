"""Commands of `lcp` about missions, jobs, runners, the database and the page."""
