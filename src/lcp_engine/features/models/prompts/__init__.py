"""Prompts, and schemas of the replies to them."""
