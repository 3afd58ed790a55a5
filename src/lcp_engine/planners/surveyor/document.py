"""Write SURVEY.md from what was listed and read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from lcp_engine.planners.surveyor import findings, sections
from lcp_engine.planners.surveyor.manifests import read_manifest
from lcp_engine.planners.surveyor.manifests.model import Manifest
from lcp_engine.planners.surveyor.markdown import bullets, listing, number, plain, share, short, size, visible
from lcp_engine.planners.surveyor.notable import stand_outs
from lcp_engine.planners.surveyor.readme import About, read_readme
from lcp_engine.planners.surveyor.selection import is_readme
from lcp_engine.planners.surveyor.tree import File, Tree


@dataclass(frozen=True)
class Survey:
    """Everything that is known of a project. `texts` are the files that were read, `partly` those cut to their
    first lines, `unread` the reasons of those that could not be.
    """

    directory: str
    tree: Tree
    texts: Mapping[str, str] = field(default_factory=dict)
    partly: frozenset[str] = frozenset()
    unread: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def manifests(self) -> list[Manifest]:
        """The shallowest first."""
        paths = sorted(self.texts, key=lambda path: (path.count("/"), path))
        return [found for path in paths if (found := read_manifest(path, self.texts[path]))]

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
        stated = next((m.licence for m in self.manifests if m.licence and "/" not in m.path), "")
        files = (
            findings.licence_of(self.texts.get(file.path, "")) for file in findings.licence_files(self.tree)
        )
        return stated or next(filter(None, files), "")

    @cached_property
    def about(self) -> About:
        readmes = [path for path in self.texts if "/" not in path and is_readme(File.of(path))]
        return read_readme(self.texts[readmes[0]]) if readmes else About()

    @cached_property
    def main(self) -> Manifest | None:
        """The manifest at the top that says most."""
        top = [manifest for manifest in self.manifests if "/" not in manifest.path]
        return max(top, key=lambda m: (bool(m.name), bool(m.description), bool(m.version)), default=None)

    @property
    def name(self) -> str:
        stated = self.main.name if self.main else ""
        if stated and self.main and self.main.ecosystem == "Go":
            stated = stated.rpartition("/")[2]
        return visible(short(stated or self.about.title or self.directory or "this directory", 80))

    @cached_property
    def stand_outs(self) -> list[str]:
        return stand_outs(self.tree, self.manifests, self.licence, self.tests)

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
        written = f", written in {', '.join(named)}." if named else ", none of them source code."
        facts = [f"the licence {self.licence}" if self.licence else "no stated licence"]
        facts.append(number(self.tests.files, "test file") if self.tests.files else "no tests")
        systems = list(findings.find_ci(self.tree))
        facts.append(f"CI by {listing(systems, 3)}" if systems else "no CI")
        return f"{first}{written} It has {', '.join(facts[:-1])} and {facts[-1]}."

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
        description = self.main.description if self.main else ""
        if self.about.paragraph:
            yield f"> {plain(self.about.paragraph, 600)}"
        if description and description.rstrip(".").casefold() not in self.about.paragraph.casefold():
            yield plain(description, 300)
        yield plain(self.summary, 600)

    def _sections(self) -> Iterator[str]:
        titled = {
            "At a glance": sections.glance(self),
            "What stands out": bullets(self.stand_outs),
            "Languages": sections.languages(self),
            "Layout": sections.layout(self),
            "What the sources say of themselves": sections.sources(self),
            "Entry points": sections.entry_points(self),
            "Commands": sections.commands(self),
            "Dependencies": sections.dependencies(self),
            "Tests": sections.tests(self),
            "Continuous integration": sections.integration(self),
            "Open ends": sections.open_ends(self),
            "Largest files": sections.largest(self),
            "What was not looked at": sections.left_out(self),
        }
        yield from (f"## {title}\n\n{body}" for title, body in titled.items() if body)
