"""Acts of people: approvals of what was shown, and messages."""
