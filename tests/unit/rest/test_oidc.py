"""Logging in by an OpenID provider: the way there and back, every token that is not right, and what groups may.

`iothub.rest.oidc`, `iothub.rest.oidc_provider`, by requests.
"""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from iothub.base.errors import ConfigError, UnavailableError
from iothub.config.sections import Admin, Config, Oidc
from iothub.rest import oidc
from iothub.rest.oidc_provider import KEYS_AGAIN_S, Provider
from iothub_tenants.accounts import audit, users
from tests.support.in_process.rest_api import HOST, Answer, Api
from tests.support.oidc_provider import CLIENT, ISSUER, SECRET, OidcProvider
from tests.support.tokens import EDDSA, ES256, HS256, RS256, jwk, part

URL = "https://iothub.example.com"
ROLES = ("admins=platform-admin", "acme=tenant-admin:acme", "a=b=viewer", "tenants=tenant-viewer")


@pytest.fixture
def provider() -> OidcProvider:
    found = OidcProvider()
    found.claims = {"groups": ["staff", "admins"]}
    return found


@pytest.fixture
def settings(tmp_path: Path) -> Config:
    secret = tmp_path / "client.secret"
    secret.write_text(f"{SECRET}\n")
    own = Oidc(issuer=ISSUER, client_id=CLIENT, client_secret_file=secret, roles=ROLES, tenant_claim="org.tenant")
    return Config(admin=Admin(url=URL, oidc=own))


@pytest.fixture
def sso(api: Api, provider: OidcProvider, settings: Config) -> Api:
    """The API with the provider."""
    return Api(api.store, settings, provider.fetch, name="sso")


def depart(api: Api) -> tuple[Answer, str]:
    """Press the button: the answer, and the cookie that the browser has from it."""
    answer = api.get("/auth/oidc", key=None, scheme="https")
    assert answer.status == 303, answer.body
    return answer, answer.headers["set-cookie"].partition(";")[0]


def come_back(api: Api, cookie: str, query: dict[str, str], **options: Any) -> Answer:
    return api.get(
        f"/auth/oidc/callback?{urlencode(query)}", key=None, scheme="https", headers={"cookie": cookie}, **options
    )


def log_in(api: Api, provider: OidcProvider) -> Answer:
    departed, cookie = depart(api)
    return come_back(api, cookie, provider.log_in(departed.headers["location"]))


def whoami(api: Api, answer: Answer) -> Any:
    cookie = answer.headers["set-cookie"].partition(";")[0]
    return api.get("/whoami", key=None, scheme="https", headers={"cookie": cookie, "host": HOST}).json


# --- there and back


def test_person_logs_in_with_the_role_of_a_group(sso: Api, provider: OidcProvider) -> None:
    answer = log_in(sso, provider)

    assert (answer.status, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert b'content="0;url=/"' in answer.body
    assert answer.headers["set-cookie"].startswith("__Host-iothub=")
    found = whoami(sso, answer)
    assert (found["name"], found["role"], found["tenant"]) == ("oidc:alice", "platform-admin", None)
    line = audit.page(sso.store, limit=1)[0]
    assert (line.actor, line.subject, line.action) == ("user:oidc:alice", "oidc:alice", "logged in")


def test_browser_gets_a_refusal_as_a_page_that_leads_back(sso: Api, provider: OidcProvider) -> None:
    """A person stands before it; who does not ask for a page gets the problem."""
    provider.claims = {"groups": ["staff"]}
    departed, cookie = depart(sso)
    query = provider.log_in(departed.headers["location"])
    page = sso.get(
        f"/auth/oidc/callback?{urlencode(query)}",
        key=None,
        scheme="https",
        headers={"cookie": cookie, "accept": "text/html,*/*;q=0.8"},
    )

    assert (page.status, page.headers["content-type"]) == (403, "text/html; charset=utf-8")
    assert b"none of your groups has a role here" in page.body
    assert b'<a href="/login">' in page.body
    assert "set-cookie" not in page.headers
    assert come_back(sso, cookie, query).code == "forbidden"


def test_words_of_the_provider_are_text_in_that_page(sso: Api) -> None:
    words = {"headers": {"accept": "text/html"}, "key": None, "scheme": "https"}
    page = sso.get(f"/auth/oidc/callback?{urlencode({'error': '<b>access_denied'})}", **words)

    assert page.status == 403
    assert b"&lt;b&gt;access_denied" in page.body
    assert b"<b>" not in page.body


def test_provider_that_does_not_answer_is_said_on_a_page(api: Api, provider: OidcProvider, settings: Config) -> None:
    def away(*_: object) -> Any:
        raise UnavailableError("the OpenID provider does not answer")

    sso = Api(api.store, settings, away, name="away")
    page = sso.get("/auth/oidc", key=None, scheme="https", headers={"accept": "text/html"})

    assert page.status == 503
    assert b'<a href="/login">' in page.body


def test_way_there_is_bound_to_the_browser(sso: Api, provider: OidcProvider) -> None:
    answer, cookie = depart(sso)

    words = answer.headers["set-cookie"].split("; ")
    assert cookie.startswith("__Host-iothub-oidc=")
    assert {"HttpOnly", "Secure", "SameSite=lax", f"Max-Age={oidc.FLOW_S}"} <= set(words)
    assert (
        f"redirect_uri={'https%3A%2F%2Fiothub.example.com'}%2Fapi%2Fv1%2Fauth%2Foidc%2Fcallback"
        in answer.headers["location"]
    )


def test_secret_goes_into_the_form_if_the_provider_wants_it_there(sso: Api, provider: OidcProvider) -> None:
    provider.document["token_endpoint_auth_methods_supported"] = ["client_secret_post"]

    assert log_in(sso, provider).status == 200


def test_login_that_was_not_begun_here_is_refused(sso: Api, provider: OidcProvider) -> None:
    """Nobody is logged in as somebody else: state and cookie belong together, and the cookie is this API's."""
    departed, cookie = depart(sso)
    other, _ = depart(sso)
    query = provider.log_in(departed.headers["location"])
    name, _, text = cookie.partition("=")
    forged = part(["s", "n", "v", int(time.time())])

    for given, asked in (
        ("", query),
        (cookie, provider.log_in(other.headers["location"])),
        (cookie, {**query, "state": ""}),
        (f"{name}={forged}.{text.partition('.')[2]}", {**query, "state": "s"}),
    ):
        answer = come_back(sso, given, asked)
        assert (answer.status, answer.code) == (403, "forbidden"), answer.json
        assert "set-cookie" not in answer.headers
    assert f"{ISSUER}/token" not in provider.asked


def test_strange_cookies_are_refused(sso: Api, provider: OidcProvider) -> None:
    for number, text in enumerate((".", "x", "x.y", "a.b.c", "=.=")):
        answer = come_back(sso, f"__Host-iothub-oidc={text}", {"state": "x", "code": "y"}, address=f"192.0.2.{number}")
        assert answer.status == 403


def test_code_is_worth_one_login(sso: Api, provider: OidcProvider) -> None:
    departed, cookie = depart(sso)
    query = provider.log_in(departed.headers["location"])
    assert come_back(sso, cookie, query).status == 200

    answer = come_back(sso, cookie, query)

    assert (answer.status, "invalid_grant" in answer.json["detail"]) == (403, True)


def test_login_that_takes_too_long_is_refused(
    sso: Api, provider: OidcProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    departed, cookie = depart(sso)
    monkeypatch.setattr(oidc, "FLOW_S", -1)

    answer = come_back(sso, cookie, provider.log_in(departed.headers["location"]))

    assert (answer.status, "longer than" in answer.json["detail"]) == (403, True)


def test_provider_that_says_no_is_repeated(sso: Api) -> None:
    answer = come_back(sso, "", {"error": "access_denied"})

    assert (answer.status, "'access_denied'" in answer.json["detail"]) == (403, True)


def test_refusals_are_noted_and_limited(sso: Api, provider: OidcProvider) -> None:
    answers = [come_back(sso, "", {"state": "x", "code": "y"}).status for _ in range(6)]

    assert answers == [403] * 5 + [429]
    line = audit.page(sso.store, limit=1)[0]
    assert (line.action, line.actor) == ("login failed", "anonymous")
    departed, cookie = depart(sso)
    assert come_back(sso, cookie, provider.log_in(departed.headers["location"])).status == 200  # an attempt of its own


# --- tokens


def _at(seconds: int) -> int:
    return int(time.time()) + seconds


@pytest.mark.parametrize(
    "claims",
    [
        {"iss": "https://evil.example.com"},
        {"iss": f"{ISSUER}/"},
        {"aud": "somebody"},
        {"aud": ["somebody", "else"]},
        {"aud": [CLIENT, "somebody"]},
        {"azp": "somebody"},
        {"exp": 1},
        {"exp": "soon"},
        {"iat": 1 << 40},
        {"nbf": 1 << 40},
        {"nonce": "other"},
        {"nonce": None},
        {"iss": None},
        {"aud": None},
        {"exp": None},
        {"iat": None},
        {"sub": None},
        {"sub": ""},
        {"sub": 5},
    ],
    ids=str,
)
def test_token_with_wrong_claims_is_refused(sso: Api, provider: OidcProvider, claims: dict[str, object]) -> None:
    provider.claims |= claims

    answer = log_in(sso, provider)

    assert (answer.status, answer.code) == (403, "forbidden")
    assert "the ID token is not valid" in answer.json["detail"]
    assert users.list_all(sso.store) == []


@pytest.mark.parametrize(
    "signing",
    [
        {"algorithm": RS256, "kid": "k1", "number": 1},  # another key under its name
        {"algorithm": RS256, "kid": "unknown"},
        {"algorithm": HS256, "kid": "k1", "secret": b"k" * 32},
        {"algorithm": ES256, "kid": "k1"},
    ],
    ids=str,
)
def test_token_with_a_wrong_signature_is_refused(sso: Api, provider: OidcProvider, signing: dict[str, object]) -> None:
    provider.signing = signing

    assert log_in(sso, provider).code == "forbidden"


@pytest.mark.parametrize("text", ["", "x", "a.b.c", f"{part({'alg': 'none'})}.{part({'sub': '1'})}.", "é"])
def test_what_is_no_token_is_refused(sso: Api, provider: OidcProvider, text: str) -> None:
    provider.token = text or " "

    assert log_in(sso, provider).code == "forbidden"


def test_public_key_is_no_shared_secret(sso: Api, provider: OidcProvider) -> None:
    """The mistake of libraries that take the algorithm from the token."""
    provider.signing = {"algorithm": HS256, "kid": "k1", "secret": str(provider.keys[0]["n"]).encode()}

    assert log_in(sso, provider).code == "forbidden"


@pytest.mark.parametrize("algorithm", [RS256, ES256, EDDSA])
def test_algorithms_with_a_key_pair_are_taken(sso: Api, provider: OidcProvider, algorithm: str) -> None:
    provider.keys = [{"kty": "strange"}, jwk(algorithm, "k2", use="sig"), jwk(RS256, "k3", use="enc")]
    provider.signing = {"algorithm": algorithm, "kid": "k2"}

    assert log_in(sso, provider).status == 200


def test_several_audiences_name_the_party(sso: Api, provider: OidcProvider) -> None:
    provider.claims |= {"aud": [CLIENT, "somebody"], "azp": CLIENT}

    assert log_in(sso, provider).status == 200


# --- what the provider publishes


def test_new_key_of_the_provider_is_read_when_a_token_names_it() -> None:
    """And not again and again for keys that nobody has."""
    now = 0.0
    found = OidcProvider()
    provider = Provider(Oidc(issuer=ISSUER, client_id=CLIENT), SECRET, found.fetch, lambda: now)
    assert provider._key("k1").key_id == "k1"
    found.keys = [jwk(RS256, "k2", 1)]

    for _ in range(3):
        with pytest.raises(Exception, match="does not have the key"):
            provider._key("k2")
    now = KEYS_AGAIN_S
    assert provider._key("k2").key_id == "k2"
    assert provider._key(None).key_id == "k2"

    assert found.asked.count(f"{ISSUER}/keys") == 2
    assert found.asked.count(f"{ISSUER}/.well-known/openid-configuration") == 1


@pytest.mark.parametrize(
    "changed",
    [
        {"issuer": "https://evil.example.com"},
        {"issuer": None},
        {"authorization_endpoint": "http://id.example.com/auth"},
        {"token_endpoint": "file:///etc/passwd"},
        {"jwks_uri": None},
    ],
    ids=str,
)
def test_provider_that_publishes_what_it_must_not_is_unavailable(
    sso: Api, provider: OidcProvider, changed: dict[str, object]
) -> None:
    provider.document |= changed

    assert sso.get("/auth/oidc", key=None).code == "unavailable"


def test_provider_that_does_not_answer_is_unavailable_and_passwords_still_work(
    sso: Api, provider: OidcProvider
) -> None:
    users.create(sso.store, "admin", "platform-admin", password="correct horse battery")
    provider.is_down = True

    assert sso.get("/auth/oidc", key=None).status == 503
    answer = sso.post("/auth/login", {"name": "admin", "password": "correct horse battery"}, key=None)
    assert answer.status == 200


def test_provider_that_goes_down_on_the_way_is_no_failure_of_the_person(sso: Api, provider: OidcProvider) -> None:
    departed, cookie = depart(sso)
    query = provider.log_in(departed.headers["location"])
    provider.is_down = True
    assert [come_back(sso, cookie, query).status for _ in range(6)] == [503] * 6

    provider.is_down = False

    assert come_back(sso, cookie, query).status == 200


@pytest.mark.parametrize("keys", [[], [{"kty": "oct", "k": "c2VjcmV0", "kid": "k1"}], "x", [5]])
def test_provider_without_a_key_is_unavailable(sso: Api, provider: OidcProvider, keys: Any) -> None:
    provider.keys = keys

    assert log_in(sso, provider).code == "unavailable"


# --- groups


@pytest.mark.parametrize(
    ("claims", "role", "tenant"),
    [
        ({"groups": "admins"}, "platform-admin", None),
        ({"groups": ["acme", "admins"]}, "platform-admin", None),  # the order is the setting's
        ({"groups": ["acme"]}, "tenant-admin", "acme"),
        ({"groups": ["a=b"]}, "viewer", None),
        ({"groups": ["tenants"], "org": {"tenant": "other"}}, "tenant-viewer", "other"),
        ({"groups": ["tenants"], "org.tenant": "other"}, "tenant-viewer", "other"),
    ],
)
def test_groups_have_roles(
    sso: Api, provider: OidcProvider, claims: dict[str, object], role: str, tenant: str | None
) -> None:
    provider.claims = claims

    found = whoami(sso, log_in(sso, provider))

    assert (found["role"], found["tenant"]) == (role, tenant)


@pytest.mark.parametrize(
    "claims",
    [
        {},
        {"groups": []},
        {"groups": ["staff"]},
        {"groups": ["Admins"]},
        {"groups": {"admins": 1}},
        {"groups": [["admins"]]},
        {"groups": ["tenants"]},
        {"groups": ["tenants"], "org": {"tenant": 5}},
        {"groups": ["tenants"], "org": {"tenant": "nobody"}},
        {"groups": ["tenants"], "org": "acme"},
    ],
    ids=str,
)
def test_person_without_a_role_is_refused(sso: Api, provider: OidcProvider, claims: dict[str, object]) -> None:
    provider.claims = claims

    assert log_in(sso, provider).code == "forbidden"
    assert users.list_all(sso.store) == []


def test_person_who_is_disabled_here_is_refused(sso: Api, provider: OidcProvider) -> None:
    log_in(sso, provider)
    users.disable(sso.store, "oidc:alice")

    assert log_in(sso, provider).code == "forbidden"


# --- settings


def test_without_a_provider_there_is_no_such_login(api: Api) -> None:
    assert api.get("/auth/oidc", key=None).code == "not_found"
    assert api.get("/auth/oidc/callback?state=x&code=y", key=None).code == "not_found"


def test_secret_that_cannot_be_read_keeps_the_api_from_starting(api: Api, settings: Config) -> None:
    file = settings.admin.oidc.client_secret_file
    assert file is not None
    file.write_text("\n")
    with pytest.raises(ConfigError, match="no secret in it"):
        Api(api.store, settings)

    other = dataclasses.replace(settings.admin.oidc, client_secret_file=file.with_name("absent"))
    with pytest.raises(UnavailableError, match="client_secret_file"):
        Api(api.store, Config(admin=Admin(url=URL, oidc=other)))
