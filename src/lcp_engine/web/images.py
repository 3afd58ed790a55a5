"""Images of a diff, before and after: told by their content, with their dimensions."""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice

from lcp_engine.inbox import Contents, Diff

SUFFIXES = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".avif")
"""Ends of names of files that may be images. An SVG is a program, and shown as the text that it is."""
LARGEST = 5 * 1024 * 1024
"""Bytes of an image that is shown."""
MOST_PIXELS = 40_000_000
"""Pixels of an image that is shown: few bytes can stand for any number of them."""
MOST_PARTS = 10_000
"""Parts before the first frame that are looked at."""
# Markers of a JPEG that begin a frame, which has its dimensions.
_FRAMES = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}
_BARE = {0x01, *range(0xD0, 0xD8)}
"""Markers without a length."""


@dataclass(frozen=True)
class Image:
    """An image: its media type, and its dimensions in pixels."""

    media_type: str
    width: int
    height: int


@dataclass(frozen=True)
class Side:
    """One side of a file that may be an image; `fault` is why it is not shown."""

    name: str
    size: int
    digest: str
    image: Image | None
    fault: str


@dataclass(frozen=True)
class Images:
    """The sides of a file of a job, which has this mark; without them `fault` is why nothing is shown."""

    path: str
    mark: str
    sides: Sequence[Side]
    fault: str = ""


def may_be_image(diff: Diff) -> bool:
    """True for a file that has no lines to show, and the name of an image."""
    return not diff.lines and diff.path.lower().endswith(SUFFIXES)


def sides_of(contents: Contents) -> list[Side]:
    """The sides of a file that are there, the old one first."""
    sides = {"before": contents.before, "after": contents.after}
    return [_side(name, data) for name, data in sides.items() if data is not None]


def _side(name: str, data: bytes) -> Side:
    found, fault = image_in(data), ""
    if found is None:
        fault = "it is no image that a browser shows"
    elif len(data) > LARGEST or found.width * found.height > MOST_PIXELS:
        fault = f"it is too large to be shown; at most {LARGEST:,} bytes and {MOST_PIXELS:,} pixels are"
    return Side(name, len(data), sha256(data).hexdigest(), found, fault)


def image_in(data: bytes) -> Image | None:
    """The image that a content is, by its first bytes; None for anything else, or without dimensions."""
    try:
        found = _read(data)
    except (struct.error, IndexError):
        return None
    return found if found is not None and found.width > 0 and found.height > 0 else None


def _read(data: bytes) -> Image | None:
    if data[:8] == b"\x89PNG\r\n\x1a\n" and data[12:16] == b"IHDR":
        return Image("image/png", *struct.unpack_from(">II", data, 16))
    if data[:6] in (b"GIF87a", b"GIF89a"):
        return _read_gif(data)
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return _read_webp(data)
    if data[:3] == b"\xff\xd8\xff":
        return _read_jpeg(data)
    if data[4:8] == b"ftyp" and {b"avif", b"avis"} & {data[at : at + 4] for at in (8, *range(16, 64, 4))}:
        return _read_avif(data)
    return None


def _read_gif(data: bytes) -> Image | None:
    """The size of the screen, or more if the first frame is larger: browsers make room for it."""
    width, height = struct.unpack_from("<HH", data, 6)
    try:
        at = 13 + (6 << (data[10] & 7) if data[10] & 0x80 else 0)
        for _ in range(MOST_PARTS):
            if data[at] != 0x21:
                left, top, wide, high = struct.unpack_from("<HHHH", data, at + 1)
                return Image("image/gif", max(width, left + wide), max(height, top + high))
            at += 2
            while data[at]:
                at += data[at] + 1
            at += 1
    except (struct.error, IndexError):
        return Image("image/gif", width, height)  # without a frame
    return None


def _read_webp(data: bytes) -> Image | None:
    match data[12:16]:
        case b"VP8 ":
            width, height = struct.unpack_from("<HH", data, 26)
            return Image("image/webp", width & 0x3FFF, height & 0x3FFF)
        case b"VP8L":
            (bits,) = struct.unpack_from("<I", data, 21)
            return Image("image/webp", (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1)
        case b"VP8X":
            width, height = (int.from_bytes(data[at : at + 3], "little") + 1 for at in (24, 27))
            return Image("image/webp", width, height) if len(data) >= 30 else None
        case _:
            return None


def _read_jpeg(data: bytes) -> Image | None:
    """Goes from marker to marker, each of which says how long its part is."""
    at = 2
    for _ in range(MOST_PARTS):
        marker = data[at + 1]
        if data[at] != 0xFF or marker == 0:  # from there, decoders look for the next marker in different ways
            return None
        if marker in _FRAMES:
            height, width = struct.unpack_from(">HH", data, at + 5)
            return Image("image/jpeg", width, height)
        if marker == 0xFF:
            at += 1
        elif marker in _BARE:
            at += 2
        else:
            at += 2 + max(2, struct.unpack_from(">H", data, at + 2)[0])
    return None


def _read_avif(data: bytes) -> Image | None:
    """The dimensions of the largest image in its properties: others are previews, or a layer of it."""
    places = [one.end() + 4 for one in islice(re.finditer(b"ispe", data), MOST_PARTS + 1)]
    if not 0 < len(places) <= MOST_PARTS:
        return None
    found = [Image("image/avif", *struct.unpack_from(">II", data, at)) for at in places]
    return max(found, key=lambda one: one.width * one.height)
