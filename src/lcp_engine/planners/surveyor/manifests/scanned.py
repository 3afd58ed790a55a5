"""Read manifests that are programs or have a grammar of their own: by regular expressions, so not everything."""

from __future__ import annotations

import re

from lcp_engine.planners.surveyor.manifests.model import (
    Manifest,
    first,
    grouped,
    pair,
    prefixed,
    requirements,
)


def setup_py(text: str) -> Manifest:
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


def go_mod(text: str) -> Manifest:
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


def pom_xml(text: str) -> Manifest:
    head, _, tail = text.partition("<parent>")
    own = re.split(
        r"<(?:dependencies|dependencyManagement|build|profiles)>", head + tail.partition("</parent>")[2]
    )[0]
    found = [item.partition("</dependency>")[0] for item in text.split("<dependency>")[1:]]
    artifacts = [(first(r"<artifactId>\s*([^<]+?)\s*</", item), "<scope>test<" in item) for item in found]
    return Manifest(
        "Java",
        name=first(r"<artifactId>\s*([^<]+?)\s*</", own),
        version=first(r"<version>\s*([^<]+?)\s*</", own),
        description=first(r"<description>\s*([^<]+?)\s*</", own),
        licence=first(r"<name>\s*([^<]+?)\s*</", text.partition("<license>")[2][:1000]),
        needs=prefixed(
            "Java", first(r"<(?:maven\.compiler\.(?:release|source)|java\.version)>\s*([^<]+?)\s*</", text)
        ),
        dependencies=grouped(
            {"": [n for n, test in artifacts if not test], "test": [n for n, test in artifacts if test]}
        ),
    )


def gradle(text: str) -> Manifest:
    scope = r"\w*(?:[iI]mplementation|[aA]pi|[cC]ompileOnly|[rR]untimeOnly|classpath)"
    found = re.findall(rf"^[ \t]*({scope})\s*\(?\s*[\"']([^\"':\n]+:[^\"':\n]+)", text, re.MULTILINE)
    plugins = re.findall(r"\bid\s*\(?\s*[\"']([\w.-]+)[\"']", text)
    groups = {
        "": [name for scope, name in found if not scope.startswith("test")],
        "test": [name for scope, name in found if scope.startswith("test")],
        "plugins": plugins,
    }
    return Manifest(
        "Java", version=first(r"^version\s*=?\s*[\"']([^\"']+)", text), dependencies=grouped(groups)
    )


def gemfile(text: str) -> Manifest:
    return Manifest(
        "Ruby", dependencies=grouped({"": re.findall(r"^[ \t]*gem\s+[\"']([^\"']+)", text, re.MULTILINE)})
    )


def gemspec(text: str) -> Manifest:
    def setting(name: str) -> str:
        return first(rf"\.{name}\s*=\s*[\"']([^\"'\n]+)", text)

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
    )


def mix_exs(text: str) -> Manifest:
    return Manifest(
        "Elixir",
        name=first(r"\bapp:\s*:(\w+)", text),
        version=first(r"\bversion:\s*\"([^\"]+)", text),
        description=first(r"\bdescription:\s*\"([^\"]+)", text),
        needs=prefixed("Elixir", first(r"\belixir:\s*\"([^\"]+)", text)),
        dependencies=grouped({"": re.findall(r"\{\s*:(\w+),\s*(?:\"|github:|git:|path:)", text)}),
    )


def cmake(text: str) -> Manifest:
    targets = re.findall(r"^[ \t]*add_executable\s*\(\s*([\w.-]+)", text, re.MULTILINE | re.IGNORECASE)
    return Manifest(
        "C and C++",
        name=first(r"(?i)^[ \t]*project\s*\(\s*\"?([\w.+-]+)", text),
        version=first(r"(?i)^[ \t]*project\s*\([^)]*VERSION\s+([\d.]+)", text),
        needs=prefixed("CMake", first(r"(?i)cmake_minimum_required\s*\(\s*VERSION\s+([\d.]+)", text)),
        dependencies=grouped({"": re.findall(r"(?i)^[ \t]*find_package\s*\(\s*(\w+)", text, re.MULTILINE)}),
        entries=tuple((name, "add_executable") for name in targets),
    )


def csproj(text: str) -> Manifest:
    return Manifest(
        ".NET",
        name=first(r"<(?:PackageId|AssemblyName)>\s*([^<]+?)\s*</", text),
        version=first(r"<Version>\s*([^<]+?)\s*</", text),
        description=first(r"<Description>\s*([^<]+?)\s*</", text),
        needs=first(r"<TargetFrameworks?>\s*([^<]+?)\s*</", text),
        dependencies=grouped({"": re.findall(r"<PackageReference\s+Include=\"([^\"]+)", text)}),
    )


def pubspec(text: str) -> Manifest:
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


def package_swift(text: str) -> Manifest:
    found = re.findall(r"\.package\([^)]*url:\s*\"[^\"]*?([^/\"]+?)(?:\.git)?\"", text)
    return Manifest(
        "Swift",
        name=first(r"Package\(\s*name:\s*\"([^\"]+)", text),
        needs=prefixed("Swift", first(r"swift-tools-version:\s*([\d.]+)", text)),
        dependencies=grouped({"": found}),
    )


def cabal(text: str) -> Manifest:
    lists = re.findall(r"(?im)^[ \t]*build-depends:((?:.*\n)(?:[ \t]+[,\w].*\n)*)", f"{text}\n")
    names = re.findall(r"(?:^|,)\s*([a-zA-Z][\w-]*)", ",".join(lists))
    return Manifest(
        "Haskell",
        name=first(r"(?i)^name:\s*(\S+)", text),
        version=first(r"(?i)^version:\s*(\S+)", text),
        description=first(r"(?i)^synopsis:\s*(.+)", text),
        licence=first(r"(?i)^license:\s*(\S+)", text),
        dependencies=grouped({"": names}),
        entries=tuple((name, "executable") for name in re.findall(r"(?im)^executable\s+(\S+)", text)),
    )
