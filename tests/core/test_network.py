"""Hosts that commands may reach: what the configuration can say, and the part of it that a mission may use."""

from __future__ import annotations

import pytest
from pydantic import JsonValue, ValidationError
from tests.tables import table

from lcp_engine.core.programs.network import NetworkGrant, NetworkUse, granted, host_of, is_host_name
from lcp_engine.errors import ErrorCode, LcpError

LONG = "a" * 63


@table(
    ("text", "is_name"),
    [
        ("example.org", True),
        ("a", True),
        ("_dmarc.example.org", True),
        ("xn--bcher-kva.example", True),
        (f"{LONG}.org", True),
        (f"{LONG}a.org", False),
        (".".join([LONG] * 4), False),
        ("Example.org", False),
        ("example.org.", False),
        (".example.org", False),
        ("a..b", False),
        ("-a.org", False),
        ("a-.org", False),
        ("bücher.example", False),
        ("exa\u212ample.org", False),
        ("example.org\n", False),
        ("a b", False),
        ("%65xample.org", False),
        ("user@example.org", False),
        ("example.org:443", False),
        ("[::1]", False),
        ("::1", False),
        ("127.0.0.1", False),
        ("127.1", False),
        ("2130706433", False),
        ("0x7f.1", False),
        ("0x7f000001", False),
        ("a.0x", False),
        ("1.2.3.4.example.org", True),
        ("a.0xyz", True),
        ("", False),
    ],
)
def test_a_name_is_one_that_no_resolver_reads_as_an_address(text: str, *, is_name: bool) -> None:
    assert is_host_name(text) is is_name


@table(
    ("stated", "said"),
    [
        ("all", "should be host or a mapping with hosts"),
        ({"hosts": ["*"]}, "should be the name of a host"),
        ({"hosts": ["*.org"]}, "should be the name of a host"),
        ({"hosts": ["a.*.org"]}, "should be the name of a host"),
        ({"hosts": ["10.0.0.5"]}, "should be the name of a host"),
        ({"hosts": [{"name": "a.local", "address": "fe80::1%eth0"}]}, "should be an IP address"),
        ({"hosts": [{"name": "a.local", "address": "b.local"}]}, "should be an IP address"),
        ({"hosts": [{"name": "*.a.local", "address": "10.0.0.5"}]}, "address: is of one host"),
        ({"hosts": [{"name": "a.local", "port": 8080}]}, "port: needs an address"),
        ({"hosts": [{"name": "a.local", "address": "10.0.0.5", "port": 0}]}, "greater than or equal to 1"),
        ({"hosts": ["a.org"] * 201}, "at most 200"),
        ({"host": ["a.org"]}, "Extra inputs"),
    ],
)
def test_a_wrong_grant_is_refused(stated: JsonValue, said: str) -> None:
    with pytest.raises(ValidationError) as refused:
        NetworkGrant.model_validate(stated)
    assert said in str(refused.value)


@table("stated", ["host", {"hosts": []}, {"hosts": ["a.org", {"name": "b.org", "address": "10.0.0.5"}]}])
def test_a_grant_is_read_again_as_it_was_written(stated: JsonValue) -> None:
    grant = NetworkGrant.model_validate(stated)
    assert NetworkGrant.model_validate_json(grant.model_dump_json()) == grant


GRANT = NetworkGrant.model_validate(
    {"hosts": ["A.org", "*.b.org", {"name": "own.b.org", "address": "10.0.0.5", "port": 4873}]}
)


@table(
    ("asked", "given"),
    [
        (["a.org"], [("a.org", None)]),
        (["A.ORG"], [("a.org", None)]),
        (["x.b.org"], [("x.b.org", None)]),
        (["*.x.b.org"], [("*.x.b.org", None)]),
        (["*.b.org"], [("*.b.org", None)]),
        (["own.b.org"], [("own.b.org", "10.0.0.5")]),
        ([], []),
    ],
)
def test_a_mission_gets_the_part_of_a_grant_that_it_names(
    asked: list[str], given: list[tuple[str, str | None]]
) -> None:
    found = granted(NetworkUse(hosts=tuple(asked)), GRANT)
    assert [(host.name, host.address) for host in found.hosts] == given
    assert not found.is_host


@table("asked", ["b.org", "c.org", "x.a.org", "*.a.org", "xb.org", "*.org.example"])
def test_what_the_user_does_not_allow_is_refused_with_the_line_that_allows_it(asked: str) -> None:
    with pytest.raises(LcpError) as refused:
        granted(NetworkUse(hosts=(asked,)), GRANT)
    failed = refused.value.failed
    assert failed.code is ErrorCode.NOT_ALLOWED
    assert failed.message == f"commands.network: {asked}: the configuration of this machine does not allow it"
    assert asked in failed.recommendation


def test_the_network_of_the_machine_is_the_widest_grant() -> None:
    wide, use = NetworkGrant(is_host=True), NetworkUse.model_validate("host")
    assert granted(use, wide).is_host
    assert not granted(NetworkUse(hosts=("a.org",)), wide).is_host
    with pytest.raises(LcpError, match="host"):
        granted(use, GRANT)


def test_the_longest_pattern_decides_after_the_same_name() -> None:
    hosts = NetworkGrant.model_validate({"hosts": ["*.b.org", "*.x.b.org", "y.x.b.org"]}).hosts
    found = [host_of(hosts, name) for name in ("y.x.b.org", "z.x.b.org", "z.b.org", "b.org")]
    assert [host and host.name for host in found] == ["y.x.b.org", "*.x.b.org", "*.b.org", None]
