"""Run commands and other programs behind a wall, and keep what they change."""

from __future__ import annotations

from lcp_engine.feature import Feature

EXECUTION = "lcp_engine.runner.commands:EXECUTION"
FEATURE = Feature(
    "programs",
    needs=("models", "universal"),
    engine_kinds={"apply": ("lcp_engine.workers.apply:APPLY", "lcp_engine.changes.held_changes:CARRIED_OUT")},
    command_execution=EXECUTION,
    chores=("lcp_engine.changes.held_changes:chores",),
    foreign_programs="lcp_engine.runner.confined.programs:FOREIGN_PROGRAMS",
    file_of_kinds="lcp_engine.workers.load_files:load_workers",
    kind_of_program="lcp_engine.workers.load_files:register_program",
    kinds={"run_command": "lcp_engine.workers.run_command:WORKER"},
    commands={
        "shell": (
            "Inspect",
            "lcp_engine.cli.shell:shell_command",
            "Open a shell in what a command of a mission sees.",
        ),
    },
)
