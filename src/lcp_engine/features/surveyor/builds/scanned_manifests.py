"""Read manifests that are programs or have a grammar of their own, by patterns: what is not plain is left out."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from lcp_engine.features.surveyor.builds.manifest import (
    Manifest,
    NotAManifestError,
    first,
    grouped,
    pair,
    prefixed,
    requirements,
)


def _setup_py(text: str) -> Manifest:
    called = re.search(r"\bsetup\s*\(", text)
    if called is None:
        raise NotAManifestError
    text = text[called.start() :]

    def argument(name: str) -> str:
        return first(rf"\b{name}\s*=\s*[\"']([^\"'\n]+)[\"']", text)

    required = first(r"install_requires\s*=\s*\[((?:[^\[\]]|\[[^\[\]]*\])*)\]", text)
    names = requirements(re.findall(r"[\"']([^\"'\n]+)[\"']", required))
    return Manifest(
        "Python",
        name=argument("name"),
        version=argument("version"),
        description=argument("description"),
        licence=argument("license"),
        needs=prefixed("Python", argument("python_requires")),
        dependencies=grouped({"": names}),
        entries=tuple(pair(line) for line in re.findall(r"[\"']([\w.-]+\s*=\s*[\w.]+:[\w.]+)[\"']", text)),
    )


def requirements_txt(text: str) -> Manifest:
    pinned = "--hash=" in text or "# via " in text
    return Manifest(
        "Python", dependencies=grouped({"pinned" if pinned else "": requirements(text.splitlines())})
    )


def _go_mod(text: str) -> Manifest:
    blocks = "\n".join(re.findall(r"^require\s*\(([^()]*)\)", text, re.MULTILINE))
    lines = [*blocks.splitlines(), *re.findall(r"^require\s+([^(\n]+)$", text, re.MULTILINE)]
    direct = [line.split()[0] for line in lines if line.strip() and "// indirect" not in line]
    indirect = [line.split()[0] for line in lines if line.strip() and "// indirect" in line]
    return Manifest(
        "Go",
        name=first(r"^module\s+(\S+)", text),
        needs=prefixed("Go", first(r"^go\s+(\S+)", text)),
        dependencies=grouped({"": direct, "indirect": indirect}),
    )


def _pom_xml(text: str) -> Manifest:
    """Only the dependencies of the project itself, not those that are managed, of plugins or of profiles."""
    own = _without(text, "<!--", "-->")
    for tag in ("dependencyManagement", "build", "profiles", "reporting", "parent", "exclusions"):
        own = _without(own, f"<{tag}>", f"</{tag}>")
    groups: dict[str, list[str]] = {"": []}
    for item in own.split("<dependency>")[1:]:
        scope = first(r"<scope>\s*(\w+)\s*</", item)
        name = first(r"<artifactId>\s*([^<]+?)\s*</", item.partition("</dependency>")[0])
        groups.setdefault("" if scope in ("", "compile", "runtime") else scope, []).append(name)
    head = own.partition("<dependencies>")[0]
    return Manifest(
        "Java",
        name=first(r"<artifactId>\s*([^<]+?)\s*</", head),
        version=first(r"<version>\s*(\d[^<]*?)\s*</", head),
        description=first(r"<description>\s*([^<]+?)\s*</", own),
        licence=first(r"<name>\s*([^<]+?)\s*</", own.partition("<license>")[2][:1000]),
        needs=prefixed(
            "Java", first(r"<(?:maven\.compiler\.(?:release|source)|java\.version)>\s*(\d[^<]*?)\s*</", text)
        ),
        dependencies=grouped(groups),
    )


def _without(text: str, start: str, end: str) -> str:
    """`text` without what lies between `start` and `end`; from a `start` without an `end` on it is kept."""
    kept = ""
    while (at := text.find(start)) >= 0 and (until := text.find(end, at)) >= 0:
        kept, text = kept + text[:at], text[until + len(end) :]
    return kept + text


def _gradle(text: str) -> Manifest:
    scope = r"\w*(?:[iI]mplementation|[aA]pi|[cC]ompileOnly|[rR]untimeOnly|classpath)"
    found = re.findall(rf"^[ \t]*({scope})\s*\(?\s*[\"']([^\"':\n]+:[^\"':\n]+)", text, re.MULTILINE)
    plugins = re.findall(r"\bid\s*\(?\s*[\"']([\w.-]+)[\"']", text)
    groups = {
        "": [name for scope, name in found if not scope.startswith(("test", "classpath", "androidTest"))],
        "test": [name for scope, name in found if scope.startswith(("test", "androidTest"))],
        "build": [name for scope, name in found if scope == "classpath"],
        "plugins": plugins,
    }
    return Manifest(
        "Java", version=first(r"^version\s*=?\s*[\"']([^\"']+)", text), dependencies=grouped(groups)
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
            groups.setdefault(own[1] if own else group or "default", []).append(found[1])
    return Manifest("Ruby", dependencies=grouped(groups))


def _gemspec(text: str) -> Manifest:
    def setting(name: str) -> str:
        return first(rf"\.{name}\s*=\s*[\"']([^\"'\n]+)", text)

    programs = first(r"\.executables\s*=\s*(\[[^\]\n]{0,300}\]|[\"'][\w-]+[\"'])", text)
    found = re.findall(r"\.add_(?:(development|runtime)_)?dependency\s*\(?\s*[\"']([^\"']+)", text)
    groups = {"": [name for scope, name in found if scope != "development"]}
    groups["dev"] = [name for scope, name in found if scope == "development"]
    return Manifest(
        "Ruby",
        name=setting("name"),
        version=setting("version"),
        description=setting("summary"),
        licence=setting("license"),
        needs=prefixed("Ruby", setting("required_ruby_version")),
        dependencies=grouped(groups),
        entries=tuple((name, "executable") for name in re.findall(r"[\"']([\w-]+)[\"']", programs)),
    )


def _mix_exs(text: str) -> Manifest:
    deps = re.findall(r"\{\s*:(\w+),\s*((?:\"|github:|git:)[^{}\n]*)", re.sub(r"(?m)^\s*#.*$", "", text))
    groups = {"": [name for name, rest in deps if not re.search(r"\bonly:|\bruntime: false", rest)]}
    groups["dev and test"] = [name for name, rest in deps if "only:" in rest]
    groups["build"] = [name for name, rest in deps if "only:" not in rest and "runtime: false" in rest]
    return Manifest(
        "Elixir",
        name=first(r"\bapp:\s*:(\w+)", text),
        version=first(r"\bversion:\s*\"([^\"]+)", text) or first(r"^\s*@version\s+\"([^\"]+)", text),
        description=first(r"\bdescription:\s*\"([^\"]+)", text),
        needs=prefixed("Elixir", first(r"\belixir:\s*\"([^\"]+)", text)),
        dependencies=grouped(groups),
        entries=tuple(
            ("escript", module)
            for module in re.findall(r"escript:\s*\[[^\]]{0,300}?main_module:\s*([\w.]+)", text)
        ),
    )


def _cmake(text: str) -> Manifest:
    text = re.sub(r"(?m)#.*$", "", text)
    targets = re.findall(
        r"^[ \t]*add_executable\s*\(\s*([\w.-]+)(?=[\s)])(?!\s+(?:IMPORTED|ALIAS))",
        text,
        re.MULTILINE | re.IGNORECASE,
    )
    return Manifest(
        "CMake",
        name=first(r"(?i)^[ \t]*project\s*\(\s*\"?([\w.+-]+)", text),
        version=first(r"(?i)^[ \t]*project\s*\([^)]*?\bVERSION\s+\"?(\d[\w.]*)", text) or _set_version(text),
        needs=prefixed("CMake", first(r"(?i)cmake_minimum_required\s*\(\s*VERSION\s+(\d[\d.]*\d)", text)),
        dependencies=grouped(
            {"find_package": re.findall(r"(?i)^[ \t]*find_package\s*\(\s*(\w+)", text, re.MULTILINE)}
        ),
        entries=tuple((name, "add_executable") for name in dict.fromkeys(targets)),
    )


def _set_version(text: str) -> str:
    """As `set(X_VERSION_MAJOR 0)` and so on say, with one X for all parts."""
    found = re.findall(r"(?im)^[ \t]*set\s*\(\s*(\w+)_VERSION_(\w+)\s+\"?([\w.-]*)\"?\s*\)", text)
    for prefix in dict.fromkeys(prefix for prefix, _, _ in found):
        parts: dict[str, str] = {part: value for start, part, value in found if start == prefix}
        numbers = [parts.get(part, "") for part in ("MAJOR", "MINOR", "PATCH")]
        if all(number.isdigit() for number in numbers):
            return ".".join(numbers) + parts.get("PRERELEASE", "")
    return ""


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
    project = first(r"^project\s*\(([^)]*)\)", text)
    return Manifest(
        "Meson",
        name=first(r"^\s*'([^']+)'", project),
        version=first(r"\bversion\s*:\s*'(\d[^']*)'", project),
        licence=first(r"\blicense\s*:\s*\[?\s*'([^']+)'", project),
        entries=tuple((name, "executable") for name in re.findall(r"\bexecutable\s*\(\s*'([\w.-]+)'", text)),
    )


def _pkg_info(text: str) -> Manifest:
    head = text.partition("\n\n")[0]
    return Manifest(
        "Python",
        name=first(r"^Name:\s*(\S+)", head),
        version=first(r"^Version:\s*(\S+)", head),
        description=first(r"^Summary:[ \t]*(\S.*)", head),
        licence=first(r"^License(?:-Expression)?:[ \t]*(\S[^\n]{0,60})$", head),
        needs=prefixed("Python", first(r"^Requires-Python:\s*(\S+)", head)),
    )


def _csproj(text: str) -> Manifest:
    return Manifest(
        ".NET",
        name=first(r"<(?:PackageId|AssemblyName)>\s*([^<]+?)\s*</", text),
        version=first(r"<Version>\s*([^<]+?)\s*</", text),
        description=first(r"<Description>\s*([^<]+?)\s*</", text),
        needs=first(r"<TargetFrameworks?>\s*([^<]+?)\s*</", text),
        dependencies=grouped({"": re.findall(r"<PackageReference\s+Include=\"([^\"]+)", text)}),
    )


def _pubspec(text: str) -> Manifest:
    def block(name: str) -> list[str]:
        lines = first(rf"^{name}:[ ]*\n((?:[ #].*\n|\n)*)", text)
        return re.findall(r"^  ([\w-]+):", f"  {lines}", re.MULTILINE)

    return Manifest(
        "Dart",
        name=first(r"^name:\s*(\S+)", text),
        version=first(r"^version:\s*(\S+)", text),
        description=first(r"^description:\s*[\"']?([^\n\"'>|]+)", text),
        dependencies=grouped({"": block("dependencies"), "dev": block("dev_dependencies")}),
    )


def _package_swift(text: str) -> Manifest:
    found = re.findall(r"\.package\([^)]*url:\s*\"[^\"]*?([^/\"]+?)(?:\.git)?\"", text)
    return Manifest(
        "Swift",
        name=first(r"Package\(\s*name:\s*\"([^\"]+)", text),
        needs=prefixed("Swift", first(r"swift-tools-version:\s*([\d.]+)", text)),
        dependencies=grouped({"packages": found}),
    )


def _cabal(text: str) -> Manifest:
    text = re.sub(r"(?m)^\s*--.*$", "", f"{text}\n")
    groups: dict[str, list[str]] = {"": []}
    stanzas = re.split(
        r"(?im)^(?=(?:library|executable|test-suite|benchmark|common|foreign-library|flag)\b)", text
    )
    for stanza in stanzas:
        kind = {"test-suite": "test", "benchmark": "benchmark"}.get(first(r"\A(\S+)", stanza).lower(), "")
        lists = re.findall(
            r"(?im)^([ \t]*)build-depends:(.*\n(?:(?:\1[ \t]+\S.*|[ \t]*,.*|[ \t]*)\n)*)", stanza
        )
        groups.setdefault(kind, []).extend(
            re.findall(r"(?:^|,)\s*([a-zA-Z][\w-]*)", ",".join(body for _, body in lists))
        )
    return Manifest(
        "Haskell",
        name=first(r"(?i)^name:\s*(\S+)", text),
        version=first(r"(?i)^version:\s*(\S+)", text),
        description=first(r"(?i)^synopsis:\s*(.+)", text),
        licence=first(r"(?i)^license:\s*(\S+)", text),
        dependencies=grouped(groups),
        entries=tuple((name, "executable") for name in re.findall(r"(?im)^executable\s+(\S+)", text)),
    )


SCANNED: Mapping[str, Callable[[str], Manifest]] = {
    "setup.py": _setup_py,
    "PKG-INFO": _pkg_info,
    "go.mod": _go_mod,
    "pom.xml": _pom_xml,
    "build.gradle": _gradle,
    "build.gradle.kts": _gradle,
    "Gemfile": _gemfile,
    ".gemspec": _gemspec,
    "mix.exs": _mix_exs,
    "CMakeLists.txt": _cmake,
    "configure.ac": _configure_ac,
    "configure.in": _configure_ac,
    "Makefile.am": _makefile_am,
    "meson.build": _meson_build,
    ".csproj": _csproj,
    ".fsproj": _csproj,
    "pubspec.yaml": _pubspec,
    "Package.swift": _package_swift,
    ".cabal": _cabal,
}
"""Readers by the name or the suffix of the file."""
