"""Read what the manifests of many ecosystems say: name, dependencies, commands."""

from __future__ import annotations

import configparser
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeAlias

from lcp_engine.planners.surveyor.manifests import parsed, scanned
from lcp_engine.planners.surveyor.manifests.model import Manifest

# Scanning may cost the square of the length: more than this of a manifest is not looked at.
_MOST_SCANNED = 64 * 1024


def is_manifest(path: str) -> bool:
    return _reader(path) is not None


def read_manifest(path: str, text: str) -> Manifest | None:
    """What the manifest `path` says; None where it is none or cannot be parsed."""
    reader = _reader(path)
    if reader is None:
        return None
    try:
        found = reader(text[:_MOST_SCANNED] if reader.__module__ == scanned.__name__ else text)
    except (ValueError, RecursionError, configparser.Error):
        return None
    return replace(found, path=path)


_Reader: TypeAlias = Callable[[str], Manifest]
_READERS: Mapping[str, _Reader] = {
    "pyproject.toml": parsed.pyproject,
    "setup.cfg": parsed.setup_cfg,
    "setup.py": scanned.setup_py,
    "Pipfile": parsed.pipfile,
    "package.json": parsed.package_json,
    "Cargo.toml": parsed.cargo_toml,
    "go.mod": scanned.go_mod,
    "pom.xml": scanned.pom_xml,
    "build.gradle": scanned.gradle,
    "build.gradle.kts": scanned.gradle,
    "composer.json": parsed.composer_json,
    "Gemfile": scanned.gemfile,
    "mix.exs": scanned.mix_exs,
    "CMakeLists.txt": scanned.cmake,
    "pubspec.yaml": scanned.pubspec,
    "Package.swift": scanned.package_swift,
}
_BY_SUFFIX: Mapping[str, _Reader] = {
    ".gemspec": scanned.gemspec, ".csproj": scanned.csproj, ".fsproj": scanned.csproj, ".cabal": scanned.cabal,
}  # fmt: skip


def _reader(path: str) -> _Reader | None:
    name = path[path.rfind("/") + 1 :]
    if name.endswith(".txt") and (name.startswith("requirements") or path.startswith("requirements/")):
        return scanned.requirements_txt
    return _READERS.get(name) or _BY_SUFFIX.get(name[name.rfind(".") :] if "." in name else "")
