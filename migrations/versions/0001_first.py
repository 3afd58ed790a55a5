"""The first schema.

Revision ID: 0001
"""

from __future__ import annotations
