"""Find in a readme what the project says it is: its title and its first paragraph."""

from __future__ import annotations

import re
from dataclasses import dataclass

_MOST = 32 * 1024


@dataclass(frozen=True)
class About:
    title: str = ""
    paragraph: str = ""


def read_readme(text: str) -> About:
    """The first heading, and the paragraph that says what it is, else the first that is prose; empty without."""
    blocks = [block.strip("\n") for block in re.split(r"\n[ \t]*\n", _without_markup(text[:_MOST]))]
    title, under = "", ""
    found: list[tuple[int, str]] = []
    for block in blocks:
        heading, rest = _heading(block)
        title, under = title or heading, heading or under
        prose = _prose(rest)
        if len(prose) > 12 and " " in prose and prose != title:
            found.append((_rank(prose, title, under), prose))
    return About(title, min(found, key=lambda item: item[0])[1] if found else "")


_SAYS_WHAT = re.compile(r"(?i)(?:what (?:it is|is\b.*)|about|overview|introduction|description|summary)\W*")


def _rank(prose: str, title: str, under: str) -> int:
    """How likely `prose` says what the project is, the likeliest first."""
    if title and prose.casefold().startswith((f"{title.casefold()} ", f"the {title.casefold()} ")):
        return 0
    return 1 if _SAYS_WHAT.fullmatch(under) else 2


def _without_markup(text: str) -> str:
    text = text.replace("\r\n", "\n").removeprefix("\ufeff")
    text = re.sub(r"\A---\n[^\0]{0,4000}?\n---\n", "", text)
    text = re.sub(r"<!--[^>]{0,2000}-->", "", text)
    text = re.sub(r"(?m)^(```|~~~)[^\0]{0,4000}?^\1[^\n]*$", "", text)
    text = re.sub(r"<h1[^>\n]*>([^<\n]+)</h1>", r"\n# \1\n\n", text)
    text = re.sub(r"</?[a-zA-Z][^>\n]{0,500}>", " ", text)
    text = re.sub(r"\[?!\[[^\]\n]{0,200}\]\([^)\n]{0,500}\)(?:\]\([^)\n]{0,500}\))?", "", text)
    text = re.sub(r"\[?!\[[^\]\n]{0,200}\]\[[^\]\n]{0,200}\](?:\]\[[^\]\n]{0,200}\])?", "", text)
    return re.sub(r"(?m)^\.\. [^\n]*(?:\n[ \t]+[^\n]*)*", "", text)


def _heading(block: str) -> tuple[str, str]:
    """The heading that `block` begins with, and the rest: `#` of Markdown, `=` of AsciiDoc, underlines."""
    first, _, rest = block.partition("\n")
    if found := re.match(r"(?:#{1,6}|={1,5})\s+(\S.*)", first):
        return _prose(found[1].rstrip("# ")), rest
    second, _, after = rest.partition("\n")
    if first.strip() and re.fullmatch(r"([=\-~^*+#])\1{2,}\s*", second):
        return _prose(first), after
    if re.fullmatch(r"([=\-~^*+#])\1{2,}\s*", first) and rest:
        return _prose(second if not second.strip() else rest.partition("\n")[0]), after.partition("\n")[2]
    return "", block


def _prose(block: str) -> str:
    """The words of a paragraph; nothing for a list, a table or a block of code."""
    no_words = re.compile(r"\s*(?:\[[^\]\n]*\]:|[=\-*_~]{3,}\s*$)")
    lines = [line.strip() for line in block.splitlines() if not no_words.match(line)]
    if not lines or re.match(r"[-+|]|\*(?!\*)|\d+[.)]|\$|>?\s*\[!", lines[0]):
        return ""
    if block.startswith(("    ", "\t")):
        return ""
    text = " ".join(line.lstrip("> ") for line in lines)
    text = re.sub(r"\[([^\]\n]{1,300})\](?:\([^)\n]{0,500}\)|\[[^\]\n]{0,200}\])", r"\1", text)
    text = re.sub(r"`([^`\n]{1,200})`_", r"\1", text)
    text = re.sub(r"(\*\*|__|\*|`+)(?=\S)([^*`\n]{1,300}?)(?<=\S)\1", r"\2", text)
    return " ".join(text.split())
