"""A request is sent again where that can help, never for ever, and never longer than there is time."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.tables import table

from lcp_engine.features.models.endpoints.chat import Completion
from lcp_engine.features.models.endpoints.complete import Pace, Times, insist
from lcp_engine.features.models.endpoints.deadline import Deadline
from lcp_engine.features.models.endpoints.errors import Again, Trouble

DONE = Completion("done")


@dataclass
class Scene:
    """A clock that only sleeping moves, and a server that gives these outcomes in order, the last one for ever."""

    outcomes: Sequence[Completion | Trouble]
    now: float = 0.0
    naps: list[float] = field(default_factory=list)
    asked: int = 0

    def play(self, *, deadline: float = 1e9) -> Completion | Trouble:
        times = Times(clock=lambda: self.now, sleep=self._sleep, random=random.Random(1))
        return insist(self._send, pace=Pace(), times=times, deadline=Deadline.after(deadline, 0.0))

    def _send(self) -> Completion | Trouble:
        self.asked += 1
        return self.outcomes[min(self.asked, len(self.outcomes)) - 1]

    def _sleep(self, seconds: float) -> None:
        self.naps.append(seconds)
        self.now += seconds


def trouble(again: Again, retry_after: float | None = None) -> Trouble:
    return Trouble("here: x", again, 500, retry_after=retry_after)


@table(("again", "asked"), [(Again.NEVER, 1), (Again.ONCE, 2), (Again.BACK_OFF, 4), (Again.LOADING, 81)])
def test_every_kind_of_trouble_has_an_end(again: Again, asked: int) -> None:
    scene = Scene([trouble(again)])
    assert isinstance(scene.play(), Trouble)
    assert scene.asked == asked
    assert scene.now <= 240


def test_pauses_grow_and_are_not_all_the_same() -> None:
    scene = Scene([trouble(Again.BACK_OFF)])
    scene.play()
    for nap, longest in zip(scene.naps, (0.5, 1.0, 2.0), strict=True):
        assert longest / 2 <= nap <= longest


@table(("retry_after", "naps"), [(0.0, [0.0]), (60.0, [60.0]), (61.0, [])])
def test_a_server_may_ask_for_a_minute_and_not_for_more(retry_after: float, naps: list[float]) -> None:
    scene = Scene([trouble(Again.BACK_OFF, retry_after), DONE])
    assert (scene.play() == DONE) is bool(naps)
    assert scene.naps == naps


def test_no_pause_goes_beyond_the_deadline() -> None:
    scene = Scene([trouble(Again.BACK_OFF, 50.0)])
    said = scene.play(deadline=60.0)
    assert scene.naps == [50.0]
    assert isinstance(said, Trouble)
    assert said.message == "here: x (after 2 tries)"


def test_loading_does_not_use_up_the_tries() -> None:
    outcomes = [trouble(Again.LOADING)] * 30 + [trouble(Again.BACK_OFF)] * 3 + [DONE]
    assert Scene(outcomes).play() == DONE
