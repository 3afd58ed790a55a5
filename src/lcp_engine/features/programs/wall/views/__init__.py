"""Files that a command sees, and what is masked of them."""
