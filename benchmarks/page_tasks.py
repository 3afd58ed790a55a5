"""Count the clicks, keys and scrolled pixels that ten tasks take on the page, and take pictures of its pages.

`python -m benchmarks.page_tasks` prints a table; `--pictures DIRECTORY` adds each page in two widths and schemes. With
`PYTHONPATH` set to the `src` of another commit, the page is that commit's. It needs Chromium.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, chdir, contextmanager
from dataclasses import dataclass
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.sync_api import Browser, Locator, Page, sync_playwright
from pydantic import JsonValue

from lcp_engine import Engine
from lcp_engine.web.server import PageServer

HAS_REVIEW = find_spec("lcp_engine.web.pages.review") is not None
"""Files of a held job are reviewed one by one; earlier pages have their ways below, too."""
CHROMIUM = shutil.which("chromium-headless-shell") or shutil.which("chromium")
SETTLED_MS = 700
"""A press counts once what it decides on has been on the screen for half a second."""
FRAME_MS = 200
WORD_SECONDS = 0.2
THOUGHTS = "The log of the night has three errors; the first is a time-out of the mail server. "
WIDTHS, HEIGHT = (1280, 390), 800
BRING = """(node) => {
    const boxes = [];
    for (let at = node.parentElement; at; at = at.parentElement) boxes.push(at);
    const before = boxes.map((box) => box.scrollTop);
    const isClear = () => {
        const { left, top, width, height } = node.getBoundingClientRect();
        const hit = document.elementFromPoint(left + width / 2, top + height / 2);
        return hit && (node.contains(hit) || hit.closest("label")?.contains(node));
    };
    if (!isClear()) node.scrollIntoView({ block: "nearest" });
    if (!isClear()) node.scrollIntoView({ block: "center" });
    return boxes.reduce((sum, box, at) => sum + Math.abs(box.scrollTop - before[at]), 0);
}"""
"""Scroll until an element is in view and nothing covers it; how far."""
READ = """(selector) => {
    const wasRead = (window.wasRead ??= new WeakSet());
    const bar = document.querySelector(".verdict")?.getBoundingClientRect();
    const end = bar && bar.top > 0 && bar.bottom <= innerHeight + 1 ? bar.top : innerHeight;
    const moved = (box, by) => { const from = box.scrollTop; box.scrollTop += by; return box.scrollTop - from; };
    for (const text of document.querySelectorAll(selector)) {
        if (wasRead.has(text) || !text.checkVisibility()) continue;
        const below = text.getBoundingClientRect().bottom - end;
        if (below > 0) return moved(document.scrollingElement, Math.min(below + 1, innerHeight * 0.6)) || -1;
        if (text.matches(".rest")) return 0;
        const inside = moved(text, text.clientHeight * 0.8);
        if (inside > 0) return inside;
        wasRead.add(text);
    }
    return -1;
}"""
"""Scroll on by a part of the window towards the first text that was not read to its end; how far, or -1 at the end."""


@dataclass
class Hand:
    """A person who knows the page: does the next thing, and counts."""

    page: Page
    clicks: int = 0
    keys: int = 0
    pixels: float = 0

    def click(self, target: Locator, *, at_number: bool = False) -> None:
        self.bring(target)
        self.page.wait_for_timeout(SETTLED_MS)
        target.click(position={"x": 5, "y": 5} if at_number else None)
        self.clicks += 1

    def press(self, key: str) -> None:
        self.page.keyboard.press(key)
        self.keys += 1

    def write(self, text: str) -> None:
        self.page.keyboard.type(text)
        self.keys += len(text)

    def bring(self, target: Locator) -> None:
        target.wait_for()
        self.pixels += target.evaluate(BRING)

    def read(self, *on_the_way: Locator) -> None:
        """Scroll through all diffs; boxes that come into view on the way are clicked."""
        left = list(on_the_way)
        for folded in self.page.locator(".diff:not([open]) > summary:visible").all()[::-1]:
            self.click(folded)
        self.page.wait_for_timeout(SETTLED_MS)
        while (moved := self.page.evaluate(READ, ".diff > pre, .rest")) >= 0 or left:
            self.pixels += max(moved, 0)
            self.page.wait_for_timeout(FRAME_MS)
            for box in [box for box in left if moved < 0 or _is_in_window(box)]:
                self.click(box)
                left.remove(box)

    def decide(self, button: Locator) -> None:
        """Press a button that decides, once more if it says that something was not seen."""
        self.click(button)
        self.page.locator(".armed, #flash").first.wait_for()
        if self.page.locator(".armed").count():
            self.click(self.page.locator(".armed"))
        self.page.locator("#flash").wait_for()

    def open(self, mission: str) -> None:
        self.click(self.page.get_by_role("link", name=mission, exact=True))

    def open_inbox(self, mission: str) -> None:
        row = self.page.locator("tr, .card", has=self.page.get_by_role("link", name=mission, exact=True))
        self.click(row.get_by_role("link", name="Decide on"))

    def open_job(self, mission: str) -> None:
        self.open_inbox(mission)
        self.click(self.page.locator(".held-job :is(h2, h3) a").first)


def _is_in_window(box: Locator) -> bool:
    place = box.bounding_box() if box.count() else None
    return place is not None and 0 <= place["y"] < HEIGHT * 0.8


# -- The tasks, each from the list of missions on. The page before the review is left with these ways of its own.


def approve_but_two_hunks(hand: Hand) -> None:
    page = hand.page
    hand.open_job("move-constants")
    places = (("src/mod03.py", 2), ("src/mod30.py", 3))
    if HAS_REVIEW:
        files = [(page.locator(".reviewed", has_text=path), hunk) for path, hunk in places]
        hand.read(*(file.get_by_role("checkbox", name=f"hunk {hunk}") for file, hunk in files))
    else:
        hand.read()
        hand.click(page.locator("#take > summary"))
        for path, hunk in places:
            hand.click(page.locator("#take .part", has_text=f"of {path}").nth(hunk - 1))
    hand.decide(page.locator("#approve button.primary"))


def send_back_with_two_comments(hand: Hand) -> None:
    page = hand.page
    hand.open_job("fix-typos")
    said = (("src/mod43.py", "Keep the old name."), ("src/mod49.py", "Is this tested?"))
    for path, words in said:
        if HAS_REVIEW:
            hand.click(page.locator(".file-list a", has_text=path))
            hand.click(page.locator(".reviewed", has_text=path).locator(".add").nth(1), at_number=True)
            hand.write(words)
        else:
            hand.bring(page.locator(".diff", has_text=path).locator(".hunk").nth(1))
    if HAS_REVIEW:
        hand.click(page.locator("#back > summary"))
        hand.decide(page.get_by_role("button", name="Reject all of it"))
    else:
        hand.click(page.locator("#reason"))
        hand.write("\n".join(f"{path}, line 17: {words}" for path, words in said))
        hand.decide(page.locator("#reject button"))


def approve_all_writes_but_one(hand: Hand) -> None:
    page = hand.page
    hand.open_inbox("rename-key")
    hand.click(page.locator(".batch .tick").first)
    left_out = page.locator(".held-job", has_text="src/mod56.py")
    for job in page.locator(".held-job").all() if HAS_REVIEW else ():
        hand.press("j")
        hand.press("d")
        is_left_out = job.get_attribute("id") == left_out.get_attribute("id")
        hand.read(*([left_out.get_by_role("checkbox")] if is_left_out else ()))
    if not HAS_REVIEW:
        hand.read(left_out.get_by_role("checkbox"))
    hand.decide(page.locator("#batch button.primary"))


def find_why_a_mission_failed(hand: Hand) -> None:
    hand.open("check-links")
    hand.bring(hand.page.locator(".note.bad").first)


def see_who_approved_what(hand: Hand) -> None:
    page = hand.page
    hand.open("licence-headers")
    hand.click(page.get_by_role("link", name="History", exact=True))
    decided = page.locator("tr", has_text="decided")
    decided.first.wait_for()
    for at in range(decided.count()):
        hand.bring(decided.nth(at).locator("td").last)


def see_who_decided_last_week(hand: Hand) -> None:
    page = hand.page
    hand.click(page.get_by_role("link", name="Decisions", exact=True))
    hand.click(page.get_by_role("link", name="last week", exact=True))
    decided = page.locator("tbody tr")
    decided.first.wait_for()
    for at in range(decided.count()):
        hand.bring(decided.nth(at).locator("td").nth(2))


def answer_a_question(hand: Hand) -> None:
    hand.open_inbox("choose-licence")
    hand.click(hand.page.get_by_label("MIT", exact=True))
    hand.decide(hand.page.get_by_role("button", name="Answer"))


def find_who_wrote_a_file(hand: Hand) -> None:
    page = hand.page
    hand.click(page.get_by_role("link", name="Jobs", exact=True))
    hand.click(page.locator("#text"))
    hand.write("INVENTORY")
    hand.press("Enter")
    hand.click(page.locator("tr", has_text="write_file").locator("[data-label=Mission] a"))


def stop_a_mission(hand: Hand) -> None:
    hand.open("add-types")
    hand.click(hand.page.locator("#cancel > summary"))
    hand.decide(hand.page.locator("#cancel button"))


def launch_a_shipped_mission(hand: Hand) -> None:
    page = hand.page
    hand.click(page.get_by_role("link", name="Launch a mission"))
    hand.click(page.locator("[value=document]"))
    if not HAS_REVIEW:
        hand.click(page.get_by_text("Variables of document", exact=True))
    hand.click(page.locator("[name='document.module']"))
    hand.write("src")
    hand.bring(page.locator("#planner"))
    page.locator("#planner").focus()
    hand.clicks += 1
    hand.write("human")
    hand.decide(page.get_by_role("button", name="Launch"))


def see_what_a_model_writes(hand: Hand) -> None:
    hand.open("summarise-logs")
    hand.bring(hand.page.locator(".draft").first)


def undo_a_mission(hand: Hand) -> None:
    hand.open("take-inventory")
    hand.click(hand.page.get_by_role("link", name="Undo this mission"))
    hand.read()
    hand.decide(hand.page.locator("button.danger"))


TASKS: Mapping[str, Callable[[Hand], None]] = {
    "read and approve a merge of 40 files but two hunks": approve_but_two_hunks,
    "send a merge back with two comments, each on a line": send_back_with_two_comments,
    "read and approve all six writes of a mission but one": approve_all_writes_but_one,
    "find why a mission failed": find_why_a_mission_failed,
    "see who approved what of a mission": see_who_approved_what,
    "answer a question": answer_a_question,
    "find which mission wrote a file": find_who_wrote_a_file,
    "stop a mission": stop_a_mission,
    "launch a shipped mission with a variable": launch_a_shipped_mission,
    "undo what a mission has changed": undo_a_mission,
    **(
        {
            "see who approved what last week, in all missions": see_who_decided_last_week,
            "see what a model is writing now": see_what_a_model_writes,
        }
        if HAS_REVIEW
        else {}
    ),
}


# -- What there is to decide and to see


def furnish(engine: Engine, root: Path) -> None:
    """Missions of which each task needs one, among others."""
    (root / "src").mkdir()
    for number in range(64):
        (root / _module(number)).write_text(_text(number))
    launch = partial(_launch, engine, root)
    for number in range(8):
        launch(f"survey-{number}", "Describe the project.", [_jobs(*map(_read, range(3 + number)))])
    writes = [_write(number) for number in range(64)]
    launch(
        "move-constants",
        "Move the constants of every fifth function by 100.",
        [_jobs(*writes[:40])],
        stage=True,
    )
    launch("fix-typos", "Mend typos in names.", [_jobs(*writes[40:52])], stage=True)
    launch("rename-key", "Rename the key `timeout` to `deadline`.", [_jobs(*writes[52:58])])
    launch("add-types", "Annotate all public functions.", [_jobs(*writes[58:60])])
    missing: JsonValue = {"kind": "read_file", "params": {"rel_path": "docs/x.md"}}
    launch("check-links", "Mend links that lead nowhere.", [_jobs(missing)], on_job_failure="fail")
    question: JsonValue = {
        "question": "Which licence do the new files get?",
        "options": ["MIT", "Apache-2.0"],
    }
    launch("choose-licence", "Add a licence.", [_jobs({"kind": "ask_user", "params": question})])
    launch("licence-headers", "Put the licence at the head of each file.", [_jobs(*writes[60:])])
    inventory: JsonValue = {"rel_path": "INVENTORY.md", "content": "# Inventory\n\n- 64 modules\n"}
    launch("take-inventory", "List the modules.", [_jobs({"kind": "write_file", "params": inventory})],
           policy=[{"kinds": ["write_file"], "do": "auto"}])  # fmt: skip
    for number in range(8):
        launch(f"audit-{number}", "List what is left to do.", [_jobs(*map(_read, range(3 + number)))])
    engine.work(until_idle=True)
    headers = [
        one.id
        for one in engine.jobs(states=["held"])
        if engine.mission(one.mission_id).name == "licence-headers"
    ]
    for job in headers:
        engine.approve(job)
    engine.work(until_idle=True)


def launch_with(engine: Engine, root: Path, model: str) -> None:
    """A mission whose planner is a model."""
    planner: dict[str, JsonValue] = {
        "type": "openai",
        "base_url": model,
        "model": "tiny",
        "context_tokens": 32_000,
    }
    spec: dict[str, JsonValue] = {
        "name": "summarise-logs",
        "goal": "Summarise the logs of last night.",
        "planner": planner,
    }
    engine.launch(spec, root=root)


def _launch(
    engine: Engine, root: Path, name: str, goal: str, replies: list[JsonValue], **more: JsonValue
) -> None:
    done: JsonValue = {"ok": True, "action": "mission_complete", "summary": "All done; nothing is left."}
    planner: dict[str, JsonValue] = {"type": "script", "replies": [*replies, done]}
    limits: JsonValue = {"max_followups": 50}
    engine.launch({"name": name, "goal": goal, "planner": planner, "limits": limits, **more}, root=root)


def _jobs(*jobs: JsonValue) -> JsonValue:
    words = "I change the modules one by one, and touch nothing else."
    return {"ok": True, "action": "create_followup_jobs", "commentary": words, "new_jobs": [*jobs]}


def _module(number: int) -> str:
    return f"src/mod{number:02}.py"


def _text(number: int, more: int = 0) -> str:
    returned = (n + (more if n % 5 == number % 5 else 0) for n in range(20))
    return "\n".join(f"def function_{n}(x):\n    return x + {value}\n" for n, value in enumerate(returned))


def _read(number: int) -> JsonValue:
    return {"kind": "read_file", "params": {"rel_path": _module(number)}}


def _write(number: int) -> JsonValue:
    return {"kind": "write_file", "params": {"rel_path": _module(number), "content": _text(number, 100)}}


@contextmanager
def thinking_model() -> Iterator[str]:
    """The address of a model that thinks, word by word, until the end."""
    ended = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            if not self.path.endswith("/completions"):
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            self._say("<think>")
            for word in cycle(THOUGHTS.split()):
                if ended.wait(WORD_SECONDS):
                    break
                self._say(f"{word} ")
            self._say(
                "</think>" + json.dumps({"ok": True, "action": "mission_complete", "summary": "Read."}),
                "stop",
            )

        def _say(self, words: str, reason: str | None = None) -> None:
            part = {"choices": [{"delta": {"content": words}, "finish_reason": reason}]}
            self.wfile.write(f"data: {json.dumps(part)}\n\n".encode())

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the name of the library
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/v1"
        finally:
            ended.set()
            server.shutdown()


# -- The run


@contextmanager
def _running(run: Callable[[], None], stop: Callable[[], None]) -> Iterator[None]:
    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop()
        thread.join()


def _take_pictures(browser: Browser, link: str, engine: Engine, place: Path) -> None:
    """Each page in each width and scheme, with how far it can be scrolled sideways."""
    missions = {one.name: one.id for one in engine.missions(limit=50)}
    held = {one.mission_id: one.id for one in reversed(engine.jobs(states=["held"]))}
    staged, renamed, asked = (missions[name] for name in ("move-constants", "rename-key", "choose-licence"))
    headers, failed, written = (
        missions[name] for name in ("licence-headers", "check-links", "summarise-logs")
    )
    pages = {
        "missions": "/", "inbox": f"/inbox?mission={renamed}", "inbox-all": f"/inbox/all?mission={renamed}",
        "review": f"/jobs/{held[staged]}", "job": f"/jobs/{held[renamed]}", "edit": f"/jobs/{held[renamed]}/edit",
        "question": f"/jobs/{held[asked]}", "mission": f"/missions/{headers}", "failed": f"/missions/{failed}",
        "writing": f"/missions/{written}", "timeline": f"/missions/{headers}/timeline",
        "plan": f"/missions/{headers}/plan", "changes": f"/missions/{headers}/changes",
        "history": f"/missions/{headers}/history", "report": f"/missions/{headers}/report",
        "settings": f"/missions/{headers}/settings", "turn": f"/missions/{headers}/questions/1",
        "undo": f"/missions/{headers}/undo", "fork": f"/missions/{headers}/fork", "jobs": "/jobs", "kinds": "/kinds",
        "kind": "/kinds/write_file", "launch": "/launch", "launch-own": "/launch/own", "memory": "/memory",
        "overview": "/overview", "decisions": "/decisions",
    }  # fmt: skip
    page = browser.new_page()
    page.goto(link)
    for name, path in pages.items():
        page.goto(link.partition("/?")[0] + path)
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": HEIGHT})
            for scheme in ("light", "dark"):
                page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
                page.wait_for_timeout(FRAME_MS)
                page.screenshot(path=place / f"{name}-{width}-{scheme}.png")
            if over := page.evaluate("document.scrollingElement.scrollWidth - innerWidth"):
                print(f"{name} at {width} px: {over} px wider than its window")
    page.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.page_tasks", description=__doc__)
    parser.add_argument("--pictures", type=Path, help="the directory for pictures of the pages")
    parser.add_argument("--only", default="", help="the tasks that have these words")
    options = parser.parse_args()
    pictures: Path | None = options.pictures and options.pictures.absolute()
    with ExitStack() as stack:
        place = Path(stack.enter_context(TemporaryDirectory()))
        root = place / "project"
        root.mkdir()
        stack.enter_context(chdir(root))
        os.environ["XDG_STATE_HOME"] = str(place / "state")
        browser = stack.enter_context(sync_playwright()).chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox"]
        )
        engine = stack.enter_context(Engine(f"sqlite:///{place / 'lcp.db'}"))
        furnish(engine, root)
        server, runner = PageServer(engine, port=0), engine.runner(threads=2)
        stack.enter_context(_running(server.run, server.stop))
        stack.enter_context(_running(runner.run, runner.stop))
        launch_with(engine, root, stack.enter_context(thinking_model()))
        if pictures:
            pictures.mkdir(parents=True, exist_ok=True)
            _take_pictures(browser, server.link, engine, pictures)
        page = browser.new_page(viewport={"width": WIDTHS[0], "height": HEIGHT})
        page.goto(server.link)
        print("| task | clicks | keys | pixels |\n|---|---|---|---|")
        for name, do in TASKS.items():
            if options.only in name:
                page.goto(server.link.partition("/?")[0])
                do(hand := Hand(page))
                print(f"| {name} | {hand.clicks} | {hand.keys} | {hand.pixels:,.0f} |", flush=True)
        browser.close()


if __name__ == "__main__":
    main()
