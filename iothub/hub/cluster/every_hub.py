"""Admin requests for what each hub has in memory: answered here, asked of the other hubs, and the answers added up.

Knows no verb's work and no link: `AdminCommands` and `AdminClients` answer for this hub, a `PeerCommands` asks the others. What they ask is
answered by the former alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from iothub.base import log as logging
from iothub.base.errors import NotFoundError, UnavailableError
from iothub.peers.commands import PeerAnswer, PeerCommands
from iothub.records.admin_commands import Json, Reply, Request, Verb, Verbs

FROM_MEMORY_S, FROM_STORES_S = 2.0, 8.0  # less than the command line waits for this hub: 3 and 10
AT_EVERY_HUB: Mapping[str, float] = {
    Verb.CLIENT_LIST: FROM_MEMORY_S,
    Verb.CLIENT_TOP: FROM_MEMORY_S,
    Verb.CLIENT_SHOW: FROM_MEMORY_S,
    Verb.CLIENT_KICK: FROM_STORES_S,
    Verb.SUBSCRIPTION_LIST: FROM_MEMORY_S,
    Verb.GROUP_LIST: FROM_MEMORY_S,
    Verb.EXPLAIN_CONNECT: FROM_STORES_S,
    Verb.EXPLAIN_PUBLISH: FROM_STORES_S,
    Verb.EXPLAIN_SUBSCRIBE: FROM_STORES_S,
    Verb.TRACE_START: FROM_MEMORY_S,
    Verb.TRACE_LIST: FROM_MEMORY_S,
    Verb.TRACE_READ: FROM_MEMORY_S,
    Verb.TRACE_STOP: FROM_MEMORY_S,
    Verb.TRACE_DELETE: FROM_MEMORY_S,
    Verb.BAN_LIST: FROM_MEMORY_S,
    Verb.BAN_LIFT: FROM_MEMORY_S,
    Verb.ALARM_LIST: FROM_MEMORY_S,
    Verb.STREAM_SHOW: FROM_MEMORY_S,
    Verb.RETAIN_DELETE: FROM_STORES_S,
    Verb.SESSION_DISCARD: FROM_STORES_S,
}
"""For how long each may be silent before this hub waits no more."""

_AT_ONE = frozenset({Verb.CLIENT_SHOW, Verb.CLIENT_KICK, Verb.SESSION_DISCARD})  # done when one hub has it

log = logging.get(__name__)


class EveryHub:
    """On the reactor thread. `verbs`: those of `AT_EVERY_HUB`, for whoever asks at this hub."""

    def __init__(self, own: Verbs, peers: PeerCommands, names: Callable[[], Mapping[int, str]]) -> None:
        """`own`: answers for this hub. `names`: of the other hubs that live by the accounts, by node number."""
        self._own = own
        self._peers = peers
        self._names = names
        self.verbs: Verbs = dict.fromkeys(AT_EVERY_HUB, self._answer)

    async def _answer(self, request: Request, reply: Reply) -> Json:
        """Raises NotFoundError: no hub has it. UnavailableError: none has it of those that answered, and others did not."""
        refusal: NotFoundError | None = None
        result: Json = {}
        try:
            result = await self._own[request.verb](request, reply)
        except NotFoundError as error:
            refusal = error
        names = self._names()
        if names and not (refusal is None and request.verb in _AT_ONE):
            answers = await self._peers.ask_all(request, reply, AT_EVERY_HUB[request.verb])
            return _added_up(request, result, refusal, answers, names)
        if refusal is not None:
            raise refusal
        return result


def _added_up(
    request: Request, result: Json, refusal: NotFoundError | None, answers: list[PeerAnswer], names: Mapping[int, str]
) -> Json:
    silent = dict.fromkeys(names, "there is no link to it")
    for answer in answers:
        if answer.error is None or isinstance(answer.error, NotFoundError):
            silent.pop(answer.node, None)
        else:
            silent[answer.node] = str(answer.error)
        if answer.error is None:
            refusal = None
            result = _sum(result, answer.result)
    unanswered = [
        {"hub": f"{names.get(node, 'unknown')} ({node})", "reason": reason} for node, reason in sorted(silent.items())
    ]
    if not unanswered or (refusal is None and request.verb in _AT_ONE):
        if refusal is not None:
            raise refusal
        return result
    log.warning("other hubs did not answer an admin request", verb=request.verb, tenant=request.tenant, hubs=unanswered)
    if refusal is not None:
        missing = "; ".join(f"hub {each['hub']} did not answer: {each['reason']}" for each in unanswered)
        raise UnavailableError(f"{refusal}; but {missing}")
    return {**result, "unanswered": unanswered}


def _sum(total: Json, part: Json) -> Json:
    """Add up what two hubs have found: numbers are added; of texts the last one stays."""
    summed = dict(total)
    for name, value in part.items():
        before = summed.get(name)
        summed[name] = before + value if isinstance(before, int) and isinstance(value, int) else value
    return summed
