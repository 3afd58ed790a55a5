"""What is asked or shown over the screen: a text in full, a line to type, a question of yes or no."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Footer, Input, Static

from lcp_engine.cli.top.lines import Content, Lines, MakeContent


class Whole(ModalScreen[bool]):
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
        yield Footer(compact=True, show_command_palette=False)

    def on_mount(self) -> None:
        heading = Text(self._heading, no_wrap=True)
        self.query_one(Lines).show(lambda width: Content(self._make(width).rows, heading), is_new=True)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return self._may_approve if action == "approve" else True

    def action_approve(self) -> None:
        _ = self.dismiss(result=True)

    def action_leave(self) -> None:
        _ = self.dismiss(result=False)

    def action_end(self) -> None:
        self.query_one(Lines).action_edge(1)


class _Field(Input):
    """A line to type."""

    # Its own key, so that it comes after the characters that were typed before it.
    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "submit", "send")]


class Ask(ModalScreen[str | None]):
    """A line to type, below a question. None: the person pressed Escape."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "back")]

    def __init__(self, question: str, problem: str = "", typed: str = "") -> None:
        super().__init__()
        self._question = question
        self._problem = problem
        self._typed = typed

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static(Text(self._question), classes="question")
            if self._problem:
                yield Static(Text(self._problem, style="red"))
            yield _Field(self._typed, compact=True)
        yield Footer(compact=True, show_command_palette=False)

    @on(Input.Submitted)
    def submit(self, event: Input.Submitted) -> None:
        _ = self.dismiss(event.value.strip())

    def action_leave(self) -> None:
        _ = self.dismiss(None)


class Confirm(ModalScreen[bool]):
    """A question of yes or no. Enter answers nothing."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "yes"),
        Binding("n,escape,q", "answer(False)", "no", key_display="n"),
    ]

    def __init__(self, question: str) -> None:
        super().__init__()
        self._question = question

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static(Text(self._question), classes="question")
        yield Footer(compact=True, show_command_palette=False)

    def action_answer(self, is_yes: bool) -> None:  # Textual passes the arguments of a binding by place
        _ = self.dismiss(is_yes)
