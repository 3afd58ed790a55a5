"""Read the manifests of many ecosystems: name, version, dependencies, entry points, commands."""

from __future__ import annotations

import configparser
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from lcp_engine.features.surveyor.builds.manifest import Manifest, NotAManifestError
from lcp_engine.features.surveyor.builds.parsed_manifests import PARSED
from lcp_engine.features.surveyor.builds.scanned_manifests import SCANNED, requirements_txt

# Regular expressions may take time quadratic in the length: the rest of a longer manifest is ignored.
_MOST_SCANNED = 64 * 1024


def is_manifest(path: str) -> bool:
    return _reader(path) is not None


def read_manifest(path: str, text: str) -> Manifest | None:
    """The content of the manifest `path`, `broken` if it cannot be parsed; None if it is not a manifest."""
    reader = _reader(path)
    if reader is None:
        return None
    text = text.removeprefix("\ufeff")
    cut = reader in SCANNED.values() and len(text) > _MOST_SCANNED
    try:
        found = reader(text[:_MOST_SCANNED] if cut else text)
    except NotAManifestError:
        return None
    except (ValueError, RecursionError, configparser.Error):
        return Manifest("", path=path, broken=True)
    if reader is requirements_txt:
        found = replace(found, dependencies=_by_file_name(path, found.dependencies))
    return replace(found, path=path, cut=cut)


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
    """Read what `requirements-dev.txt` lists as needed for `dev`; pins are only counted."""
    name = path.rpartition("/")[2].removesuffix(".txt")
    kind = re.sub(r"requirements|^[-_.]+|[-_.]+$", "", name).strip("-_.")
    return {group or kind: names for group, names in groups.items()}


def _reader(path: str) -> Callable[[str], Manifest] | None:
    name = path[path.rfind("/") + 1 :]
    if name == "PKG-INFO" and name != path:
        return None
    # Deeper down it is rather a module that sets something up.
    if name == "setup.py" and path.count("/") > 1:
        return None
    if name.endswith(".txt") and (name.startswith("requirements") or path.startswith("requirements/")):
        return requirements_txt
    suffix = name[name.rfind(".") :] if "." in name else ""
    return PARSED.get(name) or SCANNED.get(name) or SCANNED.get(suffix)
