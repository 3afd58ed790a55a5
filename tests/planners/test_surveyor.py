"""The surveyor describes any tree, and keeps the rules of the protocol while it does."""

from __future__ import annotations

import json
import os
import sysconfig
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from conftest_planners import KINDS, Run, Survey, ask, drive, numbered, settled
from markdown_it import MarkdownIt
from pydantic import JsonValue

from lcp_engine.planners.base import Correction, JobResult, Question
from lcp_engine.planners.surveyor import Surveyor
from lcp_engine.protocol.actions import (
    AnalysisResult,
    CreateFollowupJobs,
    ErrorAction,
    JobSpec,
    Malformed,
    MissionComplete,
    Problem,
)
