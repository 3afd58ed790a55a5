"""Run commands and other programs behind a wall, and keep what they change."""

from __future__ import annotations

from lcp_engine.feature import Feature

EXECUTION = "lcp_engine.features.programs.execution:EXECUTION"
FEATURE = Feature(
    "programs",
    needs=("models", "universal"),
    engine_kinds={
        "apply": (
            "lcp_engine.features.programs.apply_worker:APPLY",
            "lcp_engine.features.programs.held_changes:CARRIED_OUT",
        )
    },
    command_execution=EXECUTION,
    chores=("lcp_engine.features.programs.held_changes:chores",),
    foreign_programs="lcp_engine.features.programs.programs:FOREIGN_PROGRAMS",
    file_of_kinds="lcp_engine.features.programs.servers.load_files:load_workers",
    kind_of_program="lcp_engine.features.programs.servers.load_files:register_program",
    kinds={"run_command": "lcp_engine.features.programs.run_command:WORKER"},
    mission_checks=("lcp_engine.features.programs.run_command:check_mission",),
    settings={
        "commands_read": ("lcp_engine.features.programs.settings:ProgramSettings", ""),
        "commands_network": ("lcp_engine.features.programs.settings:ProgramSettings", ""),
        "commands_wall": ("lcp_engine.features.programs.settings:ProgramSettings", ""),
    },
    findings=("lcp_engine.features.programs.command_trials:examine_walls",),
    commands={
        "shell": (
            "Inspect",
            "lcp_engine.features.programs.commands:shell_command",
            "Open a shell in what a command of a mission sees.",
        ),
    },
)
