"""A widget of lines, of which only the visible ones are drawn, with a cursor on those that have a key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from rich.style import Style
from rich.text import Text
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from lcp_engine.cli.tables import Line, cut_between_words
from lcp_engine.features.top.frames import NOT_YET, Frame, FramedApp

_CURSOR = Style(reverse=True)
_CURSOR_ELSEWHERE = Style(bold=True, underline=True)
"""While another widget has the focus."""


@dataclass(frozen=True)
class Row:
    """A line. One without a key cannot be selected."""

    text: Text
    key: int | None = None
    begins: int | None = None
    """The number of the file whose part of the content begins here."""


@dataclass(frozen=True)
class Content:
    """Rows, below a heading that does not scroll, if there is one."""

    rows: Sequence[Row]
    heading: Text | None = None


MakeContent: TypeAlias = Callable[[int], Content]
"""The content for a width in terminal cells."""


def text_of(line: Line) -> Text:
    """A line of a table. Its text is shown as it is: nothing in it is markup."""
    return Text.assemble(*((span.text, span.style) for span in line), no_wrap=True)


class Lines(ScrollView, can_focus=True):
    """Without keys among its rows, the keys scroll."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j,down", "move(1)", "down", show=False),
        Binding("k,up", "move(-1)", "up", show=False),
        Binding("pagedown,space,ctrl+f", "page(1)", "page down", show=False),
        Binding("pageup,b,ctrl+b", "page(-1)", "page up", show=False),
        Binding("g,home", "edge(-1)", "first", show=False),
        Binding("G,end", "edge(1)", "last", show=False),
    ]
    DEFAULT_CSS = """
    Lines { height: 1fr; overflow-x: hidden; overflow-y: auto; scrollbar-size-vertical: 1; scrollbar-gutter: stable;
            scrollbar-color: ansi_bright_black; scrollbar-background: ansi_default; }
    """

    class Selected(Message):
        """The cursor is on another row."""

        def __init__(self, lines: Lines, key: int) -> None:
            super().__init__()
            self.lines = lines
            self.key = key

        @property
        def control(self) -> Lines:
            return self.lines

    def __init__(self, *, id: str) -> None:  # noqa: A002  # Textual's own name
        super().__init__(id=id)
        self._make: MakeContent = lambda width: Content(())
        self._content = Content(())
        self._keyed: list[int] = []
        """The places of the rows with a key, in order."""
        self._cursor: int | None = None
        self._wanted: int | None = None
        self._seen_to = 0
        self.frame = NOT_YET
        """The first frame that has shown what it shows."""
        self._whole_frame = NOT_YET
        self._drawn: list[tuple[int, Frame]] = []
        """How many rows had been on the screen with which frame."""

    @property
    def selected(self) -> int | None:
        """The key of the row under the cursor."""
        return None if self._cursor is None else self._content.rows[self._cursor].key

    def was_seen(self, at: float) -> bool:
        """True if each of its rows had been on the screen by then, since they were shown."""
        return self._whole_frame.at < at

    @property
    def text(self) -> str:
        """All rows as plain text."""
        return "\n".join(row.text.plain for row in self._content.rows)

    def show(self, make: MakeContent, *, is_new: bool = False) -> None:
        """Show a content and keep the cursor and the place, or with `is_new` begin at its top."""
        self._make = make
        if is_new:
            self._cursor, self._seen_to, self._drawn = None, 0, []
            self.expect_frame()
            self.scroll_to(y=0, animate=False, force=True)
        self._remake()

    def select(self, key: int) -> None:
        """Move the cursor to the row with that key, now or as soon as there is one."""
        self._wanted = key
        self._remake()

    def part_at_top(self, came_at: float) -> tuple[int, int] | None:
        """The file at the topmost row, and how many of its rows were not on the screen when a key came; None without.

        Rows count in their order: what was jumped over was not on the screen, nor was anything behind it.
        """
        starts = self._starts()
        at = next(
            (at for at in reversed(starts) if at <= self.scroll_offset.y), starts[0] if starts else None
        )
        if at is None:
            return None
        end = next((later for later in starts if later > at), len(self._content.rows))
        seen_to = max((rows for rows, frame in self._drawn if frame.at < came_at), default=0)
        return self._content.rows[at].begins or 0, max(0, end - max(at, seen_to))

    def go_to_part(self, by: int) -> None:
        """Scroll to the file after the topmost one, or to the one before."""
        top, starts = self.scroll_offset.y, self._starts()
        found = [at for at in starts if at > top] if by > 0 else [at for at in reversed(starts) if at < top]
        self.scroll_to(y=found[0] if found else 0 if by < 0 else len(self._content.rows), animate=False)

    def refold(self, make: MakeContent) -> None:
        """Show the content with the topmost file folded, all of which had been on the screen, or unfolded."""
        part, before = self.part_at_top(0), len(self._content.rows)
        self._make = make
        self._remake()
        grown = len(self._content.rows) - before
        at = next((at for at in self._starts() if part and self._content.rows[at].begins == part[0]), 0)

        def moved(rows: int) -> int:
            return max(0, rows + grown) if grown <= 0 else min(rows, at)

        self._drawn = [(moved(rows), frame) for rows, frame in self._drawn]
        self._seen_to = moved(self._seen_to)
        self.expect_frame()
        self.scroll_to(y=at, animate=False, force=True)
        self._note_seen()

    def _starts(self) -> list[int]:
        return [at for at, row in enumerate(self._content.rows) if row.begins is not None]

    def expect_frame(self) -> None:
        """Something else was on the screen; it is shown anew."""
        self.frame = self._whole_frame = NOT_YET
        self.refresh()

    def drawn_in(self, frame: Frame) -> None:
        self.frame = frame if self.frame is NOT_YET else self.frame
        if not self._drawn or self._seen_to > self._drawn[-1][0]:
            self._drawn.append((self._seen_to, frame))
        if self._whole_frame is NOT_YET and self._seen_to >= len(self._content.rows):
            self._whole_frame = frame

    def on_hide(self) -> None:
        self.expect_frame()

    def on_resize(self, event: events.Resize) -> None:
        self._remake()

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        self._note_seen()

    def render_lines(self, crop: Region) -> list[Strip]:
        if isinstance(self.app, FramedApp):
            self.app.draws(self)
        return super().render_lines(crop)

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        if y < self._heading_height and self._content.heading is not None:
            return self._strip(self._content.heading, width, Style(bold=True))
        at = y - self._heading_height + self.scroll_offset.y
        if at >= len(self._content.rows):
            return Strip.blank(width, self.rich_style)
        style = Style.null()
        if at == self._cursor:
            style = _CURSOR if self.has_focus else _CURSOR_ELSEWHERE
        return self._strip(self._content.rows[at].text, width, style)

    def action_move(self, by: int) -> None:
        if not self._keyed:
            self.scroll_relative(y=by, animate=False)
            return
        self._place_cursor(self._keyed[max(0, min(self._index() + by, len(self._keyed) - 1))])

    def action_page(self, by: int) -> None:
        room = max(1, self._room - 1)
        if self._keyed:
            self.action_move(by * room)
        else:
            self.scroll_relative(y=by * room, animate=False)

    def action_edge(self, side: int) -> None:
        if self._keyed:
            self._place_cursor(self._keyed[0 if side < 0 else -1])
        else:
            self.scroll_to(y=0 if side < 0 else len(self._content.rows), animate=False)

    def _strip(self, text: Text, width: int, style: Style) -> Strip:
        console = self.app.console
        if text.cell_len > width:
            cut = cut_between_words(text.plain, width)
            text = text[: len(cut) - 1].append(cut[-1:])
        # `render` leaves out the style of the whole text.
        style = self.rich_style + console.get_style(text.style) + style
        return Strip(text.render(console)).crop_extend(0, width, self.rich_style).apply_style(style)

    @property
    def _heading_height(self) -> int:
        return 0 if self._content.heading is None else 1

    @property
    def _room(self) -> int:
        """Number of rows that fit."""
        return max(0, self.size.height - self._heading_height)

    def _index(self) -> int:
        return 0 if self._cursor is None else self._keyed.index(self._cursor)

    def _remake(self) -> None:
        width = self.scrollable_content_region.width
        if width <= 0:
            return  # it is remade as soon as it has a size
        selected, before = self.selected, 0 if self._cursor is None else self._index()
        made = self._make(width)
        is_same = made == self._content
        self._content = made
        self._keyed = [at for at, row in enumerate(made.rows) if row.key is not None]
        wanted = self._place_of(self._wanted)
        if wanted is None:
            self._cursor = self._found(selected, before)
        else:
            self._cursor, self._wanted = wanted, None
        self.virtual_size = Size(width, len(made.rows) + self._heading_height)
        self._note_seen()
        if not is_same:
            self.refresh()
        if self.selected is not None and self.selected != selected:
            self._place_cursor(self._cursor)

    def _found(self, key: int | None, before: int) -> int | None:
        """The place of the row with that key; without it, of the row that took its place."""
        place = self._place_of(key)
        if place is None and self._keyed:
            return self._keyed[min(before, len(self._keyed) - 1)]
        return place

    def _place_of(self, key: int | None) -> int | None:
        return (
            None
            if key is None
            else next((at for at in self._keyed if self._content.rows[at].key == key), None)
        )

    def _place_cursor(self, at: int | None) -> None:
        self._cursor = at
        key = self.selected
        if at is None or key is None:
            return
        top, room = self.scroll_offset.y, max(1, self._room)
        if at < top or at >= top + room:
            # The rows before the first key, such as a title, come into view with it.
            y = 0 if at == self._keyed[0] else at if at < top else at - room + 1
            self.scroll_to(y=y, animate=False, force=True)
        self.refresh()
        self.post_message(self.Selected(self, key))

    def _note_seen(self) -> None:
        top = self.scroll_offset.y
        if top <= self._seen_to:  # a jump over rows has not shown them
            self._seen_to = max(self._seen_to, top + self._room)
