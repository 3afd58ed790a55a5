"""The lines of keys at the bottom of a screen: all keys, or those that fit, and always the way out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.text import Text
from textual.geometry import Size
from textual.widgets import Static

if TYPE_CHECKING:
    from textual.screen import Screen

_WAYS_OUT = {"q", "escape"}
_SHARE = 4
"""The keys take at most this part of the screen's height, and a line at least."""
_LEFT_OUT = ("…", "")
_GAP = 2

Key = tuple[str, str]
"""A key as it is shown, and what it does."""


class Keys(Static):
    """The keys of the focused widget, its screen and the program, on as many lines as they need."""

    DEFAULT_CSS = "Keys { dock: bottom; height: auto; width: 100%; }"

    def on_mount(self) -> None:
        self.screen.bindings_updated_signal.subscribe(self, self._changed)

    def on_unmount(self) -> None:
        self.screen.bindings_updated_signal.unsubscribe(self)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self._lines(width))

    def render(self) -> Text:
        lines = [
            Text(" " * _GAP).join(Text.assemble((key, "bold"), f" {what}" * bool(what)) for key, what in line)
            for line in self._lines(self.content_size.width)
        ]
        return Text("\n", no_wrap=True, overflow="ellipsis").join(lines)

    def _changed(self, screen: Screen[object]) -> None:
        if self.is_attached and screen is self.screen:
            self.refresh(layout=True)

    def _lines(self, width: int) -> Sequence[Sequence[Key]]:
        shown: dict[str, Key] = {}
        out = ""
        for active in self.screen.active_bindings.values():
            binding = active.binding
            if binding.show and active.enabled:
                shown.setdefault(binding.action, (self.app.get_key_display(binding), binding.description))
                out = binding.action if binding.key in _WAYS_OUT else out
        most = max(1, self.app.size.height // _SHARE)
        way_out = shown.pop(out, None)
        return key_lines([*shown.values()], [] if way_out is None else [way_out], width, most)


def key_lines(keys: Sequence[Key], ways_out: Sequence[Key], width: int, most: int) -> Sequence[Sequence[Key]]:
    """At most so many lines of keys, the way out at the end. What does not fit is left out behind a `…`."""
    lines = _wrapped([*keys, *ways_out], width)
    left = len(keys)
    while len(lines) > most and left:
        left -= 1
        lines = _wrapped([*keys[:left], _LEFT_OUT, *ways_out], width)
    return lines[-most:]


def _wrapped(keys: Sequence[Key], width: int) -> list[list[Key]]:
    lines: list[list[Key]] = [[]]
    room = width
    for key in keys:
        taken = cell_len(" ".join(filter(None, key)))
        if lines[-1] and taken + _GAP > room:
            lines.append([])
            room = width
        room -= taken + _GAP * bool(lines[-1])
        lines[-1].append(key)
    return lines
