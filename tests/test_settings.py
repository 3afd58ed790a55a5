"""Settings: the environment, then the file, then the defaults; what is not known is an error."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from lcp_engine.core.policy import Verdict
from lcp_engine.errors import LcpError
from lcp_engine.features.upkeep.settings import Backups, Checks, Retention, Upkeep
from lcp_engine.settings import default_url, make_room, read_settings, read_url, shown_url


def test_the_environment_comes_before_the_file_and_the_file_before_the_defaults(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    assert read_settings({}, config).url == default_url()
    config.write_text(
        "database_url: sqlite:////in/file.db\nbusy_seconds: 5\npolicy: [{kinds: [x], do: deny}]\n"
    )
    settings = read_settings({"LCP_BUSY_SECONDS": "1", "LCP_AWAY_SECONDS": "0"}, config)
    assert (settings.url, settings.busy_seconds) == ("sqlite:////in/file.db", 1.0)
    assert (settings.away_seconds, read_settings({}, config).away_seconds) == (0.0, None)
    assert [rule.do for rule in settings.policy] == [Verdict.DENY]
    assert read_settings({"LCP_DATABASE_URL": "sqlite:////e.db"}, config).url == "sqlite:////e.db"


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ("polcy: []", "polcy: is not a known key; did you mean 'policy'?"),
        ("caps: {read_byts: 1}", "caps.read_byts: is not a known key; did you mean 'read_bytes'?"),
        ("policy: [{do: deny, kind: x}]", "policy.0.kind: is not a known key; did you mean 'kinds'?"),
        ("policy: [{do: maybe}]", "policy.0.do: "),
        ("caps: {read_bytes: 0}", "caps.read_bytes: "),
        (
            "planners: {openai: {api_key: sk-canary}}",
            "planners: openai.api_key: keys belong in the environment",
        ),
        ("planners: {openai: 3}", "planners.openai: "),
        ("[1]", "a mapping is expected"),
        ("a: [", "line 1"),
    ],
)
def test_a_wrong_file_is_refused_with_its_place(tmp_path: Path, text: str, fact: str) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(text)
    with pytest.raises(LcpError) as refused:
        read_settings({}, config)
    assert str(refused.value).startswith(f"{config}: ")
    assert fact in str(refused.value)
    assert "canary" not in str(refused.value)


@pytest.mark.parametrize("text", ["soon", "-1", "nan", "1e9"])
def test_a_wait_is_a_number_of_seconds(tmp_path: Path, text: str) -> None:
    with pytest.raises(LcpError, match=r"LCP_BUSY_SECONDS is .*from 0 to 3600 is expected"):
        read_settings({"LCP_BUSY_SECONDS": text}, tmp_path / "none.yaml")


def test_urls_are_made_absolute_and_shown_without_a_password() -> None:
    assert read_url("sqlite:///a/b.db") == f"sqlite:///{Path.cwd() / 'a/b.db'}"
    assert shown_url("postgresql://me:secret@host/name") == "postgresql://me@host/name"
    assert shown_url("postgresql://host/n?user=me&password=p/q") == "postgresql://host/n?user=me&password=…"
    assert shown_url("postgresql:///name") == "postgresql:///name"


@pytest.mark.parametrize("secret", ["sec/ret", "sec@ret", "sec#ret", "sec?ret", "sec:ret"])
def test_a_password_that_should_have_been_encoded_is_not_shown_either(secret: str) -> None:
    shown = shown_url(f"postgresql://me:{secret}@host:5432/name?sslpassword={secret}")
    assert shown == "postgresql://me@host:5432/name?sslpassword=…"


def test_isolation_is_one_of_three(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    assert read_settings({}, config).isolation == "auto"
    config.write_text("isolation: require\n")
    assert read_settings({}, config).isolation == "require"
    assert read_settings({"LCP_ISOLATION": "off"}, config).isolation == "off"
    with pytest.raises(LcpError, match="LCP_ISOLATION is 'on'; it must be one of require, auto, off"):
        read_settings({"LCP_ISOLATION": "on"}, config)


def test_a_default_database_without_room_is_no_defect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "file"))
    with pytest.raises(LcpError, match=r"needs its directory .*file/lcp-engine: Not a directory; use --db"):
        make_room(default_url())


def test_upkeep_in_the_environment_comes_before_the_file_and_null_switches_it_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = tmp_path / "etc" / "config.yaml"
    given = {"LCP_BACKUP": "{every: 12h, to: copies}", "LCP_CHECK": "weekly"}
    own = read_settings(given, config).of(Upkeep)
    assert own.backup == Backups(every=timedelta(hours=12), to=str(tmp_path / "copies"))
    assert (own.retention, own.check) == (None, Checks(every=timedelta(weeks=1)))
    config.parent.mkdir()
    config.write_text("retention: 30d\nbackup: {every: daily, to: kept}\ncheck: daily\n")
    stated = read_settings({"LCP_RETENTION": "", "LCP_CHECK": "null"}, config).of(Upkeep)
    assert stated.retention == Retention(after=timedelta(days=30))
    assert stated.backup == Backups(every=timedelta(days=1), to=str(config.parent / "kept"))
    assert stated.check is None
    assert read_settings({"LCP_RETENTION": "1w"}, config).of(Upkeep).retention == Retention(
        after=timedelta(weeks=1)
    )


@pytest.mark.parametrize(
    ("variable", "text", "said"),
    [
        (
            "LCP_RETENTION",
            "30",
            "LCP_RETENTION.after: 30 is given; a duration such as 30d or 12w is expected",
        ),
        ("LCP_BACKUP", "dayly", "LCP_BACKUP.every: 'dayly' is given; hourly, daily, weekly or a duration"),
        ("LCP_BACKUP", "daily, keep none", "LCP_BACKUP: 'daily, keep none' is given; a rhythm and a number"),
        ("LCP_BACKUP", "{every: 1d, kep: 3}", "LCP_BACKUP.kep: is not a known key; did you mean 'keep'?"),
        ("LCP_CHECK", "[", "LCP_CHECK: line 1"),
    ],
)
def test_what_the_environment_cannot_mean_is_one_clear_line(
    tmp_path: Path, variable: str, text: str, said: str
) -> None:
    with pytest.raises(LcpError) as refused:
        read_settings({variable: text}, tmp_path / "none.yaml")
    assert str(refused.value).startswith(said)
    assert "\n" not in str(refused.value)
