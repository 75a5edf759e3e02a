"""Variables and the bundle of authorities: what there is stays, what was stale is fresh."""

from __future__ import annotations

import os
from pathlib import Path

import certifi
import pytest

from breakwater import authorities, env
from breakwater.cli import CommandError
from breakwater.env import variables
from tests.rows import over

CERTIFICATE = Path(certifi.where()).read_text().partition("-----END CERTIFICATE-----\n")
COMPANY = CERTIFICATE[0][CERTIFICATE[0].index("-----BEGIN") :] + CERTIFICATE[1]


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a CA of mitmproxy's."""
    folder = tmp_path_factory.mktemp("conf")
    authorities.ensure(folder)
    return folder


def test_every_client_of_the_table_is_sent_and_told_whom_to_trust(tmp_path: Path) -> None:
    given = variables(8090, tmp_path / "bundle.pem", {})
    assert {given[name] for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")} == {"http://127.0.0.1:8090"}
    names = {name for client in env.CLIENTS for name in client.authorities} | {"REQUESTS_CA_BUNDLE"}
    assert {given[name] for name in names} == {str(tmp_path / "bundle.pem")}
    assert given["NODE_USE_ENV_PROXY"] == "1"
    assert given["NO_PROXY"] == given["no_proxy"] == "localhost,127.0.0.1,::1"


@pytest.mark.parametrize(
    ("there", "then"),
    [
        ({"NO_PROXY": "example.com, .corp"}, "example.com,.corp,localhost,127.0.0.1,::1"),
        ({"no_proxy": "a.test", "NO_PROXY": "b.test,a.test"}, "b.test,a.test,localhost,127.0.0.1,::1"),
        ({"no_proxy": "*"}, "localhost,127.0.0.1,::1"),
    ],
)
def test_exceptions_of_the_person_stay_but_for_everything(there: dict[str, str], then: str) -> None:
    assert variables(8080, Path("b"), there)["no_proxy"] == then


def test_the_bundle_is_the_usual_authorities_and_ours(made: Path) -> None:
    path = authorities.bundle(made, {})
    assert path.name == "breakwater-ca-bundle.pem"
    assert path.read_text() == Path(certifi.where()).read_text().rstrip("\n") + "\n" + authorities.own(made).read_text()


def test_a_company_s_authority_stays_in_it(made: Path, tmp_path: Path) -> None:
    company = tmp_path / "company.pem"
    company.write_text(COMPANY)
    path = authorities.bundle(made, {"NODE_EXTRA_CA_CERTS": str(company), "SSL_CERT_FILE": "/no/such/file"})
    assert path != authorities.bundle(made, {})
    assert COMPANY in path.read_text()
    assert authorities.own(made).read_text() in path.read_text()


def test_a_run_within_a_run_names_no_bundle_in_the_bundle(made: Path) -> None:
    first = authorities.bundle(made, {})
    inner = variables(8080, first, {})
    assert authorities.bundle(made, inner) == first
    assert authorities.bundle(made, {"NODE_EXTRA_CA_CERTS": str(authorities.own(made))}) == first


def test_a_stale_bundle_is_written_anew_and_a_fresh_one_is_left(made: Path) -> None:
    path = authorities.bundle(made, {})
    fresh = path.read_bytes()
    os.utime(path, (1, 1))
    authorities.bundle(made, {})
    assert path.stat().st_mtime == 1
    path.write_bytes(b"of last year")
    assert authorities.bundle(made, {}).read_bytes() == fresh
    assert [each.name for each in made.iterdir() if each.name.startswith(f"{path.name}.")] == []


def test_a_key_of_another_ca_is_noticed(made: Path, tmp_path: Path) -> None:
    folder = tmp_path / "conf"
    authorities.ensure(folder)
    authorities.own(folder).write_bytes(authorities.own(made).read_bytes())
    (folder / "mitmproxy-ca.pem").write_bytes(b"")
    with pytest.raises(CommandError) as raised:
        authorities.ensure(folder)
    assert str(folder) in str(raised.value)


@over(
    ("there", "told"),
    [
        ({"HTTPS_PROXY": "http://proxy.corp:3128"}, "HTTPS_PROXY=http://proxy.corp:3128 is another proxy"),
        ({"HTTPS_PROXY": "http://127.0.0.1:9999"}, "another proxy than 127.0.0.1:8080"),
        ({"SSL_CERT_FILE": "/no/such/file"}, "SSL_CERT_FILE names /no/such/file"),
        ({"HTTPS_PROXY": "http://localhost:8080", "NO_PROXY": "*"}, "NO_PROXY=* keeps every host"),
        ({"ANTHROPIC_BASE_URL": "https://api.else.test/x"}, "names api.else.test, which is no upstream"),
    ],
)
def test_doctor_finds_what_cannot_be_meant(there: dict[str, str], told: str) -> None:
    (mistake,) = env.mistakes(there, 8080, lambda host, _port: host == "api.z.ai")
    assert told in mistake


@over(
    "there",
    [
        {},
        {"HTTPS_PROXY": "http://127.0.0.1:8080", "HTTP_PROXY": "http://localhost:8080"},
        {"ANTHROPIC_BASE_URL": "https://api.z.ai/api/anthropic", "OPENAI_BASE_URL": "http://127.0.0.1:8081/v1"},
        {"NO_PROXY": "*"},
        {"ANTHROPIC_BASE_URL": "http://["},
    ],
)
def test_doctor_finds_nothing_where_nothing_is_wrong(there: dict[str, str]) -> None:
    assert env.mistakes(there, 8080, lambda host, _port: host == "api.z.ai") == []


def test_a_client_trusts_by_the_variable_that_it_reads_alone(made: Path) -> None:
    codex = next(client for client in env.CLIENTS if client.program == "codex")
    authority, bundle = authorities.own(made).read_bytes(), str(authorities.bundle(made, {}))
    assert env.trusts(codex, {"SSL_CERT_FILE": bundle}, authority)
    assert not env.trusts(codex, {"NODE_EXTRA_CA_CERTS": bundle}, authority)
    assert not env.trusts(codex, {"SSL_CERT_FILE": certifi.where()}, authority)
    assert not env.trusts(codex, {"SSL_CERT_FILE": bundle}, b"")
