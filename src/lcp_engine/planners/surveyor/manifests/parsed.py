"""Read manifests that are TOML, JSON or INI."""

from __future__ import annotations

import configparser
import json
import tomllib

from lcp_engine.planners.surveyor.manifests import untyped
from lcp_engine.planners.surveyor.manifests.model import Manifest, grouped, pair, prefixed, requirements


def pyproject(text: str) -> Manifest:
    whole = untyped.table(tomllib.loads(text))
    project, poetry = whole.table("project"), whole.table("tool").table("poetry")
    groups = {
        "": [*requirements(project.texts("dependencies")), *poetry.table("dependencies").names("python")]
    }
    for name, extra in project.table("optional-dependencies").items():
        groups[name] = requirements(untyped.texts(extra))
    for name, group in whole.table("dependency-groups").items():
        groups[name] = requirements(untyped.texts(group))
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


def setup_cfg(text: str) -> Manifest:
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


def pipfile(text: str) -> Manifest:
    whole = untyped.table(tomllib.loads(text))
    groups = {"": whole.table("packages").names(), "dev": whole.table("dev-packages").names()}
    return Manifest(
        "Python", dependencies=grouped(groups), commands=tuple(whole.table("scripts").as_texts().items())
    )


def package_json(text: str) -> Manifest:
    whole = untyped.table(json.loads(text))
    name = whole.text("name")
    binary = whole.text("bin")
    entries = {name or "bin": binary} if binary else whole.table("bin").as_texts()
    main = {key: whole.text(key) for key in ("main", "module", "browser") if whole.text(key)}
    return Manifest(
        "JavaScript",
        name=name,
        version=whole.text("version"),
        description=whole.text("description"),
        licence=whole.text("license") or whole.table("license").text("type"),
        needs=", ".join(f"{tool} {version}" for tool, version in whole.table("engines").as_texts().items()),
        dependencies=grouped(
            {
                "": whole.table("dependencies").names(),
                "peer": whole.table("peerDependencies").names(),
                "optional": whole.table("optionalDependencies").names(),
                "dev": whole.table("devDependencies").names(),
            }
        ),
        entries=tuple({**entries, **main}.items()),
        commands=tuple(whole.table("scripts").as_texts().items()),
    )


def cargo_toml(text: str) -> Manifest:
    whole = untyped.table(tomllib.loads(text))
    package, workspace = whole.table("package"), whole.table("workspace")
    shared = workspace.table("package")
    platform = [n for target in whole.table("target").tables() for n in target.table("dependencies").names()]
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
                "": whole.table("dependencies").names() + workspace.table("dependencies").names() + platform,
                "dev": whole.table("dev-dependencies").names(),
                "build": whole.table("build-dependencies").names(),
            }
        ),
        entries=tuple((name, path) for name, path in binaries.items() if name),
    )


def composer_json(text: str) -> Manifest:
    whole = untyped.table(json.loads(text))
    need = whole.table("require")
    packages = [name for name in need.names("php") if not name.startswith("ext-")]
    return Manifest(
        "PHP",
        name=whole.text("name"),
        version=whole.text("version"),
        description=whole.text("description"),
        licence=whole.text("license") or ", ".join(whole.texts("license")),
        needs=prefixed("PHP", need.text("php")),
        dependencies=grouped({"": packages, "dev": whole.table("require-dev").names()}),
        entries=tuple(("bin", path) for path in whole.texts("bin")),
        commands=tuple(whole.table("scripts").as_texts().items()),
    )
