"""Read the manifests that a parser exists for: TOML, JSON, INI."""

from __future__ import annotations

import configparser
import json
import re
import tomllib
from collections.abc import Callable, Mapping

from lcp_engine.features.surveyor.builds.manifest import (
    Manifest,
    Table,
    grouped,
    pair,
    prefixed,
    requirements,
    table,
    text_of,
    texts_of,
)

_MOST_TOML = 1024 * 1024
# tomllib keeps every beginning of a dotted key: 50,000 parts in 100 KB take 9.9 GB.
_LONG_KEY = re.compile(r"""(?:\.[ \t]*+(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+){32}""")


def _toml(text: str) -> object:
    """The content. Raises `ValueError`, also if it is too large or a key has too many parts."""
    if len(text) > _MOST_TOML or _LONG_KEY.search(text):
        raise ValueError("too large, or keys of too many parts")
    return tomllib.loads(text)


def _pyproject(text: str) -> Manifest:
    whole = table(_toml(text))
    project, poetry = whole.table("project"), whole.table("tool").table("poetry")
    wanted = poetry.table("dependencies")
    optional = [name for name, need in wanted.items() if table(need).value.get("optional") is True]
    groups = {
        "optional": optional,
        "": [
            *requirements(project.texts("dependencies")),
            *(name for name in wanted.names("python") if name not in optional),
        ],
    }
    for name, extra in project.table("optional-dependencies").items():
        groups[name] = requirements(texts_of(extra))
    for name, group in whole.table("dependency-groups").items():
        groups[name] = requirements(texts_of(group))
    for name in poetry.table("group").names():
        groups[name] = poetry.table("group").table(name).table("dependencies").names()
    groups["build"] = requirements(whole.table("build-system").texts("requires"))
    licence = project.text("license") or project.table("license").text("text") or poetry.text("license")
    scripts = {**poetry.table("scripts").as_texts(), **project.table("scripts").as_texts()}
    return Manifest(
        "Python",
        name=project.text("name") or poetry.text("name"),
        version=project.text("version") or poetry.text("version"),
        description=project.text("description") or poetry.text("description"),
        licence=licence,
        needs=prefixed(
            "Python", project.text("requires-python") or poetry.table("dependencies").text("python")
        ),
        dependencies=grouped(groups),
        entries=tuple({**scripts, **project.table("gui-scripts").as_texts()}.items()),
    )


def _setup_cfg(text: str) -> Manifest:
    parser = configparser.RawConfigParser(strict=False)
    parser.read_string(text)

    def option(section: str, key: str) -> str:
        return parser.get(section, key, fallback="").strip()

    scripts = option("options.entry_points", "console_scripts").splitlines()
    groups = {"": requirements(option("options", "install_requires").splitlines())}
    if parser.has_section("options.extras_require"):
        for name, lines in parser.items("options.extras_require"):
            groups[name] = requirements(lines.splitlines())
    return Manifest(
        "Python",
        name=option("metadata", "name"),
        version=option("metadata", "version"),
        description=option("metadata", "description"),
        licence=option("metadata", "license"),
        needs=prefixed("Python", option("options", "python_requires")),
        dependencies=grouped(groups),
        entries=tuple(pair(line) for line in scripts if "=" in line),
    )


def _pipfile(text: str) -> Manifest:
    whole = table(_toml(text))
    groups = {"": whole.table("packages").names(), "dev": whole.table("dev-packages").names()}
    return Manifest(
        "Python", dependencies=grouped(groups), commands=tuple(whole.table("scripts").as_texts().items())
    )


def _package_json(text: str) -> Manifest:
    whole = table(json.loads(text))
    name = whole.text("name")
    binary = whole.text("bin")
    entries = {name or "bin": binary} if binary else whole.table("bin").as_texts()
    main = {key: whole.text(key) for key in ("main", "module") if whole.text(key)}
    return Manifest(
        "JavaScript",
        name=name,
        version=whole.text("version"),
        description=whole.text("description"),
        licence=whole.text("license") or whole.table("license").text("type"),
        needs=", ".join(f"{tool} {version}" for tool, version in whole.table("engines").as_texts().items()),
        dependencies=grouped(
            {
                "": _from_elsewhere(whole.table("dependencies")),
                "peer": _from_elsewhere(whole.table("peerDependencies")),
                "optional": _from_elsewhere(whole.table("optionalDependencies")),
                "dev": _from_elsewhere(whole.table("devDependencies")),
            }
        ),
        entries=tuple({**entries, **main}.items()),
        commands=tuple(whole.table("scripts").as_texts().items()),
    )


def _from_elsewhere(dependencies: Table) -> list[str]:
    """The names of a table of dependencies that do not lie in the tree itself."""
    in_tree = ("workspace:", "file:", "link:", "portal:")
    return [
        name
        for name, version in dependencies.items()
        if not (text_of(version).startswith(in_tree) or table(version).text("path"))
    ]


def _cargo_toml(text: str) -> Manifest:
    whole = table(_toml(text))
    package, workspace = whole.table("package"), whole.table("workspace")
    shared = workspace.table("package")
    tables = [whole.table("dependencies"), *(t.table("dependencies") for t in whole.table("target").tables())]
    optional = [name for t in tables for name, need in t.items() if table(need).value.get("optional") is True]
    needed = [name for table in tables for name in _from_elsewhere(table) if name not in optional]
    binaries = {item.text("name"): item.text("path") for item in whole.list_of_tables("bin")}
    return Manifest(
        "Rust",
        name=package.text("name"),
        version=package.text("version") or shared.text("version"),
        description=package.text("description"),
        licence=package.text("license") or shared.text("license"),
        needs=prefixed("Rust", package.text("rust-version") or shared.text("rust-version")),
        dependencies=grouped(
            {
                "": needed,
                "optional": optional,
                "dev": _from_elsewhere(whole.table("dev-dependencies")),
                "build": _from_elsewhere(whole.table("build-dependencies")),
                "named for the workspace": _from_elsewhere(workspace.table("dependencies")),
            }
        ),
        entries=tuple((name, path) for name, path in binaries.items() if name),
    )


def _composer_json(text: str) -> Manifest:
    whole = table(json.loads(text))
    need = whole.table("require")
    packages = [name for name in need.names() if "/" in name]
    return Manifest(
        "PHP",
        name=whole.text("name"),
        version=whole.text("version"),
        description=whole.text("description"),
        licence=whole.text("license") or ", ".join(whole.texts("license")),
        needs=prefixed("PHP", need.text("php")),
        dependencies=grouped({"": packages, "dev": whole.table("require-dev").names()}),
        entries=tuple((path.rpartition("/")[2], path) for path in whole.texts("bin")),
        commands=tuple(whole.table("scripts").as_texts().items()),
    )


PARSED: Mapping[str, Callable[[str], Manifest]] = {
    "pyproject.toml": _pyproject,
    "setup.cfg": _setup_cfg,
    "Pipfile": _pipfile,
    "package.json": _package_json,
    "Cargo.toml": _cargo_toml,
    "composer.json": _composer_json,
}
"""Readers by the name of the file; they raise what their parsers raise."""
