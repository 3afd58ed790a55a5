"""Dialogs over the screen: a text in full, a line to type, a question of yes or no."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import ClassVar, TypeVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.geometry import Region, Size
from textual.screen import ModalScreen
from textual.strip import Strip
from textual.widgets import Input, Static, TextArea

from lcp_engine.cli.console.editor import Draft
from lcp_engine.cli.tables import mark_of, quoted
from lcp_engine.core.safe_text import one_line
from lcp_engine.features.top.frames import NOT_YET, Frame, FramedApp
from lcp_engine.features.top.keys import Keys
from lcp_engine.features.top.lines import Content, Lines, MakeContent, Row

Answer = TypeVar("Answer")


class Dialog(ModalScreen[Answer]):
    """A screen over the others."""

    def is_answered(self) -> bool:
        """True if the key that is being handled arrived after the frame that showed this; else it answers nothing."""
        shown = self.query(Lines).first(Lines) if self.query(Lines) else self.query_one(_Question)
        return isinstance(self.app, FramedApp) and shown.frame.at < self.app.key_came_at


class _Question(Static):
    """The question of a dialog."""

    frame = NOT_YET

    def drawn_in(self, frame: Frame) -> None:
        self.frame = frame if self.frame is NOT_YET else self.frame

    def render_lines(self, crop: Region) -> list[Strip]:
        if isinstance(self.app, FramedApp):
            self.app.draws(self)
        return super().render_lines(crop)


class _Words(Static):
    """A planner's words, each row of them marked, at any width."""

    def __init__(self, words: str, *, classes: str) -> None:
        super().__init__(classes=classes)
        self._words = words

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self._rows(width))

    def render(self) -> Text:
        return Text("\n".join(self._rows(self.content_size.width)), no_wrap=True)

    def _rows(self, width: int) -> list[str]:
        return quoted(self._words, max(4, width), mark_of(sys.__stderr__))


class Whole(Dialog[bool]):
    """Something in full. True: the person approves what it shows."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "approve", "yes, approve"),
        Binding("escape,q,d,n", "leave", "back", key_display="q"),
        Binding("G", "end", "end"),
    ]

    def __init__(self, title: str, make: MakeContent, *, may_approve: bool) -> None:
        super().__init__()
        self._heading = title
        self._make = make
        self._may_approve = may_approve

    def compose(self) -> ComposeResult:
        yield Lines(id="whole")
        yield Keys()

    def on_mount(self) -> None:
        heading = Text(self._heading, no_wrap=True)
        self.query_one(Lines).show(lambda width: Content(self._make(width).rows, heading), is_new=True)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return self._may_approve if action == "approve" else True

    def action_approve(self) -> None:
        if self.is_answered():
            _ = self.dismiss(result=True)

    def action_leave(self) -> None:
        _ = self.dismiss(result=False)

    def action_end(self) -> None:
        self.query_one(Lines).action_edge(1)


class _Field(Input):
    """A line to type."""

    # Its own key, so that it comes after the characters that were typed before it.
    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "submit", "send")]

    async def action_submit(self) -> None:
        if not isinstance(self.screen, Dialog) or self.screen.is_answered():
            await super().action_submit()


class Ask(Dialog[str | None]):
    """A line to type, below a question. None: the person pressed Escape."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "back")]

    def __init__(self, question: str, problem: str = "", typed: str = "", *, words: str = "") -> None:
        """`words` are a planner's; they stand above the question, marked."""
        super().__init__()
        self._question = question
        self._words = words
        self._problem = problem
        self._typed = typed

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            if self._words:
                yield _Words(self._words, classes="question")
            yield _Question(Text(self._question), classes="question")
            if self._problem:
                yield Static(Text(self._problem, style="red"))
            yield _Field(self._typed, compact=True)
        yield Keys()

    @on(Input.Submitted)
    def submit(self, event: Input.Submitted) -> None:
        _ = self.dismiss(event.value.strip())

    def action_leave(self) -> None:
        _ = self.dismiss(None)


class Write(Dialog[bool]):
    """A text of several lines to write, to paste, or to edit in the person's own editor. True: the person sends it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+s", "send", "send", key_display="^s", priority=True),
        Binding("ctrl+o", "open_editor", "open in your editor", key_display="^o", priority=True),
        Binding("escape", "leave", "back"),
    ]

    def __init__(
        self, question: str, draft: Draft, edit: Callable[[Draft], str], problem: str = "", *, words: str = ""
    ) -> None:
        """`words` are a planner's; they stand above the question, marked."""
        super().__init__()
        self._words = words
        self._question = question
        self._draft = draft
        self._edit = edit
        self._problem = problem

    def compose(self) -> ComposeResult:
        with Vertical(classes="written"):
            if self._words:
                yield _Words(self._words, classes="question")
            yield _Question(Text(self._question), classes="question")
            yield Static(Text(self._problem, style="red"), id="problem")
            yield TextArea(self._draft.text, compact=True)
        yield Keys()

    @property
    def _area(self) -> TextArea:
        return self.query_one(TextArea)

    def action_send(self) -> None:
        if self.is_answered():
            self._leave(is_sent=True)

    def action_leave(self) -> None:
        self._leave(is_sent=False)

    def action_open_editor(self) -> None:
        """Give the terminal to the editor; what it leaves takes the place of the text."""
        self._draft.text = self._area.text
        problem = self._edit(self._draft)
        self._area.load_text(self._draft.text)
        self._draft.discard()
        self.query_one("#problem", Static).update(Text(one_line(problem), style="red"))

    def _leave(self, *, is_sent: bool) -> None:
        self._draft.text = self._area.text
        _ = self.dismiss(is_sent)


class _Choices(Lines):
    """Rows of which each is taken or left."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space,enter", "screen.take_or_leave", "take or leave", key_display="space")
    ]


class Take(Dialog[Sequence[int]]):
    """Names of which some are taken, by their places, above what the selected one stands for.

    None of them: the person went back.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "take", "these"),
        Binding("i", "invert", "invert"),
        Binding("escape,q", "leave", "back", key_display="q"),
    ]

    def __init__(
        self, title: str, names: Sequence[str], notes: Sequence[str], contents: Sequence[MakeContent]
    ) -> None:
        super().__init__()
        self._contents = contents
        self._heading = title
        self._names = names
        self._notes = notes
        self._taken = set(range(len(names)))

    def compose(self) -> ComposeResult:
        yield _Choices(id="choices")
        yield Lines(id="lines")
        yield Keys()

    def on_mount(self) -> None:
        self._show()

    @on(Lines.Selected, "#choices")
    def choose(self, event: Lines.Selected) -> None:
        event.stop()
        self.query_one("#lines", Lines).show(self._contents[event.key], is_new=True)

    def _show(self) -> None:
        self.query_one(_Choices).show(self._content)

    def _content(self, width: int) -> Content:
        rows = [
            Row(Text(f"[{'x' if at in self._taken else ' '}] {one_line(name)}  {note}", no_wrap=True), at)
            for at, (name, note) in enumerate(zip(self._names, self._notes, strict=True))
        ]
        counted = f"{self._heading}  {len(self._taken):,} of {len(rows):,}"
        return Content(rows, Text(counted, no_wrap=True))

    def action_take_or_leave(self) -> None:
        at = self.query_one(_Choices).selected
        self._taken ^= set() if at is None else {at}
        self._show()

    def action_invert(self) -> None:
        self._taken ^= set(range(len(self._names)))
        self._show()

    def action_take(self) -> None:
        if self.is_answered():
            _ = self.dismiss(sorted(self._taken))

    def action_leave(self) -> None:
        _ = self.dismiss([])


class _Choice(Dialog[Answer]):
    """A question that is answered by a key. Enter answers nothing."""

    def __init__(self, question: str) -> None:
        super().__init__()
        self._question = question

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield _Question(Text(self._question), classes="question")
        yield Keys()

    def action_answer(self, answer: Answer) -> None:
        if self.is_answered():
            _ = self.dismiss(answer)


class Scope(_Choice[str | None]):
    """Where a rule holds: `mission`, `user`, or nowhere."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("m", "answer('mission')", "this mission"),
        Binding("u", "answer('user')", "all of yours"),
        Binding("n,escape,q", "answer(None)", "no rule", key_display="n"),
    ]


class Confirm(_Choice[bool]):
    """A question of yes or no."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "yes"),
        Binding("n,escape,q", "answer(False)", "no", key_display="n"),
    ]
