"""The full-screen program: its views, its keys, and what happens between them."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Awaitable, Coroutine, Sequence
from datetime import UTC, datetime
from typing import ClassVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult, SuspendNotSupported
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import ContentSwitcher, Static

from lcp_engine.api.engine import Engine
from lcp_engine.cli.console.editor import Draft
from lcp_engine.cli.console.exits import Exit
from lcp_engine.cli.tables import mark_of
from lcp_engine.core.json_values import object_in
from lcp_engine.core.safe_text import one_line, sentence, shortened
from lcp_engine.core.summaries import age
from lcp_engine.errors import Failed, LcpError
from lcp_engine.features.top.dialogs import Answer, Ask, Confirm, Dialog, Scope, Take, Whole, Write
from lcp_engine.features.top.frames import FramedApp
from lcp_engine.features.top.inbox_view import InboxView
from lcp_engine.features.top.keys import Keys
from lcp_engine.features.top.missions_view import MissionsView
from lcp_engine.features.top.shown_job import content_of_done, content_of_mission
from lcp_engine.features.top.watch import Report, Snapshot, Watch

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""They leave the terminal as it was."""
STYLES = """
Screen { background: ansi_default; color: ansi_default; }
#head { height: 1; text-wrap: nowrap; text-overflow: ellipsis; }
#note { height: auto; min-height: 1; max-height: 3; }
#missions, #held { height: 2fr; }
#tree, #detail { height: 3fr; border-top: solid ansi_bright_black; }
#tree:focus, #detail:focus { border-top: solid ansi_default; }
ContentSwitcher { height: 1fr; }
ModalScreen { align: center middle; background: ansi_default; }
.dialog { width: 100%; max-width: 100; height: auto; max-height: 100%; border: round ansi_default; padding: 0 1; }
.dialog Input { border: none; height: 1; padding: 0; margin-top: 1; }
.question { height: auto; }
.written { width: 100%; height: 1fr; }
#problem { height: auto; }
TextArea, TextArea:focus { border: none; background: ansi_default; color: ansi_default; }
TextArea .text-area--cursor-line { background: ansi_default; }
"""


class Top(FramedApp):
    """`lcp top`. Its return value is an exit code."""

    CSS = STYLES
    TITLE = "lcp top"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("1", "view('missions')", "missions", show=False),
        Binding("2", "view('inbox')", "inbox", show=False),
        Binding("q", "leave", "quit"),
        Binding("ctrl+c", "interrupt", "interrupt", show=False, priority=True),
        Binding("ctrl+q", "leave", "quit", show=False),
    ]

    class Looked(Message):
        """The database was looked at."""

        def __init__(self, report: Report) -> None:
            super().__init__()
            self.report = report

    def __init__(self, engine: Engine) -> None:
        super().__init__()
        self.theme = "ansi-dark"
        self.missions = MissionsView(id="missions-view")
        self.inbox = InboxView(self, id="inbox-view")
        self._views = ContentSwitcher(self.missions, self.inbox, initial="missions-view")
        self._head = Static(id="head")
        self._note = Static(id="note")
        self._engine = engine
        self._watch = Watch(engine, self._report)
        self._snapshot = Snapshot()
        self._is_away = False
        self._ages: tuple[str, ...] = ()
        self._is_busy = False
        self.defect: Exception | None = None
        """What ended the program, if that was unexpected."""

    @property
    def engine(self) -> Engine:
        return self._engine

    def compose(self) -> ComposeResult:
        yield self._head
        yield self._views
        yield self._note
        yield Keys()

    def on_mount(self) -> None:
        for number in _SIGNALS:
            asyncio.get_running_loop().add_signal_handler(number, self.action_interrupt)
        self._show_head()
        self.missions.missions.focus()
        self._watch.start()

    def on_unmount(self) -> None:
        self._watch.stop()
        for number in _SIGNALS:
            asyncio.get_running_loop().remove_signal_handler(number)

    # -- What the watch finds

    def _report(self, report: Report) -> None:
        """Called in the thread of the watch."""
        self.post_message(self.Looked(report))

    @on(Looked)
    def show(self, event: Looked) -> None:
        report = event.report
        if isinstance(report, Failed):
            self._is_away = True
            self.note(report.message, is_problem=True)
            self._show_head()
            return
        if isinstance(report, Exception):
            self.defect = report
            self.exit(Exit.FAILED)
            return
        was_away, self._is_away = self._is_away, False
        if was_away:
            self.note("the database answers again")
        if report is not None:
            self._snapshot = report
            self.missions.show(report)
            self.inbox.show(report)
        else:
            self._tick()
        if report is not None or was_away:
            self._show_head()

    def _tick(self) -> None:
        """Ages grow without events."""
        now = datetime.now(UTC)
        rows = (*self._snapshot.missions, *(one.job for one in self._snapshot.held))
        ages = tuple(age(str(row["created_at"]), now) for row in rows)
        if ages != self._ages:
            self._ages = ages
            self._show_view()

    def _show_view(self) -> None:
        if self._views.current == "missions-view":
            self.missions.show(self._snapshot)
        else:
            self.inbox.redraw()

    def _show_head(self) -> None:
        head = Text("lcp top", style="bold", no_wrap=True, overflow="ellipsis")
        current = self._views.current
        waiting = self._snapshot.held_count
        for view, label in (("missions-view", "1 missions"), ("inbox-view", f"2 inbox ({waiting:,})")):
            calls = "bold yellow" if view == "inbox-view" and waiting else "not bold"
            head.append("  ").append(f" {label} ", style="not bold reverse" if view == current else calls)
        if self._is_away:
            head.append("  the database does not answer", style="not bold red")
        else:
            head.append(f"  {self._state()}", style="not bold dim")
        self._head.update(head)

    def _state(self) -> str:
        """State of the runners, in short."""
        if self._snapshot.runners:
            return f"{self._snapshot.runners:,} runner{'s' if self._snapshot.runners > 1 else ''}"
        waits = any(
            object_in(mission["jobs"]).get(state)
            for mission in self._snapshot.missions
            for state in ("queued", "running")
        )
        return "no runner works: start `lcp work`" if waits else ""

    @on(MissionsView.Chosen)
    def choose(self, event: MissionsView.Chosen) -> None:
        self._watch.select(event.mission_id)

    # -- What the keys do

    def action_view(self, name: str) -> None:
        self._views.current = f"{name}-view"
        (self.missions.missions if name == "missions" else self.inbox.jobs).focus()
        self._show_view()
        self._show_head()

    def action_leave(self) -> None:
        self.exit(Exit.DONE)

    def action_interrupt(self) -> None:
        self.exit(Exit.INTERRUPTED)

    @on(MissionsView.Opened)
    def open(self, event: MissionsView.Opened) -> None:
        if self.inbox.open(event.job_id):
            self.action_view("inbox")
        else:
            self.begin(self._show_job(event.job_id))

    @on(MissionsView.DiffWanted)
    def show_diff(self, event: MissionsView.DiffWanted) -> None:
        self.begin(
            self._show_mission(event.mission_id) if event.job_id is None else self._show_job(event.job_id)
        )

    @on(MissionsView.CancelWanted)
    def cancel(self, event: MissionsView.CancelWanted) -> None:
        self.begin(self._cancel(event.mission_id))

    async def _show_job(self, job_id: int) -> None:
        job = await asyncio.to_thread(self._engine.job, job_id)
        make = await asyncio.to_thread(content_of_done, self._engine, job)
        title = f"job {job.id}: {one_line(job.kind)} {self._engine.subject(job)}  {job.state}"
        await self._open(Whole(title, make, may_approve=False))

    async def _show_mission(self, mission_id: int) -> None:
        make = await asyncio.to_thread(content_of_mission, self._engine, mission_id)
        if make is None:
            self.note(f"mission {mission_id} has changed no files")
        else:
            await self._open(Whole(f"mission {mission_id}: what it changed", make, may_approve=False))

    async def _cancel(self, mission_id: int) -> None:
        mission = await asyncio.to_thread(self._engine.mission, mission_id)
        if mission.status.has_ended:
            self.note(
                f"mission {mission_id} is {mission.status}; only a mission that runs or waits can be cancelled"
            )
            return
        goal = f"{mark_of(sys.__stderr__)}{shortened(sentence(mission.goal), 60)}"
        if await self._open(Confirm(f"Cancel mission {mission_id}?\n{goal}")):
            is_new = await asyncio.to_thread(self._engine.cancel, mission_id)
            self.note(f"mission {mission_id} {'cancelled' if is_new else 'was already cancelled'}")
            self.look()

    # -- What the views need

    def note(self, text: str, *, is_problem: bool = False) -> None:
        style = "red" if is_problem else ""
        self._note.update(Text(sentence(text), style=style))

    def begin(self, deed: Coroutine[object, object, None]) -> None:
        if self._is_busy:
            deed.close()
            return
        self._is_busy = True
        self.run_worker(self._do(deed))

    async def _do(self, deed: Coroutine[object, object, None]) -> None:
        self.note("")
        try:
            await self.guard(deed)
        finally:
            self._is_busy = False

    async def guard(self, deed: Awaitable[None]) -> None:
        try:
            await deed
        except LcpError as refused:
            self.note(str(refused), is_problem=True)
            self.look()
        except Exception as defect:  # noqa: BLE001  # the command says it, with the terminal as it was
            self.defect = defect
            self.exit(Exit.FAILED)

    def look(self) -> None:
        self._watch.look()

    async def _open(self, dialog: Dialog[Answer]) -> Answer:
        """Answer of the person. After that keys are for what is shown when the dialog is gone."""
        try:
            return await self.push_screen_wait(dialog)
        finally:
            self.inbox.detail.expect_frame()

    async def ask(self, dialog: Ask) -> str | None:
        return await self._open(dialog)

    async def confirm(self, dialog: Confirm) -> bool:
        return await self._open(dialog)

    async def show_whole(self, dialog: Whole) -> bool:
        return await self._open(dialog)

    async def write(self, dialog: Write) -> bool:
        return await self._open(dialog)

    async def take(self, dialog: Take) -> Sequence[int]:
        return await self._open(dialog)

    async def scope(self, dialog: Scope) -> str | None:
        return await self._open(dialog)

    def edit(self, draft: Draft) -> str:
        loop = asyncio.get_running_loop()
        loop.remove_signal_handler(signal.SIGINT)  # Ctrl-C is the editor's
        try:
            with self.suspend():
                return _edited(draft)
        except SuspendNotSupported:  # the program is not on a terminal
            return _edited(draft)
        finally:
            loop.add_signal_handler(signal.SIGINT, self.action_interrupt)


def _edited(draft: Draft) -> str:
    try:
        draft.edit()
    except LcpError as refused:
        return str(refused)
    return ""
