"""What the surveyor makes of single files: manifests, readmes, comments, names."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from tests import tables

from lcp_engine.features.surveyor.builds.makefile import programs
from lcp_engine.features.surveyor.builds.manifests import is_manifest, read_manifest
from lcp_engine.features.surveyor.findings import commands, licence_of, open_ends, version_of
from lcp_engine.features.surveyor.languages import language_of
from lcp_engine.features.surveyor.markdown import code, plain, size, table
from lcp_engine.features.surveyor.opening import first_words
from lcp_engine.features.surveyor.readme import read_readme
from lcp_engine.features.surveyor.tree import File, Tree, read_listing

POM = """
<project>
  <parent><artifactId>p</artifactId></parent>
  <artifactId>a</artifactId>
  <dependencies>
    <dependency><artifactId>b</artifactId></dependency>
    <dependency><artifactId>c</artifactId><scope>test</scope></dependency>
  </dependencies>
  <dependencyManagement><dependencies>
    <dependency><artifactId>d</artifactId></dependency>
  </dependencies></dependencyManagement>
  <build><plugins><plugin><artifactId>e</artifactId><dependencies>
    <dependency><artifactId>f</artifactId></dependency>
  </dependencies></plugin></plugins></build>
</project>
"""
MANIFESTS = [
    (
        "pyproject.toml",
        '[tool.poetry]\nname = "a"\n[tool.poetry.dependencies]\npython = "3"\nb = "1"',
        {"": ("b",)},
    ),
    ("setup.cfg", "[metadata]\nname = a\n[options]\ninstall_requires =\n  b>=1\n  c", {"": ("b", "c")}),
    ("setup.py", 'setup(name="a", install_requires=["b>=1", "c[x]"])', {"": ("b", "c")}),
    ("requirements.txt", "# x\n-r other\nb==1\n  c ; python_version > '3'\n", {"": ("b", "c")}),
    ("requirements/dev.txt", "b==1 \\\n    --hash=sha256:00\n", {"pinned": ("b",)}),
    ("Pipfile", '[packages]\nb = "*"\n[dev-packages]\nc = "*"', {"": ("b",), "dev": ("c",)}),
    (
        "package.json",
        '{"name": "a", "dependencies": {"b": "1"}, "peerDependencies": {"c": "1"}}',
        {"": ("b",), "peer": ("c",)},
    ),
    ("Cargo.toml", '[package]\nname="a"\n[target."cfg(unix)".dependencies]\nb="1"', {"": ("b",)}),
    (
        "go.mod",
        "module a\nrequire b v1\nrequire (\n\tc v1 // indirect\n)\n",
        {"": ("b",), "indirect": ("c",)},
    ),
    ("pom.xml", POM, {"": ("b",), "test": ("c",)}),
    (
        "build.gradle.kts",
        'dependencies {\n  implementation("x:b:1")\n  testImplementation("x:c:1")\n}',
        {"": ("x:b",), "test": ("x:c",)},
    ),
    (
        "composer.json",
        '{"name": "a", "require": {"php": ">=8", "ext-json": "*", "x/b": "1"}}',
        {"": ("x/b",)},
    ),
    ("Gemfile", "source 'x'\ngem 'b', '~> 1'\n  gem \"c\"\n", {"default": ("b", "c")}),
    (
        "Gemfile",
        "gem 'b'\ngroup :test, :ci do\n  gem 'c'\nend\ngem 'd', group: :dev\n",
        {"default": ("b",), "test": ("c",), "dev": ("d",)},
    ),
    (
        "a.gemspec",
        's.name = "a"\ns.add_dependency "b"\ns.add_development_dependency("c")',
        {"": ("b",), "dev": ("c",)},
    ),
    ("mix.exs", 'app: :a,\ndeps: [{:b, "~> 1"}, {:c, github: "x/c"}]', {"": ("b", "c")}),
    (
        "CMakeLists.txt",
        "project(a VERSION 1.0)\nfind_package(B REQUIRED)\nadd_executable(run main.c)",
        {"find_package": ("B",)},
    ),
    ("x.csproj", '<PackageId>a</PackageId><PackageReference Include="b" Version="1" />', {"": ("b",)}),
    (
        "pubspec.yaml",
        "name: a\ndependencies:\n  b: ^1\n  # x\n  c:\n    sdk: x\ndev_dependencies:\n  d: 1\n",
        {"": ("b", "c"), "dev": ("d",)},
    ),
    (
        "Package.swift",
        'let package = Package(name: "a", dependencies: [.package(url: "https://x/b.git", from: "1")])',
        {"packages": ("b",)},
    ),
    ("a.cabal", "name: a\nlibrary\n  build-depends: base >=4, b\n    , c\n", {"": ("base", "b", "c")}),
]


@tables.table(("path", "text", "dependencies"), MANIFESTS)
def test_manifests_of_many_ecosystems_tell_their_dependencies(
    path: str, text: str, dependencies: dict[str, tuple[str, ...]]
) -> None:
    found = read_manifest(path, text)
    assert found
    assert found.dependencies == dependencies
    assert found.name in ("a", "")


@given(st.sampled_from([path for path, _, _ in MANIFESTS]), st.text(max_size=300))
def test_no_text_of_a_manifest_raises(path: str, text: str) -> None:
    assert is_manifest(path)
    read_manifest(path, text)


ODD_SHAPES = [
    "[]",
    "5",
    '"x"',
    '{"name": 5, "dependencies": [1], "scripts": "x", "bin": {"a": 1}, "license": {"type": 3}}',
]


@tables.table("text", ODD_SHAPES)
def test_json_of_another_shape_reads_as_empty(text: str) -> None:
    found = read_manifest("package.json", text)
    assert found
    assert (found.name, found.dependencies, found.entries) == ("", {}, ())


READMES = [
    (
        "# Tool\n\n[![b](u)](v)\n\n> [!NOTE]\n> x y z\n\nDoes **one** [thing](url), well.\n",
        "Tool",
        "Does one thing, well.",
    ),
    ("Tool\n====\n\n.. image:: x\n   :alt: y\n\nDoes one *thing* well.\n", "Tool", "Does one thing well."),
    ("====\nTool\n====\n\nDoes one thing well.\n", "Tool", "Does one thing well."),
    (
        "<h1 align=center>Tool</h1>\n<p><img src=x></p>\n\nDoes one thing well.",
        "Tool",
        "Does one thing well.",
    ),
    (
        "---\na: x\n---\n\n# Tool\n\n```sh\nmake it all\n```\n\n- a b c d e f\n\nDoes it well.",
        "Tool",
        "Does it well.",
    ),
    (
        "# Tool\n\nYou need Python for it.\n\n## What it is\n\nIt does one thing well.",
        "Tool",
        "It does one thing well.",
    ),
    ("# Tool\n\nYou need Python for it.\n\nTool does one thing well.", "Tool", "Tool does one thing well."),
    (
        "Welcome to tool!\n\nTool (1.2) is a runner: it runs\nthings. It can\n",
        "",
        "Tool (1.2) is a runner: it runs things.",
    ),
    ("# Tool\n\n[Docs](u) | [Chat](v) |\n[News](w)\n", "Tool", ""),
    ("# Tool\n\nTool can convert from\n\n- this\n", "Tool", ""),
    ("# Why would I use this?\n\nOther tools are slow.\n", "", ""),
    ("Built with care.\n\n## Policies\n\nReleases are announced on Mondays.\n", "", ""),
    ("# v2\n\nSome words about nothing.\n", "", ""),
    (
        "# Tool\n\n`tool` is for e.g. Windows. By [a friend][f] of [Unix][].\n",
        "Tool",
        "tool is for e.g. Windows. By a friend of Unix.",
    ),
    ("<h1>Tool</h1>\n\n<img\n  src=x>\n\nTool is \\<here\\>.", "Tool", "Tool is <here>."),
    ("", "", ""),
]


@tables.table(("text", "title", "paragraph"), READMES)
def test_a_readme_says_what_the_project_is(text: str, title: str, paragraph: str) -> None:
    path = "README.rst" if text.startswith(("Tool\n", "=")) else "README.md"
    about = read_readme(path, text, ["tool"])
    assert (about.title, about.paragraph) == (title, paragraph)


@given(st.text("#=-`<>![]()*_ \n\tab\r\"'/\\.:", max_size=200))
def test_no_readme_raises(text: str) -> None:
    for name in ("README.md", "README.rst", "README.adoc"):
        read_readme(name, text, ["a"])
    first_words(text)


FIRST_WORDS = [
    ('#!/usr/bin/env python\n# -*- coding: utf-8 -*-\n"""Do it. And more.\n\nX."""\n', "Do it."),
    ("/*\n * Copyright (c) 2020\n *\n * Renders the page.\n */\nint x;", "Renders the page."),
    ("// SPDX-License-Identifier: MIT\n\npackage x", ""),
    ("//! Runs engines.\n//! More of it.\n", "Runs engines."),
    ("-- Creates the tables\n\nCREATE", "Creates the tables"),
    ("# Of the next line\nx = 1", ""),
    ("#include <stdio.h>\n#define X\n", ""),
    ("#[test]\nfn x() {}", ""),
    ("import os\n# Not at the start\n", ""),
    ("/* a.c -- count words\n * Copyright (C) 1995 A. Person\n * For conditions see a.h\n */", "count words"),
    ("/*\n** $Id: a.c $\n** Code generator\n** See Copyright Notice in a.h\n*/\n", "Code generator"),
    ("/* Copyright 2020 A. */\n#include <a.h>\n/* Most words. */\n#define MOST 5\n", ""),
    (
        "// Licensed under the MIT licence.\n\n// Package a counts words.\npackage a\n",
        "Package a counts words.",
    ),
    ("{-# LANGUAGE CPP #-}\n{- |\n  Module : A\n  License : GPL\n\nCounts words.\n-}\n", "Counts words."),
    ("/* ____  ___\n  |____||___|\n*/\n\n// Settings\n", ""),
    ("// Code generated by moq; DO NOT EDIT.\npackage a", ""),
    ("# Counts (e.g. `words`) and\n# more\n\nx", ""),
    (
        "# Counts the words of a file (e.g. `main`). And more.\n\nx",
        "Counts the words of a file (e.g. `main`).",
    ),
    ("/* Counts the words of\n * a file and writes\n */", ""),
    ("", ""),
]


@tables.table(("text", "said"), FIRST_WORDS)
def test_a_source_says_what_it_is_in_its_first_comment(text: str, said: str) -> None:
    assert first_words(text) == said


MARKS = [
    ("x = 1  # TODO: one", "TODO: one"),
    ("/* FIXME(bob): two */", "FIXME(bob): two"),
    (" * XXX three", "XXX three"),
    ("// later. HACK: four", "HACK: four"),
    ("// TODO: what //: does", "TODO: what //: does"),
    ("print('TODO: five')", ""),
    ("# the TODO list", ""),
    ("# TODOS and MASTODON", ""),
]


VERSIONS = [
    ("VERSION", "1.14.0\n", "1.14.0"),
    ("VERSION", "see git describe\n", ""),
    ("src/version.h", '#define CORE_VERSION "7.0.15"\n#define CORE_NUM 0x7\n', "7.0.15"),
    ("src/tool/_version.py", '__version__ = "24.1"\n', "24.1"),
    ("include/tool.h", '#define TOOL_VERSION "1.2.13"\n', "1.2.13"),
    ("include/tool.h", "#define TOOL_VERSION 90100\n", "TOOL_VERSION 90100"),
    ("include/tool.h", '#define PROTOCOL_VERSION "3.1"\n', ""),
    ("tests/version.h", '#define TOOL_VERSION "1.0"\n', ""),
]


@tables.table(("path", "text", "version"), VERSIONS)
def test_a_version_is_what_a_file_for_it_states(path: str, text: str, version: str) -> None:
    tree = Tree((File.of(path),), 1, sized=False)
    assert version_of({path: text}, tree, ["tool"]) == (version, path if version else "")


MAKEFILES = [
    ("prog: a.o\n\t$(CC) -o $@ $^\n", ["prog"]),
    ("NAME=tool$(EXE)\n$(NAME): a.o\n\t@$(TOOL_LD) -o $@ $^\n", ["tool"]),
    ("tool: main.go\n\tgo build -o tool .\n", ["tool"]),
    ("a.o: a.c\n\t$(CC) -c -o $@ $<\n", []),
    ("liba.so: a.o\n\t$(CC) -shared -o $@ $^\n", []),
    ("page: page.md\n\tpandoc -o $@ $<\n", []),
    ("A=$(B)\nB=$(A)\n$(A): a.o\n\t$(CC) -o $@ $^\n", []),
]


@tables.table(("text", "names"), MAKEFILES)
def test_a_makefile_tells_the_programs_that_it_links(text: str, names: list[str]) -> None:
    assert programs(text) == names


BUILT = [
    ("CMakeLists.txt", "project(a)\nadd_executable(b x.c)\nadd_executable(c::c ALIAS b)\n", ["b"]),
    ("Makefile.am", "bin_PROGRAMS = a \\\n  b\nnoinst_PROGRAMS = c\nsbin_PROGRAMS=$(X)\n", ["a", "b"]),
    ("meson.build", "project('a', 'c', version: '1.2')\nexecutable('b', 'x.c')\n", ["b"]),
    ("a.cabal", "name: a\nexecutable b\n  main-is: x.hs\ntest-suite c\n", ["b"]),
    ("a.gemspec", "s.name = 'a'\ns.executables = ['b']\n", ["b"]),
    ("mix.exs", "app: :a,\nescript: [main_module: B.C],\n", ["escript"]),
]


@tables.table(("path", "text", "names"), BUILT)
def test_build_files_tell_the_programs_that_they_build(path: str, text: str, names: list[str]) -> None:
    found = read_manifest(path, text)
    assert found
    assert [name for name, _ in found.entries] == names


ASIDE = [
    (["package.json", "dist/a.js", "src/a.js"], ["dist/"]),
    (["dist/a.js", "src/a.js"], []),
    (["go.mod", "internal/build/a.go"], []),
    (["a.c", "deps/x/COPYING", "deps/x/x.c"], ["deps/"]),
    (["a.go", "deps/deps.go"], []),
    (["a.c", "lib/third-party/b.c"], ["lib/third-party/"]),
    (["Cargo.toml", "src/a.rs", "target/debug/a.d"], ["target/"]),
]


@tables.table(("paths", "aside"), ASIDE)
def test_directories_are_set_aside_for_a_reason(paths: list[str], aside: list[str]) -> None:
    assert list(Tree(tuple(map(File.of, paths)), len(paths), sized=False).aside) == aside


HEADERS = [
    (["include/a.h", "src/a.cc"], "C++"),
    (["include/a.h", "src/a.c"], "C"),
    (["a/x.h", "a/x.c", "b/y.cc", "b/z.cc"], "C"),
    (["b/y.h", "a/x.c", "b/y.cc"], "C++"),
]


@tables.table(("paths", "language"), HEADERS)
def test_a_header_is_of_the_language_of_the_sources_beside_it(paths: list[str], language: str) -> None:
    tree = read_listing({"files": list(paths)}, without=[])
    assert next(file.language.name for file in tree.files if file.name.endswith(".h")) == language


@tables.table(("line", "said"), MARKS)
def test_open_ends_are_marks_in_comments(line: str, said: str) -> None:
    tree = Tree((File.of("a.py"),), 1, sized=False)
    assert [end.text for end in open_ends({"a.py": f"\n{line}\n"}, tree)] == ([said] if said else [])


def test_targets_of_make_are_commands() -> None:
    text = ".PHONY: all\nX := 5\nall: build ## Everything\nbuild:\n\t@cc x.c\n%.o: %.c\n\tcc\nnothing:\n"
    found = commands({"Makefile": text}, [], Tree((), 0, sized=False))
    assert found == [
        ("make all", "Everything", "Makefile"),
        ("make build", "cc x.c", "Makefile"),
        ("make nothing", "", "Makefile"),
    ]


LICENCES = [
    ("Apache License\nVersion 2.0", "Apache-2.0"),
    ("MIT License\n\nPermission is hereby granted, free of\ncharge, to any person", "MIT"),
    ("GNU GENERAL PUBLIC LICENSE\n  Version 3, 29 June 2007", "GPL-3.0"),
    ("All mine.", ""),
    (
        "GNU GENERAL PUBLIC LICENSE\nVersion 2, June 1991\n\nSome use the GNU Lesser General Public License.",
        "GPL-2.0",
    ),
    ("Redistribution and use in source and binary forms\nNeither the name of it", "BSD-3-Clause"),
    ("Permission is hereby granted, free of charge\n\nThe manual: Creative Commons", ""),
    ("The core is under the Apache License, Version 2.0, parts under the Vim license.", ""),
]


@tables.table(("text", "name"), LICENCES)
def test_a_licence_is_known_by_its_words(text: str, name: str) -> None:
    assert licence_of(text) == name


LANGUAGES = [
    ("a/b.py", "Python"),
    ("Makefile", "Makefile"),
    ("CMakeLists.txt", "CMake"),
    ("x.d.ts", "TypeScript"),
    ("sig/a.tar.gz.asc", "Signature"),
    (".gitignore", "Git"),
    (".py", "other"),
    ("lib.so.3", "Program or library"),
    ("lcp.1", "Manual page"),
    ("noext", "other"),
    ("A.JPG", "Image"),
]


@tables.table(("path", "name"), LANGUAGES)
def test_a_language_is_told_by_the_name(path: str, name: str) -> None:
    assert language_of(path).name == name


SECRETS = [
    (".env", True),
    ("a/.env.local", True),
    (".env.example", False),
    ("x/.ssh/config", True),
    ("id_ed25519", True),
    ("server.KEY", True),
    ("secrets/a.txt", True),
    ("my-credentials.json", True),
    ("secrets.py", False),
    ("wp-config.php", True),
    (".kube.bak/config", True),
    ("credentials.tfrc.json", True),
    (".npmrc", True),
    ("a.tar.gz.asc", False),
    ("keys.md", False),
    ("environment.yml", False),
]


@tables.table(("path", "secret"), SECRETS)
def test_names_of_secrets_are_known(path: str, secret: bool) -> None:
    assert File.of(path).is_secret is secret
    assert not (secret and File.of(path).is_readable)


@given(st.text(max_size=60))
def test_any_words_stay_words_in_markdown(text: str) -> None:
    markdown = table(["a", "b"], [[plain(text), code(text)]])
    tokens = MarkdownIt("commonmark").enable("table").parse(markdown)
    inside = [child.type for token in tokens for child in token.children or ()]
    assert set(inside) <= {"text", "code_inline", "softbreak"}
    assert [token.type for token in tokens].count("td_open") == 2
    assert plain(text).isprintable()


@given(st.text(max_size=60))
def test_any_words_are_one_paragraph(text: str) -> None:
    tokens = MarkdownIt("commonmark").parse(plain(text))
    assert {token.type for token in tokens} <= {"paragraph_open", "inline", "paragraph_close"}


@tables.table(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (999_499, "999 kB"),
        (999_999, "1.0 MB"),
        (10**13, "10.0 TB"),
    ],
)
def test_sizes_read_well(count: int, text: str) -> None:
    assert size(count) == text


@tables.table(
    "text",
    [
        "a" + ".a" * 20_000 + " = 1\n",
        "[a" + ' . "a"' * 20_000 + "]\n",
        "x = {a" + ".'a'" * 20_000 + " = 1}\n",
    ],
)
@tables.table("path", ["pyproject.toml", "Cargo.toml"])
def test_a_manifest_of_endless_keys_is_not_parsed(path: str, text: str) -> None:
    manifest = read_manifest(path, '[project]\nname = "a.b.c"\n' + text)
    assert manifest is not None
    assert manifest.broken


def test_a_manifest_of_long_keys_is_parsed() -> None:
    manifest = read_manifest(
        "pyproject.toml", '[project]\nname = "n"\n[tool.a' + ".b" * 25 + "]\nx = '1.2.3'\n"
    )
    assert manifest is not None
    assert (manifest.name, manifest.broken) == ("n", False)
