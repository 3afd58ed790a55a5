"""Read the manifests of many ecosystems: name, dependencies, commands."""

from __future__ import annotations

import configparser
import json
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

# Regular expressions may take time quadratic in the length: the rest of a longer manifest is ignored.
_MOST_SCANNED = 64 * 1024


@dataclass(frozen=True)
class Manifest:
    """What one manifest says. `dependencies` are names by group, `entries` and `commands` are (name, target).

    What is needed to run has the group ``""``.
    """

    ecosystem: str
    path: str = ""
    name: str = ""
    version: str = ""
    description: str = ""
    licence: str = ""
    needs: str = ""
    dependencies: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    entries: tuple[tuple[str, str], ...] = ()
    commands: tuple[tuple[str, str], ...] = ()
    cut: bool = False
    """Whether only its beginning was looked at: it may name more than is here."""
    broken: bool = False
    """Whether it cannot be parsed, and tells nothing."""

    @property
    def directory(self) -> str:
        """Where it lies, with `/` at the end; empty at the top."""
        return self.path[: self.path.rfind("/") + 1]

    @property
    def dependency_names(self) -> set[str]:
        return {name.lower() for names in self.dependencies.values() for name in names}


def is_manifest(path: str) -> bool:
    return _reader(path) is not None


def read_manifest(path: str, text: str) -> Manifest | None:
    """The content of the manifest `path`, `broken` if it cannot be parsed; None if it is not a manifest."""
    reader = _reader(path)
    if reader is None:
        return None
    text = text.removeprefix("\ufeff")
    cut = reader in _SCANNED and len(text) > _MOST_SCANNED
    try:
        found = reader(text[:_MOST_SCANNED] if cut else text)
    except _NoManifestError:
        return None
    except (ValueError, RecursionError, configparser.Error):
        return Manifest("", path=path, broken=True)
    if reader is _requirements_txt:
        found = replace(found, dependencies=_by_file_name(path, found.dependencies))
    return replace(found, path=path, cut=cut)


class _NoManifestError(Exception):
    """The file is called like a manifest and is something else."""


def without_own(manifests: Iterable[Manifest]) -> list[Manifest]:
    """The same, without the dependencies on packages that are manifests among them."""
    listed = list(manifests)
    own = {_folded(manifest.name) for manifest in listed if manifest.name}
    return [
        replace(
            manifest,
            dependencies={
                group: kept
                for group, names in manifest.dependencies.items()
                if (kept := tuple(name for name in names if _folded(name) not in own))
            },
        )
        for manifest in listed
    ]


def _folded(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).casefold()


def _by_file_name(path: str, groups: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """What `requirements-dev.txt` lists is needed for `dev`, and pins are only counted."""
    name = path.rpartition("/")[2].removesuffix(".txt")
    kind = re.sub(r"requirements|^[-_.]+|[-_.]+$", "", name).strip("-_.")
    return {group or kind: names for group, names in groups.items()}


def _pyproject(text: str) -> Manifest:
    whole = _table(tomllib.loads(text))
    project, poetry = whole.table("project"), whole.table("tool").table("poetry")
    groups = {
        "": [*_requirements(project.texts("dependencies")), *poetry.table("dependencies").names("python")]
    }
    for name, extra in project.table("optional-dependencies").items():
        groups[name] = _requirements(_texts(extra))
    for name, group in whole.table("dependency-groups").items():
        groups[name] = _requirements(_texts(group))
    for name in poetry.table("group").names():
        groups[name] = poetry.table("group").table(name).table("dependencies").names()
    groups["build"] = _requirements(whole.table("build-system").texts("requires"))
    licence = project.text("license") or project.table("license").text("text") or poetry.text("license")
    scripts = {**poetry.table("scripts").as_texts(), **project.table("scripts").as_texts()}
    return Manifest(
        "Python",
        name=project.text("name") or poetry.text("name"),
        version=project.text("version") or poetry.text("version"),
        description=project.text("description") or poetry.text("description"),
        licence=licence,
        needs=_prefixed(
            "Python", project.text("requires-python") or poetry.table("dependencies").text("python")
        ),
        dependencies=_grouped(groups),
        entries=tuple({**scripts, **project.table("gui-scripts").as_texts()}.items()),
    )


def _setup_cfg(text: str) -> Manifest:
    parser = configparser.RawConfigParser(strict=False)
    parser.read_string(text)

    def option(section: str, key: str) -> str:
        return parser.get(section, key, fallback="").strip()

    scripts = option("options.entry_points", "console_scripts").splitlines()
    groups = {"": _requirements(option("options", "install_requires").splitlines())}
    if parser.has_section("options.extras_require"):
        for name, lines in parser.items("options.extras_require"):
            groups[name] = _requirements(lines.splitlines())
    return Manifest(
        "Python",
        name=option("metadata", "name"),
        version=option("metadata", "version"),
        description=option("metadata", "description"),
        licence=option("metadata", "license"),
        needs=_prefixed("Python", option("options", "python_requires")),
        dependencies=_grouped(groups),
        entries=tuple(_pair(line) for line in scripts if "=" in line),
    )


def _pipfile(text: str) -> Manifest:
    whole = _table(tomllib.loads(text))
    groups = {"": whole.table("packages").names(), "dev": whole.table("dev-packages").names()}
    return Manifest(
        "Python", dependencies=_grouped(groups), commands=tuple(whole.table("scripts").as_texts().items())
    )


def _package_json(text: str) -> Manifest:
    whole = _table(json.loads(text))
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
        dependencies=_grouped(
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


def _from_elsewhere(table: _Table) -> list[str]:
    """The names of a table of dependencies that do not lie in the tree itself."""
    in_tree = ("workspace:", "file:", "link:", "portal:")
    return [
        name
        for name, version in table.items()
        if not (_text(version).startswith(in_tree) or _table(version).text("path"))
    ]


def _cargo_toml(text: str) -> Manifest:
    whole = _table(tomllib.loads(text))
    package, workspace = whole.table("package"), whole.table("workspace")
    shared = workspace.table("package")
    tables = [whole.table("dependencies"), *(t.table("dependencies") for t in whole.table("target").tables())]
    optional = [
        name for t in tables for name, need in t.items() if _table(need).value.get("optional") is True
    ]
    needed = [name for table in tables for name in _from_elsewhere(table) if name not in optional]
    binaries = {item.text("name"): item.text("path") for item in whole.list_of_tables("bin")}
    return Manifest(
        "Rust",
        name=package.text("name"),
        version=package.text("version") or shared.text("version"),
        description=package.text("description"),
        licence=package.text("license") or shared.text("license"),
        needs=_prefixed("Rust", package.text("rust-version") or shared.text("rust-version")),
        dependencies=_grouped(
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
    whole = _table(json.loads(text))
    need = whole.table("require")
    packages = [name for name in need.names("php") if not name.startswith("ext-")]
    return Manifest(
        "PHP",
        name=whole.text("name"),
        version=whole.text("version"),
        description=whole.text("description"),
        licence=whole.text("license") or ", ".join(whole.texts("license")),
        needs=_prefixed("PHP", need.text("php")),
        dependencies=_grouped({"": packages, "dev": whole.table("require-dev").names()}),
        entries=tuple((path.rpartition("/")[2], path) for path in whole.texts("bin")),
        commands=tuple(whole.table("scripts").as_texts().items()),
    )


def _setup_py(text: str) -> Manifest:
    if not re.search(r"\bsetup\s*\(", text):
        raise _NoManifestError

    def argument(name: str) -> str:
        return _first(rf"\b{name}\s*=\s*[\"']([^\"'\n]+)[\"']", text)

    required = _first(r"install_requires\s*=\s*\[((?:[^\[\]]|\[[^\[\]]*\])*)\]", text)
    names = _requirements(re.findall(r"[\"']([^\"'\n]+)[\"']", required))
    return Manifest(
        "Python",
        name=argument("name"),
        version=argument("version"),
        description=argument("description"),
        licence=argument("license"),
        needs=_prefixed("Python", argument("python_requires")),
        dependencies=_grouped({"": names}),
        entries=tuple(_pair(line) for line in re.findall(r"[\"']([\w.-]+\s*=\s*[\w.]+:[\w.]+)[\"']", text)),
    )


def _requirements_txt(text: str) -> Manifest:
    pinned = "--hash=" in text or "# via " in text
    return Manifest(
        "Python", dependencies=_grouped({"pinned" if pinned else "": _requirements(text.splitlines())})
    )


def _go_mod(text: str) -> Manifest:
    blocks = "\n".join(re.findall(r"^require\s*\(([^()]*)\)", text, re.MULTILINE))
    lines = [*blocks.splitlines(), *re.findall(r"^require\s+([^(\n]+)$", text, re.MULTILINE)]
    direct = [line.split()[0] for line in lines if line.strip() and "// indirect" not in line]
    indirect = [line.split()[0] for line in lines if line.strip() and "// indirect" in line]
    return Manifest(
        "Go",
        name=_first(r"^module\s+(\S+)", text),
        needs=_prefixed("Go", _first(r"^go\s+(\S+)", text)),
        dependencies=_grouped({"": direct, "indirect": indirect}),
    )


def _pom_xml(text: str) -> Manifest:
    head, _, tail = text.partition("<parent>")
    own = re.split(
        r"<(?:dependencies|dependencyManagement|build|profiles)>", head + tail.partition("</parent>")[2]
    )[0]
    found = [item.partition("</dependency>")[0] for item in text.split("<dependency>")[1:]]
    artifacts = [(_first(r"<artifactId>\s*([^<]+?)\s*</", item), "<scope>test<" in item) for item in found]
    return Manifest(
        "Java",
        name=_first(r"<artifactId>\s*([^<]+?)\s*</", own),
        version=_first(r"<version>\s*([^<]+?)\s*</", own),
        description=_first(r"<description>\s*([^<]+?)\s*</", own),
        licence=_first(r"<name>\s*([^<]+?)\s*</", text.partition("<license>")[2][:1000]),
        needs=_prefixed(
            "Java", _first(r"<(?:maven\.compiler\.(?:release|source)|java\.version)>\s*([^<]+?)\s*</", text)
        ),
        dependencies=_grouped(
            {"": [n for n, test in artifacts if not test], "test": [n for n, test in artifacts if test]}
        ),
    )


def _gradle(text: str) -> Manifest:
    scope = r"\w*(?:[iI]mplementation|[aA]pi|[cC]ompileOnly|[rR]untimeOnly|classpath)"
    found = re.findall(rf"^[ \t]*({scope})\s*\(?\s*[\"']([^\"':\n]+:[^\"':\n]+)", text, re.MULTILINE)
    plugins = re.findall(r"\bid\s*\(?\s*[\"']([\w.-]+)[\"']", text)
    groups = {
        "": [name for scope, name in found if not scope.startswith("test")],
        "test": [name for scope, name in found if scope.startswith("test")],
        "plugins": plugins,
    }
    return Manifest(
        "Java", version=_first(r"^version\s*=?\s*[\"']([^\"']+)", text), dependencies=_grouped(groups)
    )


def _gemfile(text: str) -> Manifest:
    groups: dict[str, list[str]] = {}
    group = ""
    for line in text.splitlines():
        if found := re.match(r"\s*group\s*\(?\s*:?[\"']?(\w+).*\bdo\s*$", line):
            group = found[1]
        elif re.match(r"end\b", line):
            group = ""
        elif found := re.match(r"\s*gem\s*\(?\s*[\"']([^\"']+)", line):
            own = re.search(r"\bgroups?(?::|\s*=>)\s*\[?:(\w+)", line)
            groups.setdefault(own[1] if own else group, []).append(found[1])
    return Manifest("Ruby", dependencies=_grouped(groups))


def _gemspec(text: str) -> Manifest:
    def setting(name: str) -> str:
        return _first(rf"\.{name}\s*=\s*[\"']([^\"'\n]+)", text)

    programs = _first(r"\.executables\s*=\s*(\[[^\]\n]*\]|[\"'][\w-]+[\"'])", text)
    found = re.findall(r"\.add_(?:(development|runtime)_)?dependency\s*\(?\s*[\"']([^\"']+)", text)
    groups = {"": [name for scope, name in found if scope != "development"]}
    groups["dev"] = [name for scope, name in found if scope == "development"]
    return Manifest(
        "Ruby",
        name=setting("name"),
        version=setting("version"),
        description=setting("summary"),
        licence=setting("license"),
        needs=_prefixed("Ruby", setting("required_ruby_version")),
        dependencies=_grouped(groups),
        entries=tuple((name, "executable") for name in re.findall(r"[\"']([\w-]+)[\"']", programs)),
    )


def _mix_exs(text: str) -> Manifest:
    deps = re.findall(r"\{\s*:(\w+),\s*((?:\"|github:|git:)[^{}\n]*)", re.sub(r"(?m)^\s*#.*$", "", text))
    groups = {"": [name for name, rest in deps if "only:" not in rest]}
    groups["dev and test"] = [name for name, rest in deps if "only:" in rest]
    return Manifest(
        "Elixir",
        name=_first(r"\bapp:\s*:(\w+)", text),
        version=_first(r"\bversion:\s*\"([^\"]+)", text) or _first(r"^\s*@version\s+\"([^\"]+)", text),
        description=_first(r"\bdescription:\s*\"([^\"]+)", text),
        needs=_prefixed("Elixir", _first(r"\belixir:\s*\"([^\"]+)", text)),
        dependencies=_grouped(groups),
        entries=tuple(
            ("escript", module) for module in re.findall(r"escript:\s*\[[^\]]*?main_module:\s*([\w.]+)", text)
        ),
    )


def _cmake(text: str) -> Manifest:
    text = re.sub(r"(?m)#.*$", "", text)
    targets = re.findall(
        r"^[ \t]*add_executable\s*\(\s*([\w.-]+)(?=[\s)])(?!\s+(?:IMPORTED|ALIAS))",
        text,
        re.MULTILINE | re.IGNORECASE,
    )
    parts = [_first(rf"(?i)^[ \t]*set\s*\(\w*_VERSION_{part}\s+\"?(\d+)\"?\s*\)", text) for part in _PARTS]
    return Manifest(
        "CMake",
        name=_first(r"(?i)^[ \t]*project\s*\(\s*\"?([\w.+-]+)", text),
        version=_first(r"(?i)^[ \t]*project\s*\([^)]*?\bVERSION\s+\"?(\d[\w.]*)", text)
        or (".".join(parts) if all(parts) else ""),
        needs=_prefixed("CMake", _first(r"(?i)cmake_minimum_required\s*\(\s*VERSION\s+(\d[\d.]*\d)", text)),
        dependencies=_grouped(
            {"find_package": re.findall(r"(?i)^[ \t]*find_package\s*\(\s*(\w+)", text, re.MULTILINE)}
        ),
        entries=tuple((name, "add_executable") for name in dict.fromkeys(targets)),
    )


_PARTS = ("MAJOR", "MINOR", "PATCH")


def _configure_ac(text: str) -> Manifest:
    text = re.sub(r"(?m)^\s*(?:dnl\b|#).*$", "", text)
    found = re.search(r"\bAC_INIT\(\s*\[?([\w.+ -]+?)\]?\s*(?:,\s*\[?(\d[\w.+-]*)\]?\s*)?[,)]", text)
    return Manifest("Autoconf", name=found[1] if found else "", version=(found[2] or "") if found else "")


def _makefile_am(text: str) -> Manifest:
    """`noinst_` and `check_` programs are not installed."""
    lines = text.replace("\\\n", " ").splitlines()
    stated = (re.match(r"(?:bin|sbin|libexec)_(PROGRAMS|SCRIPTS)\s*\+?=\s*([^#]*)", line) for line in lines)
    pairs = [(name, f"bin_{found[1]}") for found in stated if found for name in found[2].split()]
    return Manifest("Automake", entries=tuple((name, what) for name, what in pairs if "$" not in name))


def _meson_build(text: str) -> Manifest:
    text = re.sub(r"(?m)^\s*#.*$", "", text)
    project = _first(r"^project\s*\(([^)]*)\)", text)
    return Manifest(
        "Meson",
        name=_first(r"^\s*'([^']+)'", project),
        version=_first(r"\bversion\s*:\s*'(\d[^']*)'", project),
        licence=_first(r"\blicense\s*:\s*\[?\s*'([^']+)'", project),
        entries=tuple((name, "executable") for name in re.findall(r"\bexecutable\s*\(\s*'([\w.-]+)'", text)),
    )


def _pkg_info(text: str) -> Manifest:
    head = text.partition("\n\n")[0]
    return Manifest(
        "Python",
        name=_first(r"^Name:\s*(\S+)", head),
        version=_first(r"^Version:\s*(\S+)", head),
        description=_first(r"^Summary:[ \t]*(\S.*)", head),
        licence=_first(r"^License(?:-Expression)?:[ \t]*(\S[^\n]{0,60})$", head),
        needs=_prefixed("Python", _first(r"^Requires-Python:\s*(\S+)", head)),
    )


def _csproj(text: str) -> Manifest:
    return Manifest(
        ".NET",
        name=_first(r"<(?:PackageId|AssemblyName)>\s*([^<]+?)\s*</", text),
        version=_first(r"<Version>\s*([^<]+?)\s*</", text),
        description=_first(r"<Description>\s*([^<]+?)\s*</", text),
        needs=_first(r"<TargetFrameworks?>\s*([^<]+?)\s*</", text),
        dependencies=_grouped({"": re.findall(r"<PackageReference\s+Include=\"([^\"]+)", text)}),
    )


def _pubspec(text: str) -> Manifest:
    def block(name: str) -> list[str]:
        lines = _first(rf"^{name}:[ ]*\n((?:[ #].*\n|\n)*)", text)
        return re.findall(r"^  ([\w-]+):", f"  {lines}", re.MULTILINE)

    return Manifest(
        "Dart",
        name=_first(r"^name:\s*(\S+)", text),
        version=_first(r"^version:\s*(\S+)", text),
        description=_first(r"^description:\s*[\"']?([^\n\"'>|]+)", text),
        dependencies=_grouped({"": block("dependencies"), "dev": block("dev_dependencies")}),
    )


def _package_swift(text: str) -> Manifest:
    found = re.findall(r"\.package\([^)]*url:\s*\"[^\"]*?([^/\"]+?)(?:\.git)?\"", text)
    return Manifest(
        "Swift",
        name=_first(r"Package\(\s*name:\s*\"([^\"]+)", text),
        needs=_prefixed("Swift", _first(r"swift-tools-version:\s*([\d.]+)", text)),
        dependencies=_grouped({"": found}),
    )


def _cabal(text: str) -> Manifest:
    text = re.sub(r"(?m)^\s*--.*$", "", f"{text}\n")
    groups: dict[str, list[str]] = {"": []}
    stanzas = re.split(
        r"(?im)^(?=(?:library|executable|test-suite|benchmark|common|foreign-library|flag)\b)", text
    )
    for stanza in stanzas:
        kind = {"test-suite": "test", "benchmark": "benchmark"}.get(_first(r"\A(\S+)", stanza).lower(), "")
        lists = re.findall(
            r"(?im)^([ \t]*)build-depends:(.*\n(?:(?:\1[ \t]+\S.*|[ \t]*,.*|[ \t]*)\n)*)", stanza
        )
        groups.setdefault(kind, []).extend(
            re.findall(r"(?:^|,)\s*([a-zA-Z][\w-]*)", ",".join(body for _, body in lists))
        )
    return Manifest(
        "Haskell",
        name=_first(r"(?i)^name:\s*(\S+)", text),
        version=_first(r"(?i)^version:\s*(\S+)", text),
        description=_first(r"(?i)^synopsis:\s*(.+)", text),
        licence=_first(r"(?i)^license:\s*(\S+)", text),
        dependencies=_grouped(groups),
        entries=tuple((name, "executable") for name in re.findall(r"(?im)^executable\s+(\S+)", text)),
    )


def _first(pattern: str, text: str) -> str:
    found = re.search(pattern, text, re.MULTILINE)
    return found[1].strip() if found else ""


def _pair(line: str) -> tuple[str, str]:
    name, _, target = line.partition("=")
    return name.strip(), target.strip()


def _prefixed(tool: str, version: str) -> str:
    return f"{tool} {version}" if version else ""


def _requirements(lines: Iterable[str]) -> list[str]:
    """Names of PEP 508 requirements; options, comments and addresses are no names."""
    found = (re.match(r"\s*([A-Za-z0-9][\w.-]*)\s*(?:$|[\[<>=!~;@#,(\\])", line) for line in lines)
    return [match[1] for match in found if match]


def _grouped(groups: Mapping[str, Iterable[str]]) -> dict[str, tuple[str, ...]]:
    unique = {group: tuple(dict.fromkeys(names)) for group, names in groups.items()}
    return {group: names for group, names in unique.items() if names}


def _table(value: object) -> _Table:
    return _Table({str(key): item for key, item in value.items()} if isinstance(value, dict) else {})


def _text(value: object) -> str:
    return value.strip() if isinstance(value, str) else ""


def _texts(value: object) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


@dataclass(frozen=True)
class _Table:
    """A table of unknown shape: what is missing or of another type reads as empty."""

    value: dict[str, object]

    def table(self, key: str) -> _Table:
        return _table(self.value.get(key))

    def text(self, key: str) -> str:
        return _text(self.value.get(key))

    def texts(self, key: str) -> list[str]:
        return _texts(self.value.get(key))

    def list_of_tables(self, key: str) -> list[_Table]:
        found = self.value.get(key)
        return [_table(item) for item in found] if isinstance(found, list) else []

    def tables(self) -> list[_Table]:
        return [_table(item) for item in self.value.values()]

    def items(self) -> Iterator[tuple[str, object]]:
        yield from self.value.items()

    def names(self, *without: str) -> list[str]:
        return [key for key in self.value if key not in without]

    def as_texts(self) -> dict[str, str]:
        """The entries that are text."""
        return {key: item for key, item in self.value.items() if isinstance(item, str)}


_Reader: TypeAlias = Callable[[str], Manifest]
_READERS: Mapping[str, _Reader] = {
    "pyproject.toml": _pyproject,
    "setup.cfg": _setup_cfg,
    "setup.py": _setup_py,
    "Pipfile": _pipfile,
    "package.json": _package_json,
    "Cargo.toml": _cargo_toml,
    "go.mod": _go_mod,
    "pom.xml": _pom_xml,
    "build.gradle": _gradle,
    "build.gradle.kts": _gradle,
    "composer.json": _composer_json,
    "Gemfile": _gemfile,
    "mix.exs": _mix_exs,
    "CMakeLists.txt": _cmake,
    "configure.ac": _configure_ac,
    "configure.in": _configure_ac,
    "Makefile.am": _makefile_am,
    "meson.build": _meson_build,
    "PKG-INFO": _pkg_info,
    "pubspec.yaml": _pubspec,
    "Package.swift": _package_swift,
}
_BY_SUFFIX: Mapping[str, _Reader] = {
    ".gemspec": _gemspec, ".csproj": _csproj, ".fsproj": _csproj, ".cabal": _cabal,
}  # fmt: skip
_SCANNED = frozenset(
    {
        _cabal,
        _cmake,
        _configure_ac,
        _csproj,
        _gemfile,
        _gemspec,
        _go_mod,
        _gradle,
        _makefile_am,
        _meson_build,
        _mix_exs,
        _package_swift,
        _pom_xml,
        _pubspec,
        _setup_py,
    }
)
"""Readers by regular expressions, for manifests that are programs or have a grammar of their own."""


def _reader(path: str) -> _Reader | None:
    name = path[path.rfind("/") + 1 :]
    if name == "PKG-INFO" and name != path:
        return None
    # Deeper down it is rather a module that sets something up.
    if name == "setup.py" and path.count("/") > 1:
        return None
    if name.endswith(".txt") and (name.startswith("requirements") or path.startswith("requirements/")):
        return _requirements_txt
    return _READERS.get(name) or _BY_SUFFIX.get(name[name.rfind(".") :] if "." in name else "")
