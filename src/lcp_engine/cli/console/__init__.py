"""A terminal as commands use it: what is printed, asked, edited and completed, keys and signals."""
