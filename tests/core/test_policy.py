"""Which rule decides about a job (R5)."""

from __future__ import annotations

import pytest
from tests.tables import table

from lcp_engine.core.policy import Approvals, Policy, Rule, Verdict
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.workers.edit_file import WORKER as EDIT

AUTO, HOLD, DENY = Verdict.AUTO, Verdict.HOLD, Verdict.DENY


def rule(do: Verdict, *paths: str, kinds: tuple[str, ...] = ("*",), final: bool = False) -> Rule:
    return Rule(kinds=kinds, paths=paths or None, do=do, final=final)


DOCS = rule(AUTO, "docs/**", kinds=("write_file",))


@table(
    ("mission", "user", "kind", "path", "verdict", "says"),
    [
        ([], [], "read_file", "a.txt", AUTO, "default policy: kinds without effects run"),
        ([], [], "agent_plan", "", AUTO, "default policy: kinds without effects run"),
        ([], [], "write_file", "a.txt", HOLD, "default policy: kinds with effects wait"),
        ([DOCS], [], "write_file", "docs/a.md", AUTO, "mission rule 1 (write_file docs/**) says auto"),
        ([DOCS], [], "write_file", "DOCS/a.md", HOLD, "default policy"),
        ([DOCS], [rule(DENY)], "write_file", "DOCS/a.md", DENY, "user rule 1"),
        ([rule(AUTO, "**", "!docs/**")], [], "write_file", "DOCS/a.md", HOLD, "default policy"),
        ([rule(DENY, "docs/**")], [], "read_file", "DOCS/a.md", DENY, "mission rule 1"),
        ([rule(DENY, "**", "!docs/**")], [], "read_file", "DOCS/a.md", DENY, "mission rule 1"),
        ([], [rule(AUTO, ".env")], "read_file", ".ENV", DENY, "secrets"),
        ([DOCS], [], "write_file", "src/a.md", HOLD, "default policy"),
        ([DOCS], [], "rewrite_file", "docs/a.md", HOLD, "default policy"),
        ([rule(HOLD, "docs/private/**"), DOCS], [], "write_file", "docs/private/a", HOLD, "mission rule 1"),
        ([DOCS], [rule(DENY)], "write_file", "docs/a.md", AUTO, "mission rule 1"),
        ([DOCS], [rule(DENY)], "write_file", "src/a.md", DENY, "user rule 1 (*) says deny"),
        (
            [DOCS],
            [rule(HOLD, final=True)],
            "write_file",
            "docs/a.md",
            HOLD,
            "final user rule 1 (*) says hold",
        ),
        ([rule(DENY, final=True)], [rule(AUTO, final=True)], "read_file", "a", AUTO, "final user rule 1"),
        ([rule(AUTO)], [], "read_file", ".env", DENY, "default policy: secrets are denied"),
        ([rule(AUTO, ".env")], [], "read_file", ".env", DENY, "secrets"),
        ([], [rule(AUTO)], "read_file", ".env", DENY, "secrets"),
        ([], [rule(AUTO, "/.env")], "read_file", ".env", AUTO, "user rule 1"),
        ([], [rule(AUTO, "/.env")], "read_file", "sub/.env", DENY, "secrets"),
        ([], [rule(HOLD, ".env", final=True)], "write_file", ".env", HOLD, "final user rule 1"),
        ([rule(HOLD, ".env")], [rule(AUTO, ".env")], "read_file", ".env", HOLD, "mission rule 1"),
        ([], [rule(AUTO, ".gitmodules")], "write_file", ".gitmodules", AUTO, "user rule 1"),
    ],
)
def test_the_first_rule_that_matches_decides(  # noqa: PLR0917 - a table has as many columns as it has
    mission: list[Rule], user: list[Rule], kind: str, path: str, verdict: Verdict, says: str
) -> None:
    writes = kind in ("write_file", "rewrite_file")
    ruling = Policy(mission, user).judge(
        kind, has_effects=writes, writes=writes, paths=(path,) if path else ()
    )
    assert ruling.verdict is verdict
    assert says in ruling.reason.text


@table(
    "path",
    [
        ".env", ".ENV", "a/.env", ".env.production", ".env.local", ".envrc", "keys/server.pem", "A.KEY", "x.p12",
        "id_rsa", "deploy/id_ed25519", "id_work", "id_rsa.old", ".ssh/config", "home/.SSH/x", ".aws/credentials",
        ".netrc", ".npmrc", ".pypirc", ".git-credentials", ".docker/config.json", ".lcp/engine.db", "a\\.env",
        "C:\\x\\.ssh\\id_rsa", ".lcp-0123.tmp",
        ".pgpass", "pgpass.conf", ".kube/config", ".kube/cache/x", "kubeconfig", "kubeconfig.yaml", "prod.kubeconfig",
        "credentials.json", "gcp-credentials.json", "credentials (1).json", "credentials", ".gem/credentials",
        "a.jks", "a.pfx", "a.PFX", "a.keystore", "a.kdbx", "a.kdb", "a.ovpn", "a.ppk", "a.keytab", "AuthKey_1.p8",
        ".config/gh/hosts.yml", ".cargo/credentials", ".cargo/credentials.toml", ".config/git/credentials",
        "terraform.tfstate", "terraform.tfstate.backup", "env/prod.tfstate", "prod.tfvars", "prod.auto.tfvars.json",
        ".dockercfg", ".vault-token", "service-account.json", "service_account_prod.json",
        "my-service-account.json", "client_secret_12.apps.json", "client_secrets.json", ".htpasswd", "htpasswd",
        "prod.env", "deploy/app.env", ".env~", ".env.bak", ".env (1)", ".#.env", "#.env#", ".env.swp",
        "server.key.bak", "server.key~", "server.pem.old", ".server.key.swp", "id_rsa~", "id_rsa.bak", "id_rsa.gz",
        ".netrc.bak", ".npmrc~", "deploy_rsa", "ssh_host_ed25519_key", ".my.cnf", ".boto", ".s3cfg", ".terraformrc",
        ".kube.bak/config", ".ssh-old/id", ".aws~/credentials", ".gnupg.2024/x", "key.pem.txt", "tls/server.key.b64",
        ".huggingface/token", ".cache/huggingface/token", ".idea/dataSources.xml", ".idea/dataSources.local.xml",
        ".idea/webServers.xml", ".vscode/sftp.json", ".ftpconfig", "sftp-config.json", "wp-config.php",
        "blog/wp-config.php.bak", "LocalSettings.php", ".Renviron", "Renviron.site", ".dev.vars",
        ".dev.vars.production",
        "local.settings.json", "kaggle.json", ".gemini/oauth_creds.json", ".vnc/passwd", ".codex/auth.json", ".cvspass",
        ".msmtprc", "credentials.txt", ".config/filezilla/sitemanager.xml",
        "secrets.toml", "config/secrets.yml", ".streamlit/secrets.toml", ".bash_history", ".azure/token.json",
        ".config/gcloud/access_tokens.db", ".env::$DATA", ".ssh./x", ".e\u200cnv", ".m2/settings.xml", "etc/shadow",
        ".authinfo", ".authinfo.gpg", "_authinfo", ".netrc.gpg", ".netrc-work", ".pip/pip.conf", ".config/pip/pip.conf",
        "pip.ini", ".venv/pip.conf", ".yarnrc.yml", ".yarnrc", ".npmrc.local", ".npmrc_ci", "auth.json",
        ".config/composer/auth.json", ".local/share/opencode/auth.json", "src/auth.json", ".config/pypoetry/auth.toml",
        "lang/.config/x/auth.json", "auth.json.bak",
        ".condarc", ".curlrc", ".sbt/.credentials", ".nuget/NuGet/NuGet.Config", ".config/github-copilot/apps.json",
    ],
)  # fmt: skip
def test_secrets_and_the_engines_own_files_are_denied(path: str) -> None:
    for writes in (False, True):
        assert Policy().for_kind("any", has_effects=writes, writes=writes)(path).verdict is DENY


@table(
    "path",
    [
        ".env.example", ".env.sample", "env/readme.md", "monkey.py", "key.md", "id_rsa.pub", "id_generator.py",
        "wp-config-sample.php", ".idea/workspace.xml", ".vscode/settings.json", "readme.txt", "notes/keys.txt",
        ".kubernetes/a", ".awsome/a", "local.settings.md", "docs/huggingface/token.md", "id_map.txt",
        ".ideas/dataSources.xml", "src/locales/en/auth.json", "i18n/auth.json", "auth.json.example", "auth.jsonc",
        "oauth.json", ".npmrc.example", "pip.conf.md", "yarn.lock", "authinfo.py", "nuget.config", "schemas/auth.json",
        "secret_santa.py", ".environment", ".gitignore", ".github/workflows/ci.yml", "pem.txt", ".lcpx/a", "ssh/a",
        "digit~1", "gitk", ".gitattributes", "credentials/store.py", "docs/credentials.md", "src/credentials.rs",
        "credentials.py", "test_credentials.py", "example.env", "sample.env", "template.env", "app.env.example",
        "credentials.json.example", "credentials.example.json", "service-account.example.json", "terraform.tf",
        "prod.tfvars.example", "keystore.py", "docs/kubeconfig-guide/a.md", "secrets.py", "secrets.md", "secret.rs",
        "config.json", "docker/config.json", "src/env.ts", "env.py", ".envoy.yaml", "id_map.old", "id_list.gz",
        "poetry.lock", "Cargo.lock", "tsconfig.json", "hosts.yml", "settings.xml", "gradle.properties",
        "package.json", "service.json", "accounts.json", "password.py", "key.json", "config",
        "config/app.yml", "tokens.css", "history.md", "CODE_OF_CONDUCT.md", "ovpn.md", "wg.conf", "keys/readme.md",
    ],
)  # fmt: skip
def test_what_looks_like_a_secret_is_none(path: str) -> None:
    assert Policy().for_kind("read_file", has_effects=False, writes=False)(path).verdict is AUTO
    assert Policy().for_kind("write_file", has_effects=True, writes=True)(path).verdict is HOLD


@table(
    ("path", "reading", "writing"),
    [
        (".git/config", DENY, DENY),
        ("sub/.git/config", DENY, DENY),
        (".git/modules/x/config", DENY, DENY),
        (".git/HEAD", AUTO, DENY),
        (".git/hooks/pre-commit", AUTO, DENY),
        (".git", AUTO, DENY),
        (".GIT/hooks/x", AUTO, DENY),
        (".gitmodules", AUTO, DENY),
        (".git::$INDEX_ALLOCATION/hooks/x", AUTO, DENY),
        ("GIT~1/hooks/x", AUTO, DENY),
        (".git ./x", AUTO, DENY),
        (".g\u200cit/x", AUTO, DENY),
        ("\ufeff.git/x", AUTO, DENY),
        ("GITMOD~1", AUTO, DENY),
        ("GI7EBA~1", AUTO, DENY),
        ("config", AUTO, HOLD),
        (".git/config.lock", DENY, DENY),
        (".git/config~", DENY, DENY),
        ("repo.git/config", DENY, DENY),
        ("repo.git/modules/x/config", DENY, DENY),
        ("repo.git/hooks/post-receive", AUTO, DENY),
        ("site.git/src/config", AUTO, HOLD),
    ],
)
def test_git_is_read_in_part_and_never_written(path: str, reading: Verdict, writing: Verdict) -> None:
    assert Policy().for_kind("read_file", has_effects=False, writes=False)(path).verdict is reading
    assert Policy().for_kind("write_file", has_effects=True, writes=True)(path).verdict is writing


@table(
    ("mission", "verdict"),
    [
        ([rule(DENY, "a.txt", kinds=("read_file",))], DENY),
        ([rule(AUTO, kinds=("write_file",)), rule(DENY, kinds=("read_file",))], DENY),
        ([rule(AUTO, kinds=("edit_file",)), rule(DENY, "a.txt", kinds=("read_file",))], DENY),
        ([rule(AUTO, kinds=("edit_file",)), rule(DENY)], AUTO),
        ([rule(AUTO, "a.txt", kinds=("read_file",)), rule(DENY, kinds=("read_file",))], HOLD),
        ([rule(HOLD, kinds=("read_file",)), rule(AUTO, kinds=("edit_file",))], AUTO),
        ([rule(AUTO), rule(DENY, kinds=("read_file",))], AUTO),
        ([rule(DENY, "b.txt", kinds=("read_file",))], HOLD),
    ],
)
def test_what_may_not_be_read_is_not_edited(mission: list[Rule], verdict: Verdict) -> None:
    policy = Policy(mission)
    assert policy.for_kind(EDIT.named, has_effects=True, writes=True)("a.txt").verdict is verdict
    (explained,) = policy.explain(EDIT.named, has_effects=True, writes=True, paths=("a.txt",))
    assert explained.ruling.verdict is verdict
    assert Policy().for_kind(EDIT.named, has_effects=True, writes=True)("x.git/config").verdict is DENY


def test_of_several_paths_the_strictest_counts() -> None:
    policy = Policy([DOCS, rule(DENY, "secret/**")])
    for paths, verdict in (
        (("docs/a", "docs/b"), AUTO),
        (("docs/a", "src/b"), HOLD),
        (("docs/a", "src/b", "secret/c"), DENY),
    ):
        assert policy.judge("write_file", has_effects=True, writes=True, paths=paths).verdict is verdict


def test_the_engines_database_in_the_root_is_denied() -> None:
    policy = Policy(engine_paths=("state/lcp.db",))
    assert policy.judge("read_file", has_effects=False, writes=False, paths=("State/LCP.db",)).verdict is DENY


def test_a_path_is_judged_relative_to_the_root() -> None:
    policy = Policy([DOCS], relative=lambda path: path.removeprefix("/root/"))
    assert policy.judge("write_file", has_effects=True, writes=True, paths=("/root/docs/a",)).verdict is AUTO


def test_a_rule_whose_path_is_no_pattern_is_refused() -> None:
    with pytest.raises(LcpError) as refused:
        Policy([rule(AUTO, "../x")])
    assert refused.value.code is ErrorCode.INVALID_PATTERN


@table(
    ("mission", "user", "left"),
    [
        ([rule(HOLD, "/docs/a.md"), rule(DENY, "*")], [], ("docs/a.md",)),
        ([rule(AUTO, "/a.md", "/b.md"), rule(DENY)], [rule(AUTO, "docs/**")], ("a.md", "b.md")),
        ([rule(DENY, "/a.md"), rule(AUTO, "/a.md", "/b.md"), rule(DENY)], [], ("b.md",)),
        ([rule(AUTO, "/.env.md", "/.git/x.md", "/.github/a.md"), rule(DENY)], [], (".github/a.md",)),
        ([rule(DENY, kinds=("write_file",))], [], ()),
        ([rule(HOLD, "/docs/a.md")], [rule(DENY, "**")], ("docs/a.md",)),
        ([rule(HOLD, "/docs/a.md")], [], None),
        ([rule(HOLD, "/docs"), rule(DENY)], [], None),
        ([rule(HOLD, "a.md"), rule(DENY)], [], None),
        ([rule(HOLD, "/*.md"), rule(DENY)], [], None),
        ([rule(HOLD, "/a.md"), rule(DENY, "*", "!docs/**")], [], None),
        ([rule(HOLD, "/a.md"), rule(DENY, kinds=("read_file",))], [], None),
    ],
)
def test_rules_that_name_files_and_deny_all_others_leave_these(
    mission: list[Rule], user: list[Rule], left: tuple[str, ...] | None
) -> None:
    assert Policy(mission, user).only_files("write_file", has_effects=True, writes=True) == left


@table(
    ("mission", "user", "verdict"),
    [
        ([rule(AUTO, "docs/**"), rule(DENY)], [], AUTO),
        ([rule(HOLD, "/docs/a.md"), rule(DENY, "*")], [], HOLD),
        ([rule(DENY)], [rule(AUTO)], DENY),
        ([rule(DENY, "/a.md")], [], HOLD),
        ([], [], HOLD),
    ],
)
def test_the_mildest_ruling_is_that_of_the_best_path(
    mission: list[Rule], user: list[Rule], verdict: Verdict
) -> None:
    assert Policy(mission, user).mildest("write_file", has_effects=True).verdict is verdict


def test_a_bad_pattern_names_its_rule() -> None:
    with pytest.raises(LcpError, match=r"^mission rule 2: pattern 'a\["):
        Policy([rule(DENY), rule(AUTO, "a[")])
    with pytest.raises(LcpError, match=r"^final user rule 1: pattern"):
        Policy((), [Rule(paths=("a[",), do=DENY, final=True)])


@table(
    ("approvals", "words"),
    [
        (Approvals(2, ("anna",), ()), "the approval of another person"),
        (Approvals(3, ("anna",), ()), "2 more approvals of other people"),
        (Approvals(2, ("anna",), (), ("ben",)), "the approval of ben"),
        (Approvals(2, (), (), ("anna", "ben", "carl")), "2 more approvals of anna, ben or carl"),
        (
            Approvals(2, ("anna",), (), ()),
            "the approval of another person, and the configuration has too few approvers",
        ),
    ],
    ids=["anyone", "several", "one is left", "any two", "none is left"],
)
def test_missing_approvals_name_whom_they_are_of(approvals: Approvals, words: str) -> None:
    assert approvals.awaited == words
