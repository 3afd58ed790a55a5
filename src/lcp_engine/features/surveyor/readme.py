"""Read a readme: the project's title, and the sentences that say what it is."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_MOST_README = 32 * 1024
_MOST_SAID = 400
_MOST_SENTENCES = 3


@dataclass(frozen=True)
class About:
    """Statements of a readme; empty where it does not say it plainly."""

    title: str = ""
    subject: str = ""
    """What a sentence says something of, as in `Redis is`."""
    paragraph: str = ""


@dataclass(frozen=True)
class _Block:
    """A heading (`level` from 1) or a paragraph (`level` 0), as plain text."""

    level: int
    text: str


def read_readme(path: str, text: str, names: Iterable[str]) -> About:
    """The heading that comes before anything else, and the whole sentences with which a paragraph says what it is.

    `names` are those that the project may be called by in its readme.
    """
    text = text[:_MOST_README].replace("\r\n", "\n").removeprefix("\ufeff")
    read = _plain_blocks if path.lower().endswith((".rst", ".rest", ".adoc", ".asciidoc")) else _markdown
    blocks = [block for block in read(text) if block.text]
    title = _title(blocks)
    folded = {_fold(name) for name in (*names, title) if _fold(name)}
    said = [(heading, block.text) for heading, block in _leading(blocks)]
    subjects = [
        (subject, prose)
        for heading, prose in said
        if (subject := _subject(prose, folded | {_fold(heading.removeprefix("What is "))}))
    ]
    subject = subjects[0][0] if subjects else ""
    for _, prose in subjects:
        if said_of_it := whole_sentences(prose):
            return About(title, subject, said_of_it)
    # Without such a sentence: what stands right under the title, or under a heading that asks for it.
    under = (prose for heading, prose in said if _SAYS_WHAT.fullmatch(heading))
    first = said[0][1] if said and title and said[0][0] == blocks[0].text else ""
    likely = next((prose for prose in (first, *under) if prose and not _OF_ITSELF.match(prose)), "")
    return About(title, subject, whole_sentences(likely))


def same_name(one: str, other: str) -> bool:
    """True if two names differ in case, spaces and punctuation only."""
    return bool(_fold(one)) and _fold(one) == _fold(other)


def whole_sentences(text: str) -> str:
    """The sentences that `text` begins with and that end in it, as far as they are not too many."""
    kept = ""
    for sentence in sentences(text)[:_MOST_SENTENCES]:
        if not re.search(r"[.!?][\"')\]]?$", sentence) or len(kept) + len(sentence) > _MOST_SAID:
            break
        kept = f"{kept} {sentence}".strip()
    return kept


def sentences(text: str) -> list[str]:
    """`text` in pieces, each but the last a whole sentence."""
    return _BETWEEN.split(text)


_BETWEEN = re.compile(r"(?<=[.!?])(?<!e\.g\.)(?<!i\.e\.)(?<!cf\.)(?<!vs\.)(?<!etc\.)\s+(?=[A-Z\"'(`{:])")
_NO_TITLE = re.compile(
    r"(?i).*[?!:]|welcome\b.*|(?:read ?me|about|overview|introduction|description|summary|contents|table of contents"
    r"|documentation|installation|getting started|usage|license|policies|features|news|changelog|v?\d[\w.]*)"
)
_OF_ITSELF = re.compile(
    r"(?i)(?:this (?:file|readme|document|page|directory|folder)|welcome|note|warning|important|you |to |if |for "
    r"|see |please |the (?:following|latest)|we |in |all |join|follow|click|read |copyright|©)"
)
_SAYS_WHAT = re.compile(
    r"(?i)(?:what (?:it is|is\b.*)|about|overview|introduction|description|summary|synopsis)\W*"
)
_VERBS = (
    "is|are|was|provides|lets|helps|allows|makes|aims|offers|enables|implements|gives|does|can|contains|brings|adds|"
    "combines|generates|turns|tries|supports"
)


def _title(blocks: list[_Block]) -> str:
    """The first heading if nothing comes before it and it is short enough for a name."""
    if not blocks or blocks[0].level != 1:
        return ""
    title = blocks[0].text.rstrip(".")
    is_name = re.match(r"[\w{@.]", title) and len(title.split()) <= 4 and not _NO_TITLE.fullmatch(title)
    return title if is_name else ""


def _leading(blocks: list[_Block]) -> Iterator[tuple[str, _Block]]:
    """The paragraphs before the second section, and those of sections about what it is, each with its heading."""
    heading, seen_prose, sections = "", False, 0
    for block in blocks:
        if block.level:
            heading = block.text
            sections += seen_prose
        elif not sections or _SAYS_WHAT.fullmatch(heading):
            seen_prose = True
            yield heading, block
        else:
            seen_prose = True


def _subject(prose: str, folded: set[str]) -> str:
    """The name with which `prose` begins, as in `Redis 7 is`; `This` where it says what this is; else nothing."""
    found = re.match(rf"(?:The )?((?:\S+ ){{1,4}}?)(?:\([^)]*\) |v?\d[\w.]* )*(?:{_VERBS})\b", prose)
    if found is None or found[1] == "This ":
        said = re.match(r"This is (\S+)", prose)
        kind = re.match(r"This (?:library|package|project|program|module|tool) (?:is|provides)\b", prose)
        return "This" if kind or (said and _fold(said[1]) in {"a", "an", *folded}) else ""
    words = re.sub(r"\([^)]*\)|\bv?\d[\d.]*\b", "", found[1]).strip()
    subject = _fold(words)
    known = subject in folded or (len(subject) > 3 and any(name.startswith(subject) for name in folded))
    return words if known else ""


def _fold(name: str) -> str:
    return re.sub(r"[\W_]+", "", name).casefold()


def _markdown(text: str) -> Iterator[_Block]:
    """The headings and paragraphs at the top level of a Markdown file; images, badges and HTML are not words."""
    # Takes 20 ms to import, and only a readme needs it.
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

    text = re.sub(r"\A---\n[^\0]{0,4000}?\n---\n", "", text)
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    opened: Token | None = None
    for token in tokens:
        if token.type == "html_block" and (found := re.search(r"<h1[^>]*>([^<]+)</h1>", token.content)):
            yield _Block(1, _line(found[1]))
        elif token.level == 0 and token.type in ("heading_open", "paragraph_open"):
            opened = token
        elif token.type == "inline" and token.level == 1 and opened:
            level = int(opened.tag[1:]) if opened.type == "heading_open" else 0
            words = "".join(_words(child) for child in token.children or ())
            yield _Block(level, _line(words) if level or not _is_navigation(words) else "")
            opened = None
        elif token.level == 0:
            opened = None


def _words(token: object) -> str:
    """The text of an inline token; nothing for images and HTML."""
    from markdown_it.token import Token

    if not isinstance(token, Token) or token.type in ("image", "html_inline"):
        return ""
    return " " if token.type in ("softbreak", "hardbreak") else token.content


def _is_navigation(words: str) -> bool:
    """Links in a row, as at the top of many pages; a row of badges; a shell prompt."""
    return bool(re.search(r"[|•·]", words)) or words.lstrip().startswith(("$", "|", "["))


def _line(words: str) -> str:
    # A reference whose target was not read.
    words = re.sub(r"\[([^\[\]]{1,200})\](?:\[[^\[\]]{0,200}\])?", r"\1", words)
    return " ".join(words.split())


def _plain_blocks(text: str) -> Iterator[_Block]:
    """Headings and paragraphs of reStructuredText or AsciiDoc, by blank lines and underlines."""
    text = re.sub(r"(?m)^\.\. [^\n]*(?:\n[ \t]+[^\n]*)*", "", text)
    levels: list[str] = []
    for block in re.split(r"\n[ \t]*\n", text):
        heading, sign, rest = _heading(block.strip("\n"))
        if heading:
            if sign not in levels:
                levels.append(sign)
            yield _Block(levels.index(sign) + 1, heading)
        yield _Block(0, _prose(rest))


def _heading(block: str) -> tuple[str, str, str]:
    """The heading that `block` begins with, the sign of its level, and the rest."""
    first, _, rest = block.partition("\n")
    if found := re.match(r"(={1,5})\s+(\S.*)", first):
        return _inline(found[2]), found[1], rest
    second, _, after = rest.partition("\n")
    if first.strip() and re.fullmatch(r"([=\-~^*+#\"'])\1{2,}\s*", second):
        return _inline(first), second[0], after
    if re.fullmatch(r"([=\-~^*+#])\1{2,}\s*", first) and rest:
        return (
            _inline(second if not second.strip() else rest.partition("\n")[0]),
            first[0] * 2,
            after.partition("\n")[2],
        )
    return "", "", block


def _prose(block: str) -> str:
    """The words of a paragraph; nothing for a list, a table, a field, a directive or a block of code."""
    if block.startswith((" ", "\t")) or re.match(r"[-+|:$<]|\*(?!\*)|\d+[.)]|\.\.|image::|//|\[", block):
        return ""
    words = _inline(block)
    return "" if _is_navigation(words) else words


def _inline(text: str) -> str:
    text = re.sub(r"`([^`<\n]{1,200}?)\s*<[^>\n]{0,300}>`__?", r"\1", text)
    text = re.sub(r"\|[^|\n]{1,80}\|_{0,2}", "", text)
    text = re.sub(r":[a-z:]+:`([^`\n]{1,200})`", r"\1", text)
    text = re.sub(r"(\*\*|``|\*|`)(?=\S)([^*`\n]{1,300}?)(?<=\S)\1_{0,2}", r"\2", text)
    return _line(text)
