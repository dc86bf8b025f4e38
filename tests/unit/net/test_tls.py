"""TLS without sockets: contexts from files, reloading, the user's name in a certificate, why a handshake failed."""

from __future__ import annotations

import io
import os
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.config import BY_NAME, Config
from penstock.net.log import Log
from penstock.net.tls import (
    CLIENT_CERTIFICATES,
    LOOK_INTERVAL_S,
    MINIMUM,
    USER_FROM,
    Certificates,
    TlsError,
    TlsSettings,
    certificate_user,
    failure,
    new_context,
)
from penstock.runtime.clock import FakeClock
from tests.wire.certificates import Authority, Pair, needs_openssl, openssl

pytestmark = needs_openssl


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def own(tmp_path: Path) -> Authority:
    """An authority whose files a test may change."""
    return Authority(tmp_path)


def settings(
    pair: Pair, ca: Path | str = "", client_certificates: str = "none", minimum: str = "1.2", key: str | None = None
) -> TlsSettings:
    return TlsSettings(
        certificate=str(pair.certificate),
        key=str(pair.key) if key is None else key,
        ca=str(ca),
        client_certificates=client_certificates,
        minimum=minimum,
        user_from="common_name",
    )


def shake(server_context: ssl.SSLContext, client_context: ssl.SSLContext) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """A handshake in memory; server and client."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = server_context.wrap_bio(up, down, server_side=True)
    client = client_context.wrap_bio(down, up, server_hostname="localhost")
    for _ in range(6):
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                pass
    return server, client


def serial(context: ssl.SSLContext, authority: Authority) -> str:
    """The serial number of the certificate that this context shows."""
    _, client = shake(context, authority.client_context())
    certificate = client.getpeercert()
    assert certificate
    return str(certificate["serialNumber"])


# The context.


def test_the_settings_take_what_the_context_knows() -> None:
    for name, words in (
        ("tls.user_from", USER_FROM),
        ("tls.minimum", MINIMUM),
        ("tls.client_certificates", CLIENT_CERTIFICATES),
    ):
        for word in words:
            Config({name: word})
        with pytest.raises(ValueError, match=", ".join(words)):
            BY_NAME[name].parse("none of them")


def test_a_client_that_trusts_the_authority_gets_through(authority: Authority) -> None:
    server, client = shake(new_context(settings(authority.sign("server"))), authority.client_context())
    assert client.version() == "TLSv1.3"
    assert server.getpeercert() is None


def test_the_key_may_be_in_the_certificate_s_file(authority: Authority) -> None:
    pair = authority.sign("both")
    with pair.certificate.open("a") as file:
        file.write(pair.key.read_text())
    shake(new_context(settings(pair, key="")), authority.client_context())


@pytest.mark.parametrize(("minimum", "spoken"), [("1.2", ssl.TLSVersion.TLSv1_2), ("1.3", ssl.TLSVersion.TLSv1_3)])
def test_the_minimum_is_spoken(authority: Authority, minimum: str, spoken: ssl.TLSVersion) -> None:
    client_context = authority.client_context()
    client_context.maximum_version = spoken
    shake(new_context(settings(authority.sign("server"), minimum=minimum)), client_context)


def test_below_the_minimum_is_refused_with_a_reason(authority: Authority) -> None:
    client_context = authority.client_context()
    client_context.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError) as refused:
        shake(new_context(settings(authority.sign("server"), minimum="1.3")), client_context)
    assert failure(refused.value) == "the client's TLS version is below tls.minimum"


def test_a_required_certificate_that_is_missing_is_refused_with_a_reason(authority: Authority) -> None:
    context = new_context(settings(authority.sign("server"), authority.ca, "required"))
    with pytest.raises(ssl.SSLError) as refused:
        shake(context, authority.client_context())
    assert failure(refused.value) == "the client gave no certificate, and tls.client_certificates is required"


def test_a_client_s_certificate_of_another_authority_is_refused_even_if_it_is_optional(
    authority: Authority, own: Authority
) -> None:
    context = new_context(settings(authority.sign("server"), authority.ca, "optional"))
    with pytest.raises(ssl.SSLError) as refused:
        shake(context, authority.client_context(own.sign("stranger")))
    assert failure(refused.value).startswith("the client's certificate is refused: unable to get")


@pytest.mark.parametrize(
    ("client_certificates", "given", "seen"),
    [("none", True, False), ("optional", False, False), ("optional", True, True), ("required", True, True)],
)
def test_a_client_s_certificate_is_seen_if_it_is_asked_for(
    authority: Authority, client_certificates: str, given: bool, seen: bool
) -> None:
    context = new_context(settings(authority.sign("server"), authority.ca, client_certificates))
    server, _ = shake(context, authority.client_context(authority.sign("anna") if given else None))
    assert certificate_user(server.getpeercert(), "common_name") == ("anna" if seen else None)


# Files that are not what they should be.

Spoil = Callable[[Pair], TlsSettings]


def _key_of_another(pair: Pair) -> TlsSettings:
    pair.key.write_bytes(Authority(pair.key.parent / "other").sign("other").key.read_bytes())
    return settings(pair)


def _encrypted_key(pair: Pair) -> TlsSettings:
    clear = pair.key.rename(pair.key.with_suffix(".clear"))
    openssl("pkcs8", "-topk8", "-in", clear, "-out", pair.key, "-passout", "pass:secret")
    return settings(pair)


def _torn(pair: Pair) -> TlsSettings:
    pair.certificate.write_text(pair.certificate.read_text()[:200])
    return settings(pair)


def _with_ca(text: str) -> Spoil:
    def spoil(pair: Pair) -> TlsSettings:
        ca = pair.key.with_name("ca.pem")
        ca.write_text(text)
        return settings(pair, ca, "required")

    return spoil


def _empty(pair: Pair) -> TlsSettings:
    pair.certificate.write_text("")
    return settings(pair)


def _missing_key(pair: Pair) -> TlsSettings:
    pair.key.unlink()
    return settings(pair)


BROKEN: list[tuple[Spoil, str]] = [
    (_missing_key, r"tls\.key \S+/server\.key: No such file or directory"),
    (_empty, r"tls\.certificate \S+ holds no certificate in PEM format"),
    (lambda pair: settings(pair, key=str(pair.certificate)), r"tls\.key \S+ holds no private key in PEM format"),
    (lambda pair: settings(pair, key=""), r"tls\.key is not set, and \S+ holds no private key in PEM format"),
    (_key_of_another, r"tls\.key \S+/server\.key is not the key of tls\.certificate \S+/server\.pem"),
    (_encrypted_key, r"tls\.key is encrypted; give a key without a password, readable by the broker only"),
    (_torn, r"tls\.certificate \S+ with tls\.key \S+ cannot be used: .+"),
    (_with_ca("nothing"), r"tls\.ca \S+ holds no certificate in PEM format"),
    (_with_ca("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), r"tls\.ca \S+ cannot be used: .+"),
    (
        lambda pair: settings(pair, client_certificates="optional"),
        r"tls\.client_certificates is optional, but tls\.ca names no authorities",
    ),
    (
        lambda pair: settings(Pair(Path(), Path())),
        r"tls\.certificate \.: Is a directory",
    ),
]


@pytest.mark.parametrize(("spoil", "text"), BROKEN, ids=[text for _, text in BROKEN])
def test_a_broken_file_is_named_in_one_line(own: Authority, spoil: Spoil, text: str) -> None:
    wanted = spoil(own.sign("server"))
    with pytest.raises(TlsError, match=f"^{text}$") as refused:
        new_context(wanted)
    assert "\n" not in str(refused.value)


# Reloading.


class Watch:
    """Certificates of `server.pem` on a clock that the test turns."""

    def __init__(self, authority: Authority) -> None:
        self.authority = authority
        self.text = io.StringIO()
        self.clock = FakeClock()
        self.certificates = Certificates(settings(authority.sign("server")), self.clock, Log(stream=self.text))

    def serial(self) -> str:
        return serial(self.certificates.context, self.authority)

    def look(self, times: int = 2) -> None:
        self.clock.advance(LOOK_INTERVAL_S * times)

    def lines(self) -> list[str]:
        return self.text.getvalue().splitlines()


@pytest.fixture
def watch(own: Authority) -> Watch:
    return Watch(own)


def test_a_changed_certificate_is_in_force_two_looks_later(watch: Watch) -> None:
    before = watch.serial()
    watch.authority.sign("server")
    watch.look(1)
    assert watch.serial() == before, "it may still be written"
    watch.look(1)
    assert watch.serial() != before
    assert "certificate reloaded" in watch.lines()[0]


def test_unchanged_files_are_not_loaded_again(watch: Watch) -> None:
    context = watch.certificates.context
    watch.look(10)
    assert watch.certificates.context is context
    assert watch.lines() == []


def test_a_broken_file_is_told_once_and_the_old_certificate_stays(watch: Watch) -> None:
    before = watch.serial()
    file = Path(watch.certificates.settings.certificate)
    file.write_text("torn")
    watch.look(10)
    assert watch.serial() == before
    (line,) = watch.lines()
    assert "error   certificate not reloaded, the old one stays in force" in line
    assert f"tls.certificate {file} holds no certificate" in line
    watch.authority.sign("server")
    watch.look()
    assert watch.serial() != before


def test_a_file_that_is_gone_for_a_while_is_told_and_then_taken(watch: Watch) -> None:
    before = watch.serial()
    key = Path(watch.certificates.settings.key)
    away = key.rename(key.with_suffix(".away"))
    watch.look(3)
    assert watch.serial() == before
    assert len(watch.lines()) == 1
    away.rename(key)
    watch.look(3)
    assert "certificate reloaded" in watch.lines()[-1]


def test_between_certificate_and_key_nothing_is_loaded(watch: Watch) -> None:
    new = watch.authority.sign("server", file="new")
    os.replace(new.certificate, watch.certificates.settings.certificate)
    watch.look(1)
    os.replace(new.key, watch.certificates.settings.key)
    watch.look(2)
    assert ["certificate reloaded" in line for line in watch.lines()] == [True]


def test_a_reload_on_demand_does_not_wait(watch: Watch) -> None:
    before = watch.serial()
    watch.authority.sign("server")
    watch.certificates.reload()
    assert watch.serial() != before


def test_new_authorities_count_for_the_next_handshake(own: Authority, tmp_path: Path) -> None:
    other = Authority(tmp_path / "other")
    trusted = tmp_path / "trusted.pem"
    trusted.write_bytes(own.ca.read_bytes())
    wanted = settings(own.sign("server"), trusted, "required")
    certificates = Certificates(wanted, FakeClock(), Log(stream=io.StringIO()))
    client_context = own.client_context(other.sign("anna"))
    with pytest.raises(ssl.SSLError):
        shake(certificates.context, client_context)
    trusted.write_bytes(other.ca.read_bytes())
    certificates.reload()
    shake(certificates.context, client_context)
    with pytest.raises(ssl.SSLError):
        shake(certificates.context, own.client_context(own.sign("anna")))


def test_after_a_stop_nobody_looks(watch: Watch) -> None:
    watch.certificates.stop()
    watch.authority.sign("server")
    watch.look(10)
    assert watch.lines() == []


# Names in certificates.

SUBJECT = (
    (("countryName", "AT"),),
    (("organizationName", "Mill, Weir & Sons"),),
    (("commonName", "anna"), ("userId", "a1")),
)
ALTERNATIVES = (
    ("DNS", "a.example"),
    ("DNS", "b.example"),
    ("email", "anna@a.example"),
    ("URI", "urn:anna"),
    ("IP Address", "10.0.0.1"),
)
CERTIFICATE = {"subject": SUBJECT, "subjectAltName": ALTERNATIVES}


@pytest.mark.parametrize(
    ("user_from", "name"),
    [
        ("common_name", "anna"),
        ("distinguished_name", r"CN=anna+UID=a1,O=Mill\, Weir & Sons,C=AT"),
        ("subject_alternative_name_dns", "a.example"),
        ("subject_alternative_name_email", "anna@a.example"),
        ("subject_alternative_name_uri", "urn:anna"),
        ("subject_alternative_name_ip", "10.0.0.1"),
    ],
)
def test_the_user_is_named_by_the_part_that_is_set(user_from: str, name: str) -> None:
    assert certificate_user(CERTIFICATE, user_from) == name


@pytest.mark.parametrize("user_from", USER_FROM)
@pytest.mark.parametrize("certificate", [None, {}, {"subject": (), "subjectAltName": ()}])
def test_a_certificate_without_the_name_names_nobody(certificate: dict[str, object] | None, user_from: str) -> None:
    assert certificate_user(certificate, user_from) is None


def test_several_common_names_are_joined() -> None:
    subject = ((("commonName", "anna"),), (("commonName", "berta"),))
    assert certificate_user({"subject": subject}, "common_name") == "anna,berta"


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("#1", r"\#1"),
        (" x ", r"\ x\ "),
        ('a"b+c;d<e>f\\g', r"a\"b\+c\;d\<e\>f\\g"),
        (" ", r"\ "),
        ("", ""),
        ("ü~", r"\C3\BC\7E"),
    ],
)
def test_a_distinguished_name_escapes_what_would_read_as_another(value: str, written: str) -> None:
    assert certificate_user({"subject": ((("commonName", value),),)}, "distinguished_name") == f"CN={written}"


def test_a_distinguished_name_is_written_as_rabbitmq_writes_it(own: Authority) -> None:
    """What rabbit_cert_info:subject of RabbitMQ 3.10.8 says of this subject."""
    subject = r"/C=AT/DC=x/ST=Wien/O=Mill, Weir/OU=#1/street=a;b/SN=Sur/GN=Giv/serialNumber=77/CN=anna /description=d"
    context = new_context(settings(own.sign("server"), own.ca, "required"))
    server, _ = shake(context, own.client_context(own.sign("anna", subject)))
    assert certificate_user(server.getpeercert(), "distinguished_name") == (
        r"2.5.4.13=d,CN=anna\ ,SERIALNUMBER=77,GIVENNAME=Giv,SN=Sur,2.5.4.9=a\;b,OU=\#1,O=Mill\, Weir,ST=Wien,DC=x,C=AT"
    )


# Failures in words.


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ConnectionResetError(), "closed by the client"),
        (ConnectionAbortedError("SSL handshake is taking longer than 1 s"), "handshake timeout"),
        (TimeoutError(), "handshake timeout"),
        (OSError(113, "No route to host"), "No route to host"),
    ],
)
def test_a_failure_of_the_socket_is_told_in_words(error: OSError, text: str) -> None:
    assert failure(error) == text
