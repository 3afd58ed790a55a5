"""Programs are shown the toolchains that they need, where each manager keeps them, without its credentials."""

from __future__ import annotations

import os
import shutil
import subprocess
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.tables import table
from tests.walls import NEEDS_LANDLOCK

from lcp_engine.core.mission.spec import Commands
from lcp_engine.features.programs.programs import ProgramsUnderWay, run_program
from lcp_engine.features.programs.run_command import RunCommandResult, Surroundings, run_behind_wall
from lcp_engine.features.programs.wall.programs import Ended, Program
from lcp_engine.features.programs.wall.toolchains import Toolchain, joined_variables, toolchain_of
from lcp_engine.features.programs.wall.views.seen_root import RootAccess
from lcp_engine.sandbox.root import Root


def program(path: Path, text: str = "#!/bin/true\n") -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def write(path: Path, text: str = "") -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return str(path)


def shown(toolchain: Toolchain, home: Path) -> list[str]:
    """The places in the home directory."""
    return sorted(
        str(Path(one.source).relative_to(home)) for one in toolchain.places if str(home) in one.source
    )


def masked(toolchain: Toolchain, home: Path) -> list[str]:
    return sorted(str(Path(file).relative_to(home)) for one in toolchain.places for file in one.masked)


def test_cargo_is_shown_what_it_reads_without_the_tokens_of_registries(tmp_path: Path) -> None:
    cargo = program(tmp_path / ".cargo/bin/cargo")
    for name in ("credentials.toml", "credentials", "config.toml", "registry/index"):
        write(tmp_path / ".cargo" / name, "[build]\njobs = 2\n")
    write(tmp_path / ".rustup/settings.toml")
    found = toolchain_of(cargo, tmp_path, {})
    assert shown(found, tmp_path) == [".cargo", ".rustup"]
    assert masked(found, tmp_path) == [".cargo/credentials", ".cargo/credentials.toml"]
    assert found.variables == {"CARGO_HOME": f"{tmp_path}/.cargo", "RUSTUP_HOME": f"{tmp_path}/.rustup"}
    (place,) = (one for one in found.places if one.source.endswith(".cargo"))
    assert place.is_written
    assert sorted(place.parts) == [f"{place.source}/{name}" for name in ("bin", "config.toml", "registry")]


@table(
    ("name", "text", "is_masked"),
    [
        (".cargo/config.toml", "[registries.own]\ntoken = 'x'\n", True),
        (".cargo/config.toml", "[registries.own]\nindex = 'x'\n", False),
        (".m2/settings.xml", "<settings><server><password>x</password></server></settings>", True),
        (".m2/settings.xml", "<settings><!-- <password>x</password> --></settings>", False),
        (".m2/settings-security.xml", "", True),
        (".gradle/gradle.properties", "mavenPassword=x\n", True),
        (".gradle/gradle.properties", "org.gradle.jvmargs=-Xmx1g\n", False),
        (".gradle/init.d/own.gradle", "credentials { password = 'x' }", True),
        (".gradle/init.gradle", "credentials { username 'ada'\npassword 'x' }", True),
        (".gradle/init.d/own.gradle.kts", 'credentials { password("x") }', True),
        (".gradle/init.d/own.gradle", 'ext.nexusPwd = "x"', True),
        (".gradle/init.d/own.gradle", "repositories { mavenCentral() } // no passwords here", False),
        (".gradle/gradle.properties", "mavenPass=x\n", True),
        (".gradle/gradle.properties", "org.gradle.bypass.passes=1\n", False),
        (".cargo/config.toml", "[env]\nGH_PAT = 'x'\n", True),
        (".cargo/config.toml", "[http]\nproxy = 'ada:x@proxy.example.org:8080'\n", True),
        (".cargo/config.toml", "[registries.own]\nindex = 'ssh://git@example.org/index'\n", False),
        (".m2/settings.xml", "<url>scm:git:git@example.org:a/b.git</url>", False),
        (".m2/settings.xml.bak", "", True),
        (".cargo/credentials.toml.old", "", True),
        (".cargo/config.toml", "[http]\nproxy = 'http://ada:x@proxy.example.org:8080'\n", True),
        (".cargo/config.toml", "[registries.own]\nindex = 'sparse+https://x@example.org/'\n", True),
        (".cargo/config.toml", "[registries.own]\nindex = 'ssh://git@example.org/x'\n", False),
        (".m2/settings.xml", "<mirror><url>https://ada:x@example.org/</url></mirror>", True),
        (".gradle/gradle.properties", "ownApiKey=x\n", True),
    ],
)
def test_a_configuration_with_a_credential_is_masked(
    tmp_path: Path, name: str, text: str, *, is_masked: bool
) -> None:
    home = tmp_path / "home"
    shutil.rmtree(home, ignore_errors=True)
    write(home / name, text)
    tool = {".cargo": "cargo", ".m2": "mvn", ".gradle": "gradle"}[name.partition("/")[0]]
    found = toolchain_of(program(tmp_path / "bin" / tool), home, {})
    assert masked(found, home) == ([name] if is_masked else [])


@table(
    ("path", "places"),
    [
        (".pyenv/shims/python3", [".pyenv"]),
        (".rbenv/shims/ruby", [".rbenv"]),
        (".asdf/shims/node", [".asdf"]),
        (".local/share/mise/shims/node", [".local/share/mise"]),
        (".nvm/versions/node/v22.1.0/bin/node", [".nvm/versions/node/v22.1.0"]),
        (".sdkman/candidates/java/21/bin/java", [".sdkman/candidates/java/21"]),
        ("miniconda3/envs/own/bin/python", ["miniconda3/envs/own"]),
        ("go/bin/stringer", ["go/bin"]),
        (".local/bin/tool", [".local/bin"]),
    ],
)
def test_a_manager_is_shown_as_far_as_a_program_of_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, places: list[str]
) -> None:
    home = tmp_path / path.replace("/", "_")
    monkeypatch.setenv("HOME", str(home))
    write(home / ".ssh/id_ed25519")
    found = toolchain_of(program(home / path), home, {})
    assert shown(found, home) == places


def test_a_tool_of_uv_is_found_by_its_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    tool = program(tmp_path / ".local/share/uv/tools/ruff/bin/ruff")
    write(tmp_path / ".local/share/uv/credentials/credentials.toml")
    write(tmp_path / ".local/share/uv/python/cpython/bin/python3")
    write(tmp_path / ".cache/uv/CACHEDIR.TAG")
    (tmp_path / ".local/bin").mkdir()
    link = tmp_path / ".local/bin/ruff"
    link.symlink_to(tool)
    assert ".local/share/uv/tools/ruff" in shown(toolchain_of(str(link), tmp_path, {}), tmp_path)
    uv = program(tmp_path / ".local/bin/uv")
    places = [".local/bin", ".local/share/uv/python", ".local/share/uv/tools"]
    assert shown(toolchain_of(uv, tmp_path, {}), tmp_path) == [".cache/uv", *places]
    assert shown(toolchain_of(uv, tmp_path, {}, can_write=False), tmp_path) == places
    written = {one.source for one in toolchain_of(uv, tmp_path, {}).places if one.is_written}
    assert written == {f"{tmp_path}/{one}" for one in (".cache/uv", *places[1:])}  # uvx locks them


@table(
    ("name", "stores"),
    [
        ("node", {".yarn/berry": "YARN_GLOBAL_FOLDER"}),
        ("yarn", {".yarn/berry": "YARN_GLOBAL_FOLDER"}),
        ("bun", {".bun/install/cache": "BUN_INSTALL_CACHE_DIR"}),
        (
            "pnpm",
            {".local/share/pnpm/store": "pnpm_config_store_dir", ".cache/pnpm": "pnpm_config_cache_dir"},
        ),
    ],
)
def test_packages_that_lie_in_the_home_directory_are_found(
    tmp_path: Path, name: str, stores: dict[str, str]
) -> None:
    """Plug'n'Play of Yarn runs them from there; pnpm else looks for a store on the file system of the root."""
    for place in stores:
        (tmp_path / place).mkdir(parents=True, exist_ok=True)
    found = toolchain_of(f"/usr/bin/{name}", tmp_path, {})
    assert {
        variable: f"{tmp_path}/{place}" for place, variable in stores.items()
    }.items() <= found.variables.items()
    assert {*stores} <= {*shown(found, tmp_path)}


def test_a_directory_that_a_variable_names_comes_first(tmp_path: Path) -> None:
    write(tmp_path / ".cargo/config.toml")
    write(tmp_path / "own/cargo/config.toml")
    found = toolchain_of("/usr/bin/cargo", tmp_path, {"CARGO_HOME": f"{tmp_path}/own/cargo"})
    assert found.variables == {"CARGO_HOME": f"{tmp_path}/own/cargo"}
    assert shown(found, tmp_path) == ["own/cargo"]


def test_a_program_shows_no_secret_that_lies_beside_it(tmp_path: Path) -> None:
    tool = program(tmp_path / "src/tools/bin/tool")
    for name in (".env", ".git/config", "deploy.key", "lib/it", "README.md"):
        write(tmp_path / "src/tools" / name)
    found = toolchain_of(tool, tmp_path, {})
    assert masked(found, tmp_path) == ["src/tools/.env", "src/tools/.git", "src/tools/deploy.key"]
    (place,) = (one for one in found.places if one.source.endswith("tools"))
    assert sorted(place.parts) == [f"{place.source}/{name}" for name in ("README.md", "bin", "lib")]


@table("place", ["", "/", "{home}", "{home}/..", "cargo", "{home}/missing"])
def test_no_variable_shows_the_home_directory(tmp_path: Path, place: str) -> None:
    home = tmp_path / "home"
    home.mkdir(exist_ok=True)
    found = toolchain_of("/usr/bin/cargo", home, {"CARGO_HOME": place.format(home=home)})
    assert shown(found, home) == []
    assert found.variables == {}


def test_a_program_that_runs_others_needs_what_they_need(tmp_path: Path) -> None:
    write(tmp_path / ".cargo/config.toml")
    write(tmp_path / "go/pkg/mod/cache/lock")
    program(tmp_path / "bin/cargo")
    path = {"PATH": str(tmp_path / "bin")}
    assert ".cargo" in shown(toolchain_of("/usr/bin/make", tmp_path, path), tmp_path)
    assert "go/pkg/mod" not in shown(toolchain_of("/usr/bin/make", tmp_path, path), tmp_path)
    assert ".cargo" not in shown(toolchain_of("/usr/bin/git", tmp_path, path), tmp_path)
    root = tmp_path / "root"
    script = program(root / "build")
    assert ".cargo" in shown(toolchain_of(script, tmp_path, path, foreign=[str(root)]), tmp_path)
    # A cargo of the root is no toolchain, wherever PATH leads.
    program(root / "bin/cargo")
    path = {"PATH": str(root / "bin")}
    assert ".cargo" not in shown(toolchain_of(script, tmp_path, path, foreign=[str(root)]), tmp_path)


def test_certificates_that_a_variable_names_are_shown_unless_a_key_is_with_them(tmp_path: Path) -> None:
    certificate = write(tmp_path / "ca/own.pem", "-----BEGIN CERTIFICATE-----\n")
    environment = {
        "SSL_CERT_FILE": certificate,
        "SSL_CERT_DIR": f"{tmp_path}/ca",
        "PIP_CERT": f"{tmp_path}/none",
    }
    found = toolchain_of("/usr/bin/curl", tmp_path, environment)
    assert found.variables == {"SSL_CERT_DIR": f"{tmp_path}/ca", "SSL_CERT_FILE": certificate}
    assert shown(found, tmp_path) == ["ca"]
    write(tmp_path / "ca/key.pem", "-----BEGIN EC PRIVATE KEY-----\n")
    assert toolchain_of("/usr/bin/curl", tmp_path, environment).variables == {"SSL_CERT_FILE": certificate}


def test_caches_are_overlays_and_all_else_is_only_read(tmp_path: Path) -> None:
    cargo = program(tmp_path / ".cargo/bin/cargo")
    for name in ("credentials.toml", "config.toml", "registry/index"):
        write(tmp_path / ".cargo" / name)
    write(tmp_path / ".rustup/settings.toml")
    found = toolchain_of(cargo, tmp_path, {})
    binds = [one for one in found.binds() if str(tmp_path) in one.source]
    home = f"{tmp_path}/.cargo"
    assert {one.source for one in binds} == {f"{home}/config.toml", f"{tmp_path}/.rustup"}
    assert all(one.path == one.source and not one.writable for one in binds)
    assert {*found.caches} == {f"{home}/bin", f"{home}/registry"}


def test_a_program_of_another_user_reads_what_all_may_and_writes_no_cache(tmp_path: Path) -> None:
    for name in (".cargo/config.toml", ".rustup/settings.toml", ".npm/a", ".m2/repository/a"):
        write(tmp_path / name)
    (tmp_path / ".rustup").chmod(0o700)
    other, own = os.getuid() + 1, "/own/home"
    cargo = toolchain_of("/usr/bin/cargo", tmp_path, {}, user=other)
    assert shown(cargo, tmp_path) == [".cargo"]
    assert not any(one.is_written for one in cargo.places)
    assert shown(toolchain_of(program(tmp_path / "node"), tmp_path, {}, user=other), tmp_path) == ["node"]
    (tmp_path / ".m2").chmod(0o750)
    mvn = toolchain_of("/usr/bin/mvn", tmp_path, {}, own_home=own, user=other)
    assert (shown(mvn, tmp_path), mvn.variables) == ([], {"MAVEN_OPTS": "-Duser.home=/own/home"})
    mine = toolchain_of("/usr/bin/cargo", tmp_path, {}, user=os.getuid())
    assert [one.is_written for one in mine.places if str(tmp_path) in one.source] == [True, False]


def test_java_is_told_of_a_home_directory_that_it_may_write(tmp_path: Path) -> None:
    mvn, gradle = program(tmp_path / "bin/mvn"), program(tmp_path / "bin/gradle")
    own = "/own/home"
    assert toolchain_of(mvn, tmp_path, {}, own_home=own).variables == {"MAVEN_OPTS": "-Duser.home=/own/home"}
    found = toolchain_of(gradle, tmp_path, {}, own_home=own).variables
    assert found == {"GRADLE_USER_HOME": "/own/home/.gradle"}
    write(tmp_path / ".m2/repository/a")
    found = toolchain_of(mvn, tmp_path, {}, own_home=own).variables
    assert found == {"MAVEN_OPTS": f"-Dmaven.repo.local={tmp_path}/.m2/repository"}


def test_options_of_java_are_joined_and_of_other_variables_the_last_counts() -> None:
    found = joined_variables({"A": "1", "MAVEN_OPTS": "-Da=1"}, {"MAVEN_OPTS": "-Db=2"}, {"A": "2"})
    assert found == {"A": "2", "MAVEN_OPTS": "-Da=1 -Db=2"}


# -- Real toolchains


confined = NEEDS_LANDLOCK


def needs(name: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(name) is None, reason=f"{name} is not installed")


def run(root: Path, *command: str, environment: Mapping[str, str] | None = None) -> RunCommandResult:
    under_way = ProgramsUnderWay()

    def confined_run(opened: Root, one: Program) -> Ended:
        return run_program(opened, one, (1, 1), under_way)

    commands = Commands(seconds=100, environment=dict(environment or {}))
    with Root(str(root)) as opened:
        return run_behind_wall(
            command, Surroundings(RootAccess(opened, lambda path: True), commands, (), confined_run)
        )


@confined
@needs("npm")
def test_npm_runs_a_script(tmp_path: Path) -> None:
    write(tmp_path / "package.json", """{"scripts": {"test": "node -e 'console.log(6 * 7)'"}}""")
    found = run(tmp_path, "npm", "test")
    assert (found.exit_code, "42" in found.stdout) == (0, True), found


@confined
@needs("node")
def test_a_node_of_nvm_runs_from_the_home_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Laid out as nvm does, with the node and npm of the system."""
    home, root = tmp_path / "home", tmp_path / "root"
    version = home / ".nvm/versions/node/v20.0.0"
    (version / "bin").mkdir(parents=True)
    shutil.copy(os.path.realpath(shutil.which("node") or ""), version / "bin/node")
    program(version / "lib/node_modules/own/cli.js", "#!/usr/bin/env node\nconsole.log(process.execPath)\n")
    (version / "bin/own").symlink_to("../lib/node_modules/own/cli.js")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PATH", f"{version}/bin{os.pathsep}{os.environ['PATH']}")
    root.mkdir()
    found = run(root, "own")
    assert (found.exit_code, found.stdout) == (0, f"{version}/bin/node\n"), found


@confined
@needs("java")
def test_java_runs_a_source_file(tmp_path: Path) -> None:
    write(
        tmp_path / "A.java", "class A { public static void main(String[] a) { System.out.println(6 * 7); } }"
    )
    found = run(tmp_path, "java", "A.java")
    assert (found.exit_code, found.stdout) == (0, "42\n"), found


@confined
@needs("mvn")
@pytest.mark.proof
def test_maven_reads_a_project(tmp_path: Path) -> None:
    project = (
        "<modelVersion>4.0.0</modelVersion><groupId>a</groupId><artifactId>a</artifactId><version>1</version>"
    )
    write(tmp_path / "pom.xml", f"<project>{project}</project>")
    found = run(tmp_path, "mvn", "-o", "-q", "validate")
    assert found.exit_code == 0, found


@confined
@needs("ghc")
def test_ghc_finds_the_packages_that_are_installed_beside_it(tmp_path: Path) -> None:
    write(tmp_path / "Main.hs", "main = print (6 * 7)\n")
    found = run(tmp_path, "ghc", "-e", "main", "Main.hs")
    assert (found.exit_code, found.stdout) == (0, "42\n"), found


@confined
@needs("go")
@pytest.mark.proof
def test_go_tests_a_module_with_what_was_downloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    downloaded, root, proxy = tmp_path / "mod", tmp_path / "root", tmp_path / "proxy/example.org/dep/@v"
    module = "module example.org/dep\n"
    write(proxy / "v0.1.0.mod", module)
    write(proxy / "v0.1.0.info", '{"Version": "v0.1.0"}')
    with zipfile.ZipFile(proxy / "v0.1.0.zip", "w") as packed:
        packed.writestr("example.org/dep@v0.1.0/go.mod", module)
        packed.writestr("example.org/dep@v0.1.0/dep.go", "package dep\nfunc F() int { return 42 }\n")
    write(root / "go.mod", "module a\nrequire example.org/dep v0.1.0\n")
    test = "func TestF(t *testing.T) { if dep.F() != 42 { t.Fatal() } }"
    write(root / "a_test.go", f'package a\nimport ("testing"; "example.org/dep")\n{test}\n')
    monkeypatch.setenv("GOMODCACHE", str(downloaded))
    outside = {
        **os.environ,
        "GOPROXY": f"file://{tmp_path}/proxy",
        "GONOSUMDB": "*",
        "GOFLAGS": "-mod=mod -modcacherw",
    }
    subprocess.run(["go", "mod", "tidy"], cwd=root, env=outside, check=True, capture_output=True)
    found = run(root, "go", "test", "./...")
    assert found.exit_code == 0, found


@confined
@needs("cargo")
@pytest.mark.proof
def test_cargo_tests_a_crate_offline_with_what_was_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fetched from a registry in a directory, into a directory that the command can only read."""
    fetched, root, sources = tmp_path / "cargo", tmp_path / "root", tmp_path / "sources"
    monkeypatch.setenv("CARGO_HOME", str(fetched))
    write(sources / "dep-0.1.0/src/lib.rs", "pub fn f() -> i32 { 42 }\n")
    write(sources / "dep-0.1.0/Cargo.toml", '[package]\nname = "dep"\nversion = "0.1.0"\nedition = "2021"\n')
    write(sources / "dep-0.1.0/.cargo-checksum.json", '{"files": {}, "package": null}')
    config = f'[source.crates-io]\nreplace-with = "own"\n[source.own]\ndirectory = "{fetched}/sources"\n'
    write(fetched / "config.toml", config)
    shutil.copytree(sources, fetched / "sources")
    write(fetched / "credentials.toml", "[registry]\ntoken = 'secret'\n")
    write(root / "Cargo.toml", '[package]\nname = "a"\nversion = "0.1.0"\n[dependencies]\ndep = "0.1"\n')
    write(root / "src/lib.rs", "#[test] fn f() { assert_eq!(dep::f(), 42) }\n")
    found = run(root, "cargo", "test", "--offline", "-q")
    assert (found.exit_code, "1 passed" in found.stdout) == (0, True), found
    assert run(root, "sh", "-c", f"cat {fetched}/credentials.toml {fetched}/config.toml").stdout == config


@confined
@pytest.mark.skipif(".pyenv/shims" not in (shutil.which("python3") or ""), reason="no pyenv is installed")
def test_a_shim_of_pyenv_finds_its_python(tmp_path: Path) -> None:
    found = run(tmp_path, "python3", "-c", "print(6 * 7)")
    assert (found.exit_code, found.stdout) == (0, "42\n"), found


def test_pre_commit_is_shown_the_hooks_that_it_has_installed(tmp_path: Path) -> None:
    hooks = tmp_path / ".cache" / "pre-commit"
    write(hooks / "db.db")
    found = toolchain_of(program(tmp_path / "bin" / "pre-commit"), tmp_path, {})
    assert found.variables["PRE_COMMIT_HOME"] == str(hooks)
    assert [place.is_written for place in found.places if place.source == str(hooks)] == [True]
