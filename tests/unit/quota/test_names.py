"""The list of quota names is complete, and its standard values are valid."""

from __future__ import annotations

from iothub_services.quota.grammar import parse_limits
from iothub_services.quota.names import BY_NAME, Kind, Quota, Scope

NAMES = """
connections connects sessions session_expiry_s keep_alive_min_s publish_messages publish_bytes device_publish_messages
device_publish_bytes deliver_messages deliver_bytes device_deliver_messages device_deliver_bytes subscriptions
session_subscriptions subscribes shared_groups group_members filter_levels topic_levels topic_bytes fanout fanout_bytes
persistent_fanout queued_messages queued_bytes session_queued_messages session_queued_bytes retained_messages
retained_bytes packet_bytes receive_maximum topic_aliases will_bytes user_properties subscribe_filters streams
stream_messages stream_bytes api_requests
"""


def test_names_stay_as_they_are() -> None:
    """A name that scripts use never changes by accident."""
    assert [quota.value for quota in Quota] == NAMES.split()
    assert BY_NAME["connections"] is Quota.CONNECTIONS


def test_standard_value_of_every_name_is_valid() -> None:
    """The plan `standard` can be created from the table."""
    for quota in Quota:
        if quota.standard is not None:
            assert parse_limits(f"{quota.value}={quota.standard}")[quota]


def test_kinds_and_scopes_fit_each_other() -> None:
    """Rates belong to tenants and devices; bounds never do."""
    for quota in Quota:
        is_metered = quota.scope in (Scope.TENANT, Scope.DEVICE)
        assert quota.kind is not Kind.RATE or is_metered
        assert quota.kind is not Kind.BOUND or not is_metered
        assert quota.doc
