"""Contracts of import-linter whose modules are listed elsewhere than in pyproject.toml."""

from __future__ import annotations

from pathlib import Path

from importlinter.contracts.forbidden import ForbiddenContract
from tools.budget import SOURCE, STATED, House, find_names, read_house


class KernelContract(ForbiddenContract):
    """No module of a kernel room imports one of a feature, but for the imports that tools/rooms.toml still lists."""

    type_name = "kernel"

    def __init__(
        self, name: str, session_options: dict[str, object], contract_options: dict[str, object]
    ) -> None:
        house = read_house(STATED.read_text(encoding="utf-8"))
        super().__init__(name, session_options, {**contract_options, **_options(house)})


def _options(house: House) -> dict[str, object]:
    names = find_names(Path.cwd())
    kernel = [name for name in names if house.is_kernel(name)]
    return {
        "source_modules": [_module(name) for name in kernel],
        "forbidden_modules": [_module(name) for name in names if name not in kernel],
        "ignore_imports": [_arrow(one) for room in house.rooms.values() for one in room.imports],
        "unmatched_ignore_imports_alerting": "error",
        "allow_indirect_imports": "true",
        "as_packages": "false",
        "broken_contract_guidance": (
            "A feature imports the kernel, not the other way round: move the code into the feature, or call it "
            f"through a protocol. {STATED} lists the files of both, and the imports that are left."
        ),
    }


def _arrow(stated: str) -> str:
    return " -> ".join(map(_module, stated.split(" -> ")))


def _module(name: str) -> str:
    """`lcp_engine.core.limits.money` for `core/limits/money.py`, `lcp_engine.core` for `core/__init__.py`."""
    return ".".join((SOURCE.name, *Path(name).with_suffix("").parts)).removesuffix(".__init__")
