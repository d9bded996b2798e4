"""iothub.dashboard.checked: a form may send what was checked, and nothing else, whatever is typed while the API answers."""

from __future__ import annotations

import asyncio

import pytest

from iothub.dashboard.api import Json, RefusalError
from iothub.dashboard.checked import Checked


class Api:
    """Answers when the test does."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, bool]] = []
        self.answers: list[asyncio.Future[Json]] = []

    async def send(self, asked: str, is_dry_run: bool) -> Json:
        self.asked.append((asked, is_dry_run))
        self.answers.append(asyncio.get_running_loop().create_future())
        return await self.answers[-1]


class Form:
    def __init__(self) -> None:
        self.api = Api()
        self.is_allowed = False
        self.checked = Checked[str](self.api.send, self.allow)

    def allow(self, is_allowed: bool) -> None:
        self.is_allowed = is_allowed

    async def begin(self, asked: str) -> asyncio.Task[Json | None]:
        task = asyncio.create_task(self.checked.check(asked))
        await asyncio.sleep(0)
        return task


def test_what_was_checked_is_done_once() -> None:
    async def scene() -> None:
        form = Form()
        check = await form.begin("acme")
        assert not form.is_allowed
        form.api.answers[0].set_result({"devices": 3})
        assert await check == {"devices": 3}
        assert form.is_allowed

        doing = asyncio.create_task(form.checked.do())
        await asyncio.sleep(0)
        assert not form.is_allowed
        assert await form.checked.do() is None
        form.api.answers[1].set_result({"devices": 3})
        assert await doing == ("acme", {"devices": 3})
        assert form.api.asked == [("acme", True), ("acme", False)]

    asyncio.run(scene())


def test_name_that_changes_during_the_check_is_not_allowed_by_it() -> None:
    async def scene() -> None:
        form = Form()
        check = await form.begin("acme")
        form.checked.forget()
        form.api.answers[0].set_result({})

        assert await check is None
        assert not form.is_allowed
        assert await form.checked.do() is None

    asyncio.run(scene())


def test_what_is_not_checked_yet_is_not_done() -> None:
    """Whoever clicks faster than the API answers; the check goes on."""

    async def scene() -> None:
        form = Form()
        check = await form.begin("acme")
        assert await form.checked.do() is None
        form.api.answers[0].set_result({})
        assert await check == {}
        assert form.is_allowed
        assert form.api.asked == [("acme", True)]

    asyncio.run(scene())


def test_answer_about_an_older_file_is_passed_over() -> None:
    """Also when it is a refusal, and whichever answer comes first."""

    async def scene() -> None:
        form = Form()
        older, newer = await form.begin("older"), await form.begin("newer")
        form.api.answers[1].set_result({"newer": True})
        assert await newer == {"newer": True}
        form.api.answers[0].set_exception(RefusalError(409, "conflict", "bad lines"))
        assert await older is None
        assert form.is_allowed

    asyncio.run(scene())


def test_refusal_allows_nothing() -> None:
    async def scene() -> None:
        form = Form()
        check = await form.begin("acme")
        form.api.answers[0].set_exception(RefusalError(409, "conflict", "bad lines"))
        with pytest.raises(RefusalError):
            await check
        assert not form.is_allowed

    asyncio.run(scene())
