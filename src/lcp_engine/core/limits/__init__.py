"""Limits of spending, and of starts at a time: money, prices, permits, terms of jobs."""
