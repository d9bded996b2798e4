"""The last refused CONNECTs: of every tenant its own, and never more than fits."""

from __future__ import annotations

from iothub_services.connections.rejected import NO_TENANT, PER_TENANT, Client, Rejected, RejectedConnects


def refused(at_ms: int, tenant_id: int = 1, tenant: str = "acme", client_id: str = "c") -> Rejected:
    client = Client(tenant_id, tenant, "dev1", client_id, "192.0.2.1:5", "tcp", 5)
    return Rejected(at_ms, client, "not_authorized", "wrong_secret")


def times(records: list[Rejected]) -> list[int]:
    return [each.at_ms for each in records]


def test_last_thousand_of_a_tenant_are_kept() -> None:
    kept = RejectedConnects()
    for at_ms in range(PER_TENANT + 5):
        kept.add(refused(at_ms))

    assert times(kept.of_tenant(1, "acme")) == list(range(5, PER_TENANT + 5))


def test_tenant_does_not_push_out_another_one() -> None:
    kept = RejectedConnects()
    kept.add(refused(1, 2, "zeta"))
    for at_ms in range(2 * PER_TENANT):
        kept.add(refused(at_ms))

    assert times(kept.of_tenant(2, "zeta")) == [1]


def test_bytes_are_bounded_and_who_was_refused_last_keeps_most() -> None:
    kept = RejectedConnects(limit_bytes=20_000)
    for at_ms in range(10):
        kept.add(refused(at_ms, 2, "zeta"))
    for at_ms in range(100):
        kept.add(refused(at_ms))

    assert kept.held_bytes <= 20_000
    assert kept.of_tenant(2, "zeta") == []
    assert times(kept.of_tenant(1, "acme"))[-1] == 99


def test_bytes_are_counted_to_the_last_one() -> None:
    kept = RejectedConnects(per_tenant=3)
    for at_ms in range(10):
        kept.add(refused(at_ms, client_id="x" * at_ms * 100))
    kept.forget_tenant(1)

    assert (kept.held_bytes, kept.of_tenant(1, "acme")) == (0, [])


def test_long_text_of_a_client_is_cut() -> None:
    kept = RejectedConnects()
    kept.add(refused(1, client_id="x" * 100_000))

    (record,) = kept.of_tenant(1, "acme")
    assert len(record.client.client_id) == 512


def test_names_that_no_tenant_has_are_apart() -> None:
    kept = RejectedConnects()
    kept.add(refused(1, NO_TENANT, "nowhere"))
    kept.add(refused(2))

    assert times(kept.without_tenant()) == [1]
    assert times(kept.of_tenant(1, "acme")) == [2]
