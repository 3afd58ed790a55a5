"""Times of schedules: recurrences, and local times."""
