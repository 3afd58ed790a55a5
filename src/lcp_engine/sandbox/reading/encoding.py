"""Tell by its bytes how a text file is encoded, and encode what is put into it. Pure."""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from typing import Literal

from lcp_engine.errors import ErrorCode, LcpError

SAMPLE = 1 << 16
"""Bytes that a guess is made by."""


@dataclass(frozen=True, slots=True)
class Encoding:
    """The codec of a file's text, after its byte order mark; with surrogateescape, some bytes are not of the codec."""

    codec: str
    mark: bytes = b""
    is_guess: bool = False
    errors: Literal["strict", "surrogateescape"] = "strict"

    @property
    def name(self) -> str:
        """The codec that decodes the file with its byte order mark."""
        return self.codec if not self.mark else next(name for mark, _, name in _MARKS if mark == self.mark)

    def decode(self, data: bytes) -> str:
        """The text of a file. Raises UnicodeDecodeError."""
        return data[len(self.mark) :].decode(self.codec, self.errors)

    def encode(self, text: str) -> bytes:
        """The file with that text. Raises UnicodeEncodeError."""
        return self.mark + text.encode(self.codec, self.errors)

    def reads(self, data: bytes) -> bool:
        """True if the data is in this encoding."""
        try:
            self.decode(data)
        except UnicodeDecodeError:
            return False
        return True


_MARKS = (
    (codecs.BOM_UTF8, "utf-8", "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32-le", "utf-32"),  # begins like the next but one
    (codecs.BOM_UTF32_BE, "utf-32-be", "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16-le", "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16-be", "utf-16"),
)
UTF_8 = Encoding("utf-8")
BAD_BYTE = re.compile("[\udc80-\udcff]")
"""A byte that is not of the codec, as surrogateescape has it in the text."""


def encoding_of(data: bytes) -> Encoding | None:
    """The encoding of the text in `data`: by its byte order mark, as UTF-8, or as it looks; None for a binary file."""
    marked = by_mark(data)
    has_nul = not marked and b"\0" in data
    if not marked and not has_nul and UTF_8.reads(data):
        return UTF_8
    candidates = marked or guesses(data[:SAMPLE] if has_nul else sample_of(data), has_nul=has_nul)
    return next((one for one in candidates if one.reads(data)), None)


def by_mark(start: bytes) -> tuple[Encoding, ...]:
    """The encodings of a file that begins with these four bytes or more, if that is with a byte order mark."""
    found = tuple(Encoding(codec, mark) for mark, codec, _ in _MARKS if start.startswith(mark))
    if found and found[0].codec == "utf-8":
        return (*found, Encoding("utf-8", codecs.BOM_UTF8, is_guess=True, errors="surrogateescape"))
    return found


_TELLING_LINE = re.compile(rb"[^\n\x80-\xff]*[\x80-\xff][^\n]*\n?")


def sample_of(data: bytes) -> bytes:
    """The first lines that are not ASCII, as far as a guess needs them."""
    sample = bytearray()
    for line in _TELLING_LINE.finditer(data):
        sample += line[0][: SAMPLE - len(sample)]
        if len(sample) == SAMPLE:
            break
    return bytes(sample)


def guesses(sample: bytes, *, has_nul: bool) -> tuple[Encoding, ...]:
    """Encodings that a text may have which is neither UTF-8 nor marked, the likeliest first.

    Without NULs, the last one decodes everything.
    """
    if has_nul:
        return _wide(sample)
    likely = _likely(sample)
    text = sample.decode("utf-8", "surrogateescape")
    bad = len(BAD_BYTE.findall(text))
    # Bytes that continue a character of UTF-8, which others rarely look like.
    continued = len(sample) - len(text)
    if continued > bad or (continued == bad and likely == ("cp1252",)):
        return (Encoding("utf-8", is_guess=True, errors="surrogateescape"),)
    return tuple(Encoding(codec, is_guess=True) for codec in dict.fromkeys((*likely, "cp1252", "latin-1")))


def _likely(sample: bytes) -> tuple[str, ...]:
    """The codecs of the likeliest encoding, those of its smaller parts first."""
    from chardetng_py import EncodingDetector  # type: ignore[import-untyped]  # ships no types; few files need it

    detector = EncodingDetector()
    detector.feed(sample, last=False)
    name = detector.guess(tld=None, allow_utf8=False)
    known = _FAMILIES.get(name.lower())
    if known is None:
        return (canonical(name),)
    *parts, whole = known
    try:
        text = sample.decode(whole, "replace")
        return (*(part for part in parts if sample.decode(part, "replace") == text), whole)
    except LookupError:
        return known


# By the names of the WHATWG, whose encodings are larger than the codecs of Python that have these names.
_FAMILIES = {
    "gbk": ("gbk", "gb18030"),
    "gb18030": ("gbk", "gb18030"),
    "big5": ("big5", "cp950", "big5hkscs"),
    "shift_jis": ("cp932",),
    "euc-jp": ("euc_jp",),
    "euc-kr": ("euc_kr", "cp949"),
    "koi8-u": ("koi8-r", "koi8-u"),
    "iso-8859-8-i": ("iso8859-8",),
}


_NOT_IN_TEXT = re.compile("[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f-\x9f\ufdd0-\ufdef\ufffe\uffff]")


def _wide(sample: bytes) -> tuple[Encoding, ...]:
    """UTF-16 or UTF-32 without a mark, if most of the sample would be Latin then, or it looks like a text."""
    for codec in ("utf-32-le", "utf-32-be", "utf-16-le", "utf-16-be"):
        whole = sample[: SAMPLE - 4] if len(sample) == SAMPLE else sample
        try:
            # A pair of surrogates may be cut in two at the end of the sample.
            text = codecs.getincrementaldecoder(codec)().decode(whole, final=len(whole) < SAMPLE - 4)
        except UnicodeDecodeError:
            continue
        plain = sum(character < "\u0100" for character in text)
        if (
            len(text) > 1
            and not _NOT_IN_TEXT.search(text)
            and (plain * 10 >= len(text) * 7 or _has_words(text, whole))
        ):
            return (Encoding(codec, is_guess=True),)
    return ()


def _has_words(text: str, sample: bytes) -> bool:
    """True for a text of other letters than Latin ones: assigned, on lines or between blanks, not of pairs of ASCII."""
    from unicodedata import category  # few files need it

    return (
        len(text) >= 8
        and len(_AS_ASCII.sub(b"", sample)) * 10 >= len(sample)
        and re.search("[\n \u3000-\u3002\uff0c]", text) is not None
        and not any(category(character) in {"Cn", "Co", "Cs"} for character in text)
    )


_AS_ASCII = re.compile(rb"[\0\t\n\r -~]+")
NAMED = (
    "ascii", "utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be",
    "gbk", "gb2312", "gb18030", "big5", "big5hkscs", "cp950", "shift_jis", "cp932", "euc_jp", "iso2022_jp", "euc_kr",
    "cp949", "koi8-r", "koi8-u", "cp437", "cp850", "cp852", "cp866", "cp874", "cp1250", "cp1251", "cp1252", "cp1253",
    "cp1254", "cp1255", "cp1256", "cp1257", "cp1258", "latin-1", "iso8859-2", "iso8859-3", "iso8859-4", "iso8859-5",
    "iso8859-6", "iso8859-7", "iso8859-8", "iso8859-9", "iso8859-10", "iso8859-13", "iso8859-14", "iso8859-15",
    "iso8859-16", "mac-roman", "mac-cyrillic",
)  # fmt: skip
"""The encodings that a param may name, beside their other names in Python; a confined process loads them early."""


@lru_cache(maxsize=1)
def _canonical() -> dict[str, str]:
    return {codecs.lookup(name).name: name for name in NAMED}


@lru_cache(maxsize=64)
def canonical(name: str) -> str:
    """The name of a codec as results have it. Raises `LcpError` INVALID_PARAMS for one that is not in `NAMED`."""
    try:
        return _canonical()[codecs.lookup(name).name]
    except (LookupError, ValueError):  # ValueError: a NUL in the name
        near = get_close_matches(name.lower(), NAMED, 1)
        fits = (
            f"did you mean {near[0]!r}?"
            if near
            else "utf-8, utf-16, gbk, big5, cp932, euc_kr and cp1251 are some"
        )
        message = f"{name[:60]!r} is not an encoding of text files known here; {fits}"
        raise LcpError(ErrorCode.INVALID_PARAMS, message, advice=NAME_ENCODING) from None


NAME_ENCODING = "Name an encoding that docs/kinds.md lists, or leave `encoding` out."


def encoding_named(name: str, start: bytes, *, is_new: bool = False) -> Encoding:
    """The encoding of that name for a file that begins with `start`, whose byte order mark it keeps; what is to be
    written anew gets a mark, too, if the name stands for one.

    Raises `LcpError` INVALID_PARAMS.
    """
    codec = canonical(name)
    for mark, marked, with_mark in _MARKS:
        if codec in (marked, with_mark) and start.startswith(mark):
            return Encoding(marked, mark)
    for mark, marked, with_mark in _MARKS:
        if codec == with_mark:
            return Encoding(marked, mark if is_new else b"")
    return Encoding(codec)
