"""Write SURVEY.md from what was listed and read: each section is a function, empty if it has nothing to report."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from lcp_engine.features.surveyor import findings
from lcp_engine.features.surveyor.builds.manifest import Manifest
from lcp_engine.features.surveyor.builds.manifests import is_manifest, read_manifest, without_own
from lcp_engine.features.surveyor.findings import stand_outs
from lcp_engine.features.surveyor.languages import Sort
from lcp_engine.features.surveyor.layout import Row, lay_out
from lcp_engine.features.surveyor.markdown import (
    bullets,
    code,
    listing,
    number,
    plain,
    share,
    short,
    size,
    table,
    visible,
)
from lcp_engine.features.surveyor.opening import first_words
from lcp_engine.features.surveyor.readme import About, read_readme, same_name, whole_sentences
from lcp_engine.features.surveyor.selection import is_main_manifest, is_readme
from lcp_engine.features.surveyor.tree import EXCLUDED, File, Tree


@dataclass(frozen=True)
class Survey:
    """Everything that is known about a project."""

    directory: str
    tree: Tree
    texts: Mapping[str, str] = field(default_factory=dict)
    """The files that were read."""
    partly: frozenset[str] = frozenset()
    """Those of them of which only the first lines were read."""
    unread: Mapping[str, str] = field(default_factory=dict)
    """The files that could not be read, with the reasons."""

    @cached_property
    def _all_manifests(self) -> list[Manifest]:
        main = (path for path in self.texts if is_main_manifest(File.of(path)))
        paths = sorted(main, key=lambda path: (path.count("/"), path))
        found = (read_manifest(path, self.texts[path]) for path in paths)
        return [
            replace(manifest, cut=manifest.cut or manifest.path in self.partly)
            for manifest in found
            if manifest
        ]

    @cached_property
    def manifests(self) -> list[Manifest]:
        """Those that were read and can be parsed, the shallowest first."""
        return without_own(manifest for manifest in self._all_manifests if not manifest.broken)

    @cached_property
    def broken(self) -> list[str]:
        """The manifests that were read and cannot be parsed."""
        return [manifest.path for manifest in self._all_manifests if manifest.broken]

    @cached_property
    def unread_manifests(self) -> list[str]:
        """The manifests that nothing is taken from: only listed, or of documentation, tests, tools and the like."""
        listed = (file for file in self.tree.own if is_manifest(file.path))
        return [file.path for file in listed if file.is_beside or file.path not in self.texts]

    @cached_property
    def tests(self) -> findings.Tests:
        return findings.find_tests(self.tree, self.manifests)

    @cached_property
    def open_ends(self) -> list[findings.OpenEnd]:
        return findings.open_ends(self.texts, self.tree)

    @cached_property
    def languages(self) -> list[tuple[str, int, int]]:
        """(name, files, bytes) of code, the largest first."""
        found: dict[str, tuple[int, int]] = {}
        for file in self.tree.code:
            files, count = found.get(file.language.name, (0, 0))
            found[file.language.name] = (files + 1, count + file.size)
        return sorted(
            ((name, *sums) for name, sums in found.items()), key=lambda row: (-row[2], -row[1], row[0])
        )

    @cached_property
    def licence(self) -> str:
        """As a manifest at the top states it; else by the words of a file at the top, or the name of that file."""
        stated = next((m.licence for m in self.manifests if m.licence and not m.directory), "")
        files = findings.licence_files(self.tree)
        known = ((findings.licence_of(self.texts.get(file.path, "")), file.path) for file in files)
        by_words = next((f"{name} ({path})" for name, path in known if name), "")
        return stated or by_words or (f"see {files[0].path}" if files else "")

    @cached_property
    def about(self) -> About:
        path = next((path for path in self.texts if "/" not in path and is_readme(File.of(path))), "")
        names = [self.directory, *(manifest.name for manifest in self._at_top), self._go_name]
        return read_readme(path, self.texts.get(path, ""), names)

    @property
    def _at_top(self) -> list[Manifest]:
        return [manifest for manifest in self.manifests if not manifest.directory]

    @cached_property
    def main(self) -> Manifest | None:
        """The manifest at the top that says most."""
        return max(
            self._at_top, key=lambda m: (bool(m.name), bool(m.description), bool(m.version)), default=None
        )

    @property
    def _go_name(self) -> str:
        """The last part of a Go module's path that is not a major version."""
        path = next((m.name for m in self._at_top if m.ecosystem == "Go"), "")
        return re.sub(r"/v\d+$", "", path).rpartition("/")[2]

    @property
    def name(self) -> str:
        """As a manifest for packages states it; else as the readme spells it; else by a build file or the directory."""
        built = self.main is not None and self.main.ecosystem in _NAME_TARGETS
        stated = self.main.name if self.main and not built else ""
        identifier = self._go_name or (self.main.name if self.main else "")
        known = [self.directory, identifier]
        spellings = [spelled for spelled in (self.about.title, self.about.subject) if spelled]
        spelled = next((s for s in spellings if any(same_name(s, name) for name in known)), "")
        subject = self.about.subject if self.about.subject != "This" else ""
        found = stated or spelled or self.about.title or subject or identifier or self.directory
        return visible(short(found or "this directory", 80))

    @cached_property
    def version(self) -> tuple[str, str]:
        """(version, the file that states it), both empty if none does."""
        return next(iter(self.versions), ("", ""))

    @cached_property
    def versions(self) -> list[tuple[str, str]]:
        """Versions that a manifest at the top states, and what a file for the version does."""
        manifest = next(((m.version, m.path) for m in self._at_top if m.version), ("", ""))
        own = findings.version_of(self.texts, self.tree, {self.name, self.directory})
        return [stated for stated in (manifest, own) if stated[0]]

    @cached_property
    def stand_outs(self) -> list[str]:
        return stand_outs(
            self.tree, self.manifests, self.licence, self.tests, self.broken, versions=self.versions
        )

    @cached_property
    def summary(self) -> str:
        """The project in two sentences, as plain text."""
        if not self.tree.files:
            return f"{self.name} holds no files that a survey looks at."
        first = f"{self.name} has {number(len(self.tree.files), 'file')} ({size(self.tree.size)})"
        whole = sum(row[2] for row in self.languages)
        named = [
            f"{name} {share(count, whole)}" for name, _, count in self.languages[:3] if count * 100 >= whole
        ]
        written = (
            f"; its sources are, by their names, {', '.join(named)}."
            if named
            else ", none of them source code."
        )
        systems = list(findings.find_ci(self.tree))
        facts = (
            f"Licence: {self.licence or 'none found'}",
            f"tests: {number(self.tests.files, 'file') if self.tests.files else 'none found'}",
            f"CI: {listing(systems, 3) if systems else 'none found'}",
        )
        return f"{first}{written} {'; '.join(facts)}."

    @property
    def metrics(self) -> dict[str, int]:
        return {
            "files_listed": len(self.tree.files),
            "bytes_listed": self.tree.size,
            "files_read": len(self.texts),
            "languages": len(self.languages),
            "test_files": self.tests.files,
            "open_ends": len(self.open_ends),
            "stand_outs": len(self.stand_outs),
        }

    def markdown(self) -> str:
        parts = [f"# Survey of {plain(self.name, 100)}", *self._opening(), *self._sections()]
        return "\n\n".join(part for part in parts if part) + "\n"

    def _opening(self) -> Iterator[str]:
        description = " ".join(self.main.description.split()) if self.main else ""
        if len(description) > _LONGEST_DESCRIPTION:
            description = whole_sentences(description)
        said = self.about.paragraph.casefold()
        if said:
            yield f"> {plain(self.about.paragraph, 600)}"
        told = said and description.casefold().startswith(said)
        if description and not told and description.rstrip(".").casefold() not in said:
            yield plain(description, 600)
        yield plain(self.summary, 600)

    def _sections(self) -> Iterator[str]:
        titled = {
            "At a glance": _glance(self),
            "What stands out": bullets(self.stand_outs),
            "Languages": _languages(self),
            "Layout": _layout(self),
            "What sources say of themselves": _sources(self),
            "Entry points": _entry_points(self),
            "Commands": _commands(self),
            "Dependencies": _dependencies(self),
            "Tests": _tests(self),
            "Continuous integration": _integration(self),
            "Open ends in the files that were read": _open_ends(self),
            "Largest files": _largest(self),
            "What was not looked at": _left_out(self),
        }
        yield from (f"## {title}\n\n{body}" for title, body in titled.items() if body)


# What these name is an address or a target of the build, which the project itself may not be called by.
_NAME_TARGETS = frozenset({"Go", "CMake", "Autoconf"})
_LONGEST_DESCRIPTION = 300
_MOST_LANGUAGES = 12
_MOST_ROWS = 15
_MOST_OPEN_ENDS = 20
_MOST_NAMES = 25
_ONLY_COUNTED = frozenset({"pinned", "indirect"})
_NO_NEED = _ONLY_COUNTED | {"find_package"}


def _glance(survey: Survey) -> str:
    tree, main, tests = survey.tree, survey.main, survey.tests
    if not tree.files:
        return ""
    code_size = sum(file.size for file in tree.code)
    rows = {
        "Files": f"{number(len(tree.files), 'file')}, {size(tree.size)}{_of_these(tree)}",
        "Source code": f"{number(len(tree.code), 'file')}, {size(code_size)}" if tree.code else "none",
        "Version": f"{code(survey.version[0], 40)} ({code(survey.version[1])})" if survey.version[0] else "",
        "Needs": plain(main.needs, 100) if main else "",
        "Licence": plain(survey.licence, 60) or "not found",
        "Dependencies": _dependencies_in_short(survey),
        "Tests": _tests_in_short(survey) if tests.files else "none found",
        "CI": ", ".join(findings.find_ci(tree)) or "none found",
    }
    return table(["", ""], [[f"**{title}**", value] for title, value in rows.items() if value])


def _of_these(tree: Tree) -> str:
    others = len(tree.files) - len(tree.own)
    return (f", {others:,} of them set aside" if others else "") + (", and more" if tree.truncated else "")


def _dependencies_in_short(survey: Survey) -> str:
    groups: dict[str, set[str]] = {}
    for manifest in survey.manifests:
        for group, names in manifest.dependencies.items():
            groups.setdefault(group, set()).update(names)
    counted = {
        group: len(names)
        for group, names in sorted(groups.items(), key=lambda item: bool(item[0]))
        if group not in _NO_NEED
    }
    some = [f"{count:,} {plain(group, 30) if group else 'to run'}" for group, count in counted.items()]
    if not some:
        return ""
    unread = [path for path in survey.unread_manifests if not File.of(path).is_beside]
    where = (
        f" in {len(survey.manifests)} of {len(survey.manifests) + len(unread):,} manifests" if unread else ""
    )
    at_least = "at least " if any(manifest.cut for manifest in survey.manifests) else ""
    return f"{at_least}{listing(some, 5)}{where}"


def _tests_in_short(survey: Survey) -> str:
    tests = survey.tests
    code_size = sum(file.size for file in survey.tree.code)
    with_ = f"; named frameworks: {plain(', '.join(tests.frameworks), 100)}" if tests.frameworks else ""
    of_code = f"{tests.code:,} of source code, {share(tests.size, code_size)} of it"
    return f"{number(tests.files, 'file')} ({of_code}){with_}" if tests.code else number(tests.files, "file")


def _languages(survey: Survey) -> str:
    rows = survey.languages
    whole = sum(row[2] for row in rows)
    most = (
        sum(count >= whole / 1000 for _, _, count in rows[:_MOST_LANGUAGES]) if len(rows) > 5 else len(rows)
    )
    shown = rows[:most]
    if rest := rows[most:]:
        shown = [*shown, (f"{len(rest)} more", sum(r[1] for r in rest), sum(r[2] for r in rest))]
    lines = [
        [
            name,
            f"{files:,}",
            size(count),
            share(count, whole),
            "█" * round(20 * count / whole) if whole else "",
        ]
        for name, files, count in shown
    ]
    code_table = table(["Language", "Files:", "Size:", "Share:", ""], lines) if lines else ""
    return "\n\n".join(filter(None, (code_table, _besides_code(survey))))


def _besides_code(survey: Survey) -> str:
    rows = []
    for sort in (Sort.PROSE, Sort.DATA, Sort.BINARY, Sort.OTHER):
        files = [file for file in survey.tree.own if file.language.sort is sort]
        if files:
            rows.append(
                [sort.value, f"{len(files):,}", size(sum(f.size for f in files)), _kinds(files, sort)]
            )
    return table(["Besides code", "Files:", "Size:", "Mostly"], rows) if rows else ""


def _kinds(files: list[File], sort: Sort) -> str:
    """The most frequent languages, or suffixes where the language is not known."""
    if sort is not Sort.OTHER:
        counted = Counter(file.language.name for file in files)
        return ", ".join(f"{name} ({count:,})" for name, count in _most_frequent(counted, 4))
    suffixes = Counter(f".{f.name.rpartition('.')[2]}" if "." in f.name[1:] else "no suffix" for f in files)
    return ", ".join(f"{code(name, 24)} ({count:,})" for name, count in _most_frequent(suffixes, 4))


def _most_frequent(counted: Counter[str], most: int) -> list[tuple[str, int]]:
    return sorted(counted.items(), key=lambda item: (-item[1], item[0]))[:most]


def _layout(survey: Survey) -> str:
    rows = lay_out(survey.tree, survey.manifests)
    if not rows:
        return ""
    return table(
        ["Directory", "Files:", "Size:", "Mostly", "Package"],
        (
            [_directory(row), f"{row.files:,}", size(row.size), row.mostly, plain(row.package, 80)]
            for row in rows
        ),
    )


def _directory(row: Row) -> str:
    indent = "&emsp;" * row.depth
    if not row.path or row.path.startswith("… "):
        return f"{indent}{row.path or '(top)'}"
    return f"{indent}{code(row.path, 60)}"


def _sources(survey: Survey) -> str:
    """The first sentence of each source that was read, and its length."""
    rows = []
    for path, text in sorted(survey.texts.items()):
        file = survey.tree.by_path.get(path)
        if file and file.is_code and not is_manifest(path) and (said := first_words(text)):
            more = "+" if path in survey.partly else ""
            rows.append([code(path, 70), f"{len(text.splitlines()):,}{more}", plain(said)])
    return table(["File", "Lines:", "Begins with"], rows) if rows else ""


def _entry_points(survey: Survey) -> str:
    lines = findings.entry_points(survey.texts, survey.manifests, survey.tree)
    more = len(lines) - _MOST_ROWS
    return bullets([*lines[:_MOST_ROWS], f"and {more:,} more"] if more > 0 else lines)


def _commands(survey: Survey) -> str:
    found = findings.commands(survey.texts, survey.manifests, survey.tree)
    rows = [[code(name, 50), code(what, 90) if what else "", code(path, 50)] for name, what, path in found]
    shown = rows[:_MOST_ROWS]
    if len(rows) > len(shown):
        shown.append([f"and {len(rows) - len(shown):,} more", "", ""])
    return table(["Command", "Says or first runs", "Where"], shown) if shown else ""


def _dependencies(survey: Survey) -> str:
    parts = [_dependencies_of(manifest) for manifest in survey.manifests if manifest.dependencies]
    unread = survey.unread_manifests
    beside = [path for path in unread if File.of(path).is_beside]
    if main := [path for path in unread if path not in beside]:
        parts.append(
            f"Not read: {number(len(main), 'further manifest')}, {listing([code(p) for p in main], 3)}."
        )
    if beside:
        what = number(len(beside), "manifest")
        parts.append(
            f"Left out: {what} of documentation, tests, examples or tools, {listing([code(p) for p in beside], 3)}."
        )
    return "\n\n".join(parts)


def _dependencies_of(manifest: Manifest) -> str:
    title = " ".join(filter(None, (manifest.name, manifest.version)))
    head = f"**{code(manifest.path)}** — {', '.join(filter(None, (manifest.ecosystem, plain(title, 80))))}"
    if manifest.cut:
        head += "; only its beginning was looked at, so these are the least:"
    groups = [
        f"{plain(name, 40) if name else 'to run'} ({len(names):,}){_names(name, names)}"
        for name, names in manifest.dependencies.items()
    ]
    further = [f"and {len(groups) - 8} further groups"] if len(groups) > 8 else []
    return f"{head}\n\n{bullets([*groups[:8], *further])}"


def _names(group: str, names: tuple[str, ...]) -> str:
    """Pinned and indirect dependencies are only counted."""
    return "" if group in _ONLY_COUNTED else f": {listing([code(name, 60) for name in names], _MOST_NAMES)}"


def _tests(survey: Survey) -> str:
    found = survey.tests
    if not found.files:
        return ""
    places = [f"{code(path)} ({number(count, 'file')})" for path, count in found.places]
    return f"{_tests_in_short(survey)}. They lie in {listing(places, 8)}."


def _integration(survey: Survey) -> str:
    lines = []
    for system, files in findings.find_ci(survey.tree).items():
        lines += [f"{system}: {code(f.path)}{_workflow(survey.texts.get(f.path, ''))}" for f in files[:8]]
        if len(files) > 8:
            lines.append(f"{system}: {len(files) - 8:,} more")
    return bullets(lines)


def _workflow(text: str) -> str:
    """The name of a workflow and the first commands of one line that it runs."""
    name = re.search(r"(?m)^name:[ \t]*[\"']?([^\n\"']+)", text)
    runs = re.findall(r"(?m)^[ \t]*-?[ \t]*run:[ \t]*([^|>\s][^\n]*)", text)
    said = f" — {plain(name[1], 60)}" if name else ""
    some = [code(re.sub(r"^([\"'])(.*)\1$", r"\2", run.strip()), 60) for run in dict.fromkeys(runs)][:4]
    return f"{said}: runs {', '.join(some)} and more" if some else said


def _open_ends(survey: Survey) -> str:
    found = survey.open_ends
    lines = [
        f"{code(f'{end.path}:{end.line}')} {plain(end.text, 140)}{f' ({end.times} times)' if end.times > 1 else ''}"
        for end in found[:_MOST_OPEN_ENDS]
    ]
    if len(found) > len(lines):
        lines.append(f"and {len(found) - len(lines):,} more in the files that were read")
    return bullets(lines)


def _largest(survey: Survey) -> str:
    tree = survey.tree
    files = sorted(tree.own, key=lambda file: (-file.size, file.path))[:10]
    large = [file for file in files if file.size >= max(1, tree.size / 100)]
    rows = [[code(f.path, 90), size(f.size), share(f.size, tree.size), f.language.name] for f in large]
    return table(["File", "Size:", "Share:", "Language"], rows) if len(rows) > 1 else ""


def _left_out(survey: Survey) -> str:
    tree = survey.tree
    names = ", ".join(code(name) for name in EXCLUDED)
    lines = [f"Symbolic links, and directories with these names, if there are any: {names}."]
    if tree.truncated:
        left = tree.total - len(tree.files)
        lines.append(f"**The listing was cut**: at least {number(left, 'file')} beyond the cap.")
    read = len(survey.texts)
    lines += [f"{code(path)} could not be listed." for path in tree.skipped[:10]]
    lines.append(f"{number(read, 'file was', 'files were')} read, {len(tree.files) - read:,} only listed.")
    if survey.partly:
        names = listing([code(path) for path in sorted(survey.partly)], 8)
        lines.append(f"Only the beginning was read of {names}.")
    for path, reason in list(survey.unread.items())[:10]:
        lines.append(f"{code(path)} was not read: {plain(reason, 160)}")
    return bullets(lines)
