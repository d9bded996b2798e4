"""Many persistent sessions that are away, made through the stores of a hub on the servers: by clients it would take minutes.

Knows what a hub stores of a session that has never received anything: an event, its state, a queue and the queue's row in the index.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from itertools import count as counted

import pytest
from sqlalchemy import select

from iothub.base.units import Endpoint
from iothub.records import events, keys
from iothub.records.events import Event, Subject
from iothub_services.events.kafka.log import KafkaEvents
from iothub_services.hbase import calls
from iothub_services.hbase.caller import DirectCaller
from iothub_services.hbase.calls import Mutation
from iothub_services.hbase.tables import Tables
from iothub_services.queues.damage import DamagedQueues, no_alarm
from iothub_services.queues.hbase import requests
from iothub_services.queues.hbase.index import CELL, COLUMN, all_of
from iothub_services.queues.hbase.moves import require
from iothub_services.queues.hbase.regions import Regions
from iothub_services.queues.hbase.store import HBaseQueues
from iothub_services.queues.port import QueueLimits
from iothub_services.sessions.manager import EPOCH_BITS
from iothub_services.state.hbase.store import HBaseStates
from iothub_services.state.service import StateService
from iothub_tenants.accounts import tables as accounts
from iothub_tenants.accounts.database import sqlite_url
from iothub_tenants.accounts.store import AccountStore
from ops.services.places import HOST
from tests.support.hubs.hub import Hub
from tests.support.hubs.server_hub import Stores
from tests.support.servers.kafka import own_settings

FIRST_QUEUE = 1_000_000  # far above those that hubs give out meanwhile
_EXPIRY_S = 86_400
_AT_ONCE = 1_000
_NARROW = QueueLimits(1_000, 1 << 20)


def leave_many(hub: Hub, stores: Stores, count: int, narrow: int = 0) -> None:
    """Have so many sessions of acme's dev1, `many-0` and so on. A hub has run on these stores and has a session there; none runs now.

    `narrow`: so many of their queues have other limits than acme's: the next start changes them, one by one.
    """
    tenant_id, now_ms = acme_id(hub), int(time.time() * 1000)
    subjects = [
        Subject(tenant_id, f"many-{number}", FIRST_QUEUE + number << EPOCH_BITS, now_ms) for number in range(count)
    ]
    topics = replace(
        own_settings(stores.services, partitions=int(stores.environment["IOTHUB_KAFKA__PARTITIONS"])),
        topic_prefix=stores.environment["IOTHUB_KAFKA__TOPIC_PREFIX"],
    )
    tables = Tables(stores.namespace)
    with DirectCaller([Endpoint(HOST, stores.services.ports.thrift)]) as caller, closing(KafkaEvents(topics)) as log:
        _make_queues(caller, tables, subjects, narrow)
        service = StateService(log, HBaseStates(caller, tables), lambda name, text: pytest.fail(f"{name} {text}"))
        service.load()
        for at in range(0, count, _AT_ONCE):
            service([[_created(subject) for subject in subjects[at : at + _AT_ONCE]]])
        service.close()


def _created(subject: Subject) -> Event:
    return events.session_created(
        subject, device="dev1", queue_id=_queue_of(subject), protocol_version=5, session_expiry_s=_EXPIRY_S
    )


def acme_id(hub: Hub) -> int:
    """Number of the tenant that every hub of these tests has."""
    with closing(AccountStore(sqlite_url(hub.data_dir / "accounts.db"))) as store, store.read() as connection:
        return int(
            connection.execute(select(accounts.tenant.c.id).where(accounts.tenant.c.name == "acme")).scalar_one()
        )


def _make_queues(caller: DirectCaller, tables: Tables, subjects: Sequence[Subject], narrow: int) -> None:
    """Empty ones, each in the first epoch of its session."""
    usual = HBaseQueues(caller, tables).list_queues(subjects[0].tenant_id)[0].limits
    tokens, regions = counted(1), Regions(caller, tables.queues, DamagedQueues(no_alarm))
    regions.load()
    for at in range(0, len(subjects), _AT_ONCE):
        part = subjects[at : at + _AT_ONCE]
        rows = [Mutation(keys.index_key(each.tenant_id, _queue_of(each)), {COLUMN: CELL}) for each in part]
        all_of(caller.call_many([calls.mutate_rows(tables.queue_index, rows)]))
        made = [
            requests.create(
                keys.queue_key(_queue_of(each), each.tenant_id),
                next(tokens),
                each.epoch,
                _NARROW if number < narrow else usual,
            )
            for number, each in enumerate(part, at)
        ]
        require(regions.send_steps(made))


def _queue_of(subject: Subject) -> int:
    return subject.epoch >> EPOCH_BITS
