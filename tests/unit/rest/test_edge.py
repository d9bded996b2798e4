"""What every request passes: bodies that are too large, too slow, of another kind or no JSON; repeated requests; defects."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from iothub.base.errors import TenantLimitError
from iothub.rest import edge
from iothub.rest.edge import BODY_BYTES, Edge
from iothub.rest.idempotency import KEEP_S, MOST_BYTES, Answers
from iothub.rest.problems import Code, ProblemError, problem_of, without_commands
from iothub_tenants.accounts import api_keys, devices, tenants
from tests.support.in_process.rest_api import ROOT, Api, request


def test_pages_without_a_key_say_who_is_there_and_no_more(api: Api) -> None:
    page = api.get("//", key=None)

    assert (page.status, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert b"/api/v1" in page.body
    assert page.headers["content-security-policy"].startswith("default-src 'none'")
    assert api.get("//livez", key=None).json == {"status": "up"}
    assert api.get("//readyz", key=None).json == {"status": "up"}
    assert api.get("//docs", key=None).code == "not_found"


def test_unknown_path_and_method_are_problems(api: Api) -> None:
    assert api.get("/nobody").code == "not_found"
    answer = api("PUT", "/tenants/acme")
    assert (answer.status, answer.code) == (405, "method_not_allowed")
    assert answer.headers["allow"] == "DELETE, GET, PATCH"
    assert api("DELETE", "/tenants").headers["allow"] == "GET, POST"
    assert api.get("/tenants/").code == "not_found"


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"{", "malformed_json"),
        (b"\xff", "malformed_json"),
        (b"[" * 100_000, "malformed_json"),
        (b'{"name": ' + b"1" * 5000 + b"}", "malformed_json"),
        (b"[]", "invalid"),
        (b"null", "invalid"),
        (b'"x"', "invalid"),
        (b"{}", "invalid"),
        (b'{"name": 5}', "invalid"),
        (b'{"name": "t1", "more": 1}', "invalid"),
        (b'{"name": "\\ud800x"}', "invalid"),
        (b'{"name": "a\\u0000"}', "invalid"),
        (b'{"name": "t1\\n"}', "invalid"),
        (b'{"name": "t1", "is_closed": "true"}', "invalid"),
        (b'{"name": "t1", "display_name": "\\ud800"}', "invalid"),
    ],
)
def test_body_that_is_none_is_refused(api: Api, raw: bytes, code: str) -> None:
    """`iothub.rest.models` takes nothing that it does not know."""
    answer = api("POST", "/tenants", raw=raw)

    assert (answer.code, answer.status) == (code, 400 if code == "malformed_json" else 422)
    assert tenants.count(api.store) == 2


def test_what_was_sent_is_not_sent_back(api: Api) -> None:
    """It might be a password."""
    answer = api("PUT", "/tenants/acme/devices/dev1/password", {"password": "", "passwort": "geheim"})

    assert answer.code == "invalid"
    assert {row["field"] for row in answer.json["errors"]} == {"body.password", "body.passwort"}
    assert b"geheim" not in answer.body


def test_every_wrong_field_is_named_in_the_sentence(api: Api) -> None:
    """A typing error is an unknown field, and one that is missing: whoever reads the first alone looks for the wrong one."""
    answer = api.post("/tenants", {"nme": "t1"})

    assert answer.json["detail"] == "body.name: is missing; body.nme: unknown field"


def test_sentence_of_many_wrong_fields_ends(api: Api) -> None:
    answer = api.post("/tenants", {f"x{number}": 1 for number in range(9)})

    assert answer.json["detail"].endswith("body.x3: unknown field; and 5 more")
    assert len(answer.json["errors"]) == 10


def test_body_of_another_kind_is_refused(api: Api) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "", "application/jsonx"):
        answer = api("POST", "/tenants", raw=b'{"name": "t1"}', headers={"Content-Type": kind})
        assert (answer.status, answer.code) == (415, "unsupported_media_type")
    taken = api("POST", "/tenants", raw=b'{"name": "t1"}', headers={"Content-Type": "application/json; charset=utf-8"})
    assert taken.status == 201


@pytest.mark.parametrize("said", [None, str(BODY_BYTES + 1), "9" * 30, "x"])
def test_body_that_is_too_large_is_refused(api: Api, said: str | None) -> None:
    """Whether it says so or not."""
    headers = {} if said is None else {"content-length": said}

    answer = api("POST", "/tenants", raw=b"x" * (BODY_BYTES + 1) if said is None else b"{}", headers=headers)

    assert (answer.status, answer.code) == (413, "body_too_large")
    assert answer.headers["connection"] == "close"


def test_body_that_does_not_come_is_not_waited_for(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edge, "BODY_S", 0.01)
    headers = {"authorization": f"Bearer {api.root}", "content-type": "application/json"}

    answer = asyncio.run(request(api.app, "POST", f"{ROOT}/tenants", headers, b"{", is_whole=False))

    assert (answer.status, answer.code) == (408, "body_too_slow")


def test_body_is_not_read_without_a_key(api: Api) -> None:
    """Nobody fills the memory who may not."""
    answer = asyncio.run(request(api.app, "POST", f"{ROOT}/tenants", {}, b"{", is_whole=False))

    assert answer.status == 401


def test_defect_is_a_problem_without_its_text(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log has it."""
    monkeypatch.setattr(tenants, "show", lambda *_given: 1 / 0)

    with capture_logs() as logged:
        answer = api.get("/tenants/acme")

    assert (answer.status, answer.code) == (500, "defect")
    assert b"division" not in answer.body
    assert [(line["event"], str(line["exc_info"])) for line in logged] == [("defect in the API", "division by zero")]


@pytest.mark.parametrize("path", ["/tenants/%00", "/tenants/a%0Ab", "/tenants/%ED%A0%80", "/tenants/" + "x" * 5000])
def test_strange_names_are_not_found(api: Api, path: str) -> None:
    assert api.get(path).code == "not_found"


# --- repeated requests


def test_repeated_create_is_done_once(api: Api) -> None:
    """With its secret, which nobody could read again."""
    headers = {"Idempotency-Key": "k1"}

    first = api.post("/tenants/acme/devices", {"name": "d2"}, headers=headers)
    second = api.post("/tenants/acme/devices", {"name": "d2"}, headers=headers)

    assert first.status == second.status == 201
    assert first.json["secret"] == second.json["secret"]
    assert "idempotent-replayed" not in first.headers
    assert second.headers["idempotent-replayed"] == "true"
    assert second.headers["location"] == first.headers["location"]
    other = api.post("/tenants/acme/devices", {"name": "d3"}, headers=headers)
    assert (other.status, other.code) == (409, "idempotency_key_reused")


def test_key_of_a_request_is_of_one_caller_and_one_path(api: Api) -> None:
    other = api.key("k", "operator")
    headers = {"Idempotency-Key": "k1"}

    assert api.post("/tenants", {"name": "t1"}, headers=headers).status == 201
    assert api.post("/tenants", {"name": "t1"}, headers=headers, key=other).status == 409
    assert api.post("/plans", {"name": "t1"}, headers=headers).status == 201
    assert api.post("/tenants", {"name": "t2"}, headers={"Idempotency-Key": ""}).code == "invalid"


def test_answer_is_not_given_to_another_key_of_the_same_name(api: Api) -> None:
    """It may hold a secret of another tenant."""
    headers = {"Idempotency-Key": "k1"}
    first = api.key("k", "tenant-admin", "acme")
    assert api.post("/tenants/acme/devices", {"name": "d2"}, headers=headers, key=first).status == 201
    api_keys.remove(api.store, "k")
    second = api.key("k", "tenant-admin", "other")

    assert api.post("/tenants/acme/devices", {"name": "d2"}, headers=headers, key=second).status == 404


def test_request_that_failed_is_tried_again(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refusal of the request itself is given again."""
    headers = {"Idempotency-Key": "k1"}
    with monkeypatch.context() as broken, capture_logs():  # whose last words would be coloured for seconds
        broken.setattr(devices, "create", lambda *_given, **_named: 1 / 0)
        assert api.post("/tenants/acme/devices", {"name": "d2"}, headers=headers).status == 500
    assert api.post("/tenants/acme/devices", {"name": "d2"}, headers=headers).status == 201
    refused = api.post("/tenants/acme/devices", {"name": "dev1"}, headers={"Idempotency-Key": "k2"})
    devices.delete(api.store, "acme", "dev1")
    again = api.post("/tenants/acme/devices", {"name": "dev1"}, headers={"Idempotency-Key": "k2"})
    assert refused.status == again.status == 409


def test_request_under_way_is_not_begun_again() -> None:
    answers = Answers(lambda: 0.0)
    assert answers.begin(("k", "/", "1"), b"") is None

    with pytest.raises(ProblemError) as raised:
        answers.begin(("k", "/", "1"), b"")

    assert raised.value.code is Code.IDEMPOTENCY_IN_PROGRESS


def test_answers_are_kept_for_a_day_within_their_bound() -> None:
    now = 0.0
    answers = Answers(lambda: now)
    for number in range(3):
        answers.begin(("k", "/", str(number)), b"")
        answers.finish(("k", "/", str(number)), 201, [], b"x" * (MOST_BYTES // 2))

    assert answers.begin(("k", "/", "0"), b"") is None
    assert answers.begin(("k", "/", "2"), b"") is not None
    now = KEEP_S + 1
    assert answers.begin(("k", "/", "2"), b"") is None


# --- iothub.rest.problems


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("there is no tenant 'x': `iothub tenant list` shows them", "there is no tenant 'x'"),
        ("tenant acme is protected: run `iothub tenant unprotect acme` first", "tenant acme is protected"),
        ("tenant acme has no ban of device x; `iothub ban list acme` shows them", "tenant acme has no ban of device x"),
        ("the display name is too long: expected 5", "the display name is too long: expected 5"),
    ],
)
def test_problem_names_no_command(text: str, shown: str) -> None:
    assert without_commands(text) == shown


def test_limit_of_a_tenant_is_a_problem_of_its_own() -> None:
    problem = problem_of(TenantLimitError("too many streams", limit="streams"), is_platform=True)

    assert (problem.code.status, problem.code.word) == (429, "limit_exceeded")


def test_other_protocols_are_passed_on(api: Api) -> None:
    """Such as the lifespan."""
    seen = []

    async def inner(scope: dict[str, object], _receive: object, _send: object) -> None:
        seen.append(scope["type"])

    assert isinstance(api.app, Edge)
    api.app._app = inner  # type: ignore[assignment]
    asyncio.run(api.app({"type": "lifespan"}, None, None))  # type: ignore[arg-type]

    assert seen == ["lifespan"]


def test_field_of_a_device_is_named_once_and_without_a_class(api: Api) -> None:
    """A device's body is one of several kinds, and each refuses the name."""
    answer = api.post("/tenants/acme/devices", {"name": "<img>"})

    assert [row["field"] for row in answer.json["errors"]].count("body.name") == 1
    assert "New" not in str(answer.json)


def test_field_of_a_user_is_named_without_its_role(api: Api) -> None:
    """A user's body is one of several kinds, which its role tells apart."""
    answer = api.post("/users", {"name": "anna", "role": "viewer", "password": "short"})

    assert {row["field"] for row in answer.json["errors"]} == {"body.password"}
