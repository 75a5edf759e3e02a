from hypothesis import given
from hypothesis import strategies as st

from policies.kinds import Family
from policies.request.surfaces import Surfaces
from policies.settings import Settings, Upstream
from policies.tls import ClientHello, Treatment, is_browser, treatment
from tests.rows import over

GREASE = tuple(range(0x0A0A, 0x10000, 0x1010))
TLS13 = (0x1301, 0x1302, 0x1303, 0xC02B, 0xC02F)

CHROMIUM = (0, 5, 10, 11, 13, 16, 18, 23, 27, 35, 43, 45, 51, 17613, 51764, 65037, 65281)
CURL = (0, 10, 11, 13, 16, 21, 22, 23, 43, 45, 49, 51)
HTTPX = (0, 10, 11, 13, 16, 21, 22, 23, 35, 43, 45, 51)
NODE = (0, 10, 11, 13, 22, 23, 35, 43, 45, 51)
FIREFOX = (0, 23, 65281, 10, 11, 35, 16, 5, 34, 51, 43, 13, 45, 28, 65037)


def test_chromium_is_a_browser_by_its_reserved_values() -> None:
    assert is_browser((0x3A3A, *TLS13), (0xCACA, *CHROMIUM, 0x1A1A))
    assert is_browser((0x3A3A, *TLS13), CHROMIUM)
    assert is_browser(TLS13, (0xCACA, *CHROMIUM))


def test_firefox_is_a_browser_by_two_extensions_together() -> None:
    assert is_browser(TLS13, FIREFOX)
    assert not is_browser(TLS13, [each for each in FIREFOX if each != 28])
    assert not is_browser(TLS13, [each for each in FIREFOX if each != 34])


@over("extensions", [CURL, HTTPX, NODE, ()])
def test_programs_are_no_browsers(extensions: tuple[int, ...]) -> None:
    assert not is_browser(TLS13, extensions)


def test_all_sixteen_reserved_values_are_known() -> None:
    assert len(GREASE) == 16
    assert all(is_browser((value,), ()) and is_browser((), (value,)) for value in GREASE)


@given(st.integers(0, 0xFFFF))
def test_no_other_value_is_reserved(value: int) -> None:
    assert is_browser((value,), ()) == (value in GREASE)


@over("family", Family)
def test_a_browser_is_a_person_on_the_web_chats_alone(family: Family) -> None:
    settings = Settings(upstreams=(Upstream("own", ("own.example.com",), family),))
    treated = {
        sent: treatment(
            ClientHello(("own.example.com", 443), ends_here=False, sni=None, cipher_suites=TLS13, extension_types=sent),
            Surfaces(settings.upstreams),
            settings,
        )
        for sent in (FIREFOX, CURL)
    }
    on_a_chat = family in (Family.QWEN_WEB, Family.ZAI_WEB)
    assert treated == {FIREFOX: Treatment.PERSON if on_a_chat else Treatment.USUAL, CURL: Treatment.USUAL}
