"""The schema of the accounts database: fresh, old, current, newer and future; a run that dies is completed by the next."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Engine, inspect, text

from iothub.base.errors import ConflictError
from iothub_migrations import schema
from iothub_migrations.schema import SchemaState
from iothub_migrations.versions import (
    v0001_accounts,
    v0002_token_issuers,
    v0003_job_runs,
    v0004_usage_hours,
    v0005_hubs,
    v0006_installation,
    v0007_streams,
    v0008_plan_parents,
    v0009_hub_addresses,
    v0010_membership,
    v0011_api_keys,
    v0012_users,
    v0013_last_used,
    v0014_webhooks,
    v0015_change_actions,
)
from iothub_tenants.accounts.database import open_engine, sqlite_url
from iothub_tenants.accounts.tables import metadata


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "accounts.db"


@pytest.fixture
def engine(path: Path) -> Iterator[Engine]:
    opened = open_engine(sqlite_url(path))
    yield opened
    opened.dispose()


def write(engine: Engine, *statements: str) -> None:
    with engine.begin() as connection:
        for statement in statements:
            connection.execute(text(statement))


def definitions(engine: Engine) -> dict[str, object]:
    """Everything that the database itself knows of each table."""
    found = inspect(engine)
    return {
        table: (
            [(column["name"], str(column["type"]), column["nullable"]) for column in found.get_columns(table)],
            found.get_pk_constraint(table)["constrained_columns"],
            sorted(
                (key["name"] or "", key["constrained_columns"], key["referred_table"])
                for key in found.get_foreign_keys(table)
            ),
            sorted((unique["name"] or "", unique["column_names"]) for unique in found.get_unique_constraints(table)),
            sorted((index["name"] or "", index["column_names"]) for index in found.get_indexes(table)),
        )
        for table in found.get_table_names()
        if table != "alembic_version"
    }


def test_migrated_database_equals_the_tables(engine: Engine, tmp_path: Path) -> None:
    """What the migrations make is what the code works with: types, keys, names and indexes."""
    schema.upgrade(engine)
    direct = open_engine(sqlite_url(tmp_path / "direct.db"))
    metadata.create_all(direct)

    with engine.connect() as connection:
        differences = compare_metadata(MigrationContext.configure(connection), metadata)
    expected = definitions(direct)
    direct.dispose()

    assert differences == []
    assert definitions(engine) == expected


def test_ids_are_counted_in_the_migrated_database(engine: Engine) -> None:
    """AUTOINCREMENT is invisible to inspection; the tenants' numbers depend on it."""
    schema.upgrade(engine)

    with engine.connect() as connection:
        made = connection.execute(text("SELECT name, sql FROM sqlite_master WHERE type = 'table'")).all()

    counted = {row.name for row in made if "AUTOINCREMENT" in row.sql}
    assert counted == {
        "tenant",
        "device",
        "device_group",
        "acl_rule",
        "ban",
        "change_log",
        "token_issuer",
        "job_run",
        "stream",
        "api_key",
        "admin_user",
        "login_session",
        "webhook",
        "webhook_attempt",
        "audit",
    }


def test_states_follow_each_other(engine: Engine) -> None:
    """Fresh, then current; an upgrade of a current one does nothing."""
    before = schema.check(engine)
    first = schema.upgrade(engine)
    second = schema.upgrade(engine)

    assert (before, first, second, schema.check(engine)) == (
        SchemaState.FRESH,
        SchemaState.FRESH,
        SchemaState.CURRENT,
        SchemaState.CURRENT,
    )


def test_newer_database_that_allows_it_is_used_and_left_alone(engine: Engine) -> None:
    """A roll-back of the program to the version before."""
    schema.upgrade(engine)
    write(
        engine,
        "UPDATE schema_info SET value = 16 WHERE name = 'version'",
        "UPDATE alembic_version SET version_num = '0016'",
    )

    assert schema.check(engine) is SchemaState.NEWER
    assert schema.upgrade(engine) is SchemaState.NEWER
    with engine.connect() as connection:
        assert connection.execute(text("SELECT value FROM schema_info WHERE name = 'version'")).scalar() == 16


def test_future_schema_is_refused_with_both_versions(engine: Engine) -> None:
    """Exit code 4; `upgrade` does not touch it."""
    schema.upgrade(engine)
    write(engine, "UPDATE schema_info SET value = 16")

    for look in (schema.check, schema.upgrade):
        with pytest.raises(
            ConflictError,
            match=rf"^the accounts database accounts\.db .*version 16 .* knows version {schema.SCHEMA_VERSION}",
        ):
            look(engine)


def test_unknown_revision_is_refused(engine: Engine) -> None:
    """Alembic's own mark counts as well."""
    schema.upgrade(engine)
    write(engine, "UPDATE alembic_version SET version_num = '0777'")

    with pytest.raises(ConflictError, match="revision 0777"):
        schema.check(engine)


def test_failing_migration_leaves_nothing(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """One transaction: the tables made before the failure are gone."""
    monkeypatch.setattr("alembic.op.bulk_insert", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        schema.upgrade(engine)
    monkeypatch.undo()

    assert inspect(engine).get_table_names() == []
    assert schema.upgrade(engine) is SchemaState.FRESH


def test_killed_migration_is_completed_by_the_next(engine: Engine, path: Path) -> None:
    """The process dies between two tables, as by kill -9."""
    program = (
        "import alembic.op, os\n"
        "from iothub_migrations import schema\n"
        "from iothub_tenants.accounts.database import open_engine, sqlite_url\n"
        "create = alembic.op.create_table\n"
        "alembic.op.create_table = lambda name, *rest, **more: os._exit(9) if name == 'ban' else create(name, *rest, **more)\n"
        f"schema.upgrade(open_engine(sqlite_url({str(path)!r})))\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}

    died = subprocess.run([sys.executable, "-c", program], env=environment, check=False)

    assert died.returncode == 9
    assert schema.upgrade(engine) is SchemaState.FRESH
    assert schema.check(engine) is SchemaState.CURRENT


def test_half_made_tables_are_completed(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the database commits every statement by itself (MySQL), the next run finds some tables and makes the rest."""
    schema.upgrade(engine)
    complete = definitions(engine)
    write(
        engine,
        "DROP TABLE schema_info",
        "DROP TABLE stream",
        "DROP INDEX ix_acl_rule_tenant_id_scope_subject",
        "DELETE FROM id_block WHERE name = 'queue'",
        "DELETE FROM alembic_version",
    )

    assert schema.upgrade(engine) is SchemaState.OLD
    assert definitions(engine) == complete
    with engine.connect() as connection:
        counters = connection.execute(text("SELECT name, next FROM id_block ORDER BY name")).all()
    assert [(row.name, row.next) for row in counters] == [("change", 1), ("queue", 1)]


def test_database_of_version_one_is_upgraded_with_everything_in_it(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is old until then; what the program before it would not understand, it may not open afterwards."""
    newest = schema.SCHEMA_VERSION
    with monkeypatch.context() as before:
        before.setattr(schema, "SCHEMA_VERSION", 1)
        before.setattr(schema, "COMPAT_VERSION", 1)
        schema.upgrade(engine)
        write(engine, "INSERT INTO plan (name, weight, created_ms) VALUES ('gold', 1, 0)")
        assert not inspect(engine).has_table("token_issuer")

    assert schema.check(engine) is SchemaState.OLD
    assert schema.upgrade(engine) is SchemaState.OLD
    assert (schema.check(engine), inspect(engine).has_table("token_issuer")) == (SchemaState.CURRENT, True)
    with engine.connect() as connection:
        assert connection.execute(text("SELECT name, parent FROM plan")).all() == [("gold", None)]

    monkeypatch.setattr(schema, "SCHEMA_VERSION", 1)
    with pytest.raises(ConflictError, match=rf"version {newest} .* knows version 1"):
        schema.check(engine)


def test_every_database_gets_an_id_of_its_own_and_keeps_it(engine: Engine, tmp_path: Path) -> None:
    """Made once, also when the step is done again after a run that was killed."""
    other = open_engine(sqlite_url(tmp_path / "other.db"))
    schema.upgrade(engine)
    schema.upgrade(other)
    first, second = _installation(engine), _installation(other)
    other.dispose()
    write(engine, "UPDATE alembic_version SET version_num = '0005'", "UPDATE schema_info SET value = 5")

    assert schema.upgrade(engine) is SchemaState.OLD
    assert _installation(engine) == first
    assert len(bytes.fromhex(first)) == 16
    assert first != second


def _installation(engine: Engine) -> str:
    with engine.connect() as connection:
        return str(connection.execute(text("SELECT id FROM installation")).scalar_one())


def test_hub_that_had_left_or_had_an_heir_is_gone_in_the_newest_schema(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both were ways to be gone; and the step can be done twice, where the database commits each statement."""
    with monkeypatch.context() as before:
        before.setattr(schema, "SCHEMA_VERSION", 9)
        schema.upgrade(engine)
    columns = "number, incarnation, name, started_ms, beat, is_ended, heir"
    rows = ("(1, 5, 'one', 0, 9, FALSE, -1)", "(2, 5, 'two', 0, 9, TRUE, -1)", "(3, 5, 'three', 0, 9, FALSE, 1)")
    write(engine, *(f"INSERT INTO hub ({columns}) VALUES {row}" for row in rows))

    schema.upgrade(engine)
    write(engine, "UPDATE alembic_version SET version_num = '0009'", "UPDATE schema_info SET value = 9")
    schema.upgrade(engine)

    with engine.connect() as connection:
        found = connection.execute(text("SELECT number, state, gone_by, gone_why FROM hub ORDER BY number")).all()
        views = connection.execute(text("SELECT number, version FROM cluster_view")).all()
    assert [tuple(row) for row in found] == [(1, "up", -1, ""), (2, "up", 2, "left"), (3, "up", 1, "silent")]
    assert [tuple(row) for row in views] == [(0, 0)]


def test_newest_migration_is_the_schema_version() -> None:
    """Both numbers are raised together."""
    assert v0015_change_actions.revision == schema.revision(schema.SCHEMA_VERSION)
    assert v0015_change_actions.down_revision == v0014_webhooks.revision
    assert v0014_webhooks.down_revision == v0013_last_used.revision
    assert v0013_last_used.down_revision == v0012_users.revision
    assert v0012_users.down_revision == v0011_api_keys.revision
    assert v0011_api_keys.down_revision == v0010_membership.revision
    assert v0010_membership.down_revision == v0009_hub_addresses.revision
    assert v0009_hub_addresses.down_revision == v0008_plan_parents.revision
    assert v0008_plan_parents.down_revision == v0007_streams.revision
    assert v0007_streams.down_revision == v0006_installation.revision
    assert v0006_installation.down_revision == v0005_hubs.revision
    assert v0005_hubs.down_revision == v0004_usage_hours.revision
    assert v0004_usage_hours.down_revision == v0003_job_runs.revision
    assert v0003_job_runs.down_revision == v0002_token_issuers.revision
    assert v0002_token_issuers.down_revision == v0001_accounts.revision
    assert schema.COMPAT_VERSION <= schema.SCHEMA_VERSION


def test_changes_of_an_older_program_have_no_action(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may go on with the newest schema; and the step can be done twice, where the database commits each statement."""
    line = "INSERT INTO change_log (tenant_id, kind, subject, at_ms) VALUES (1, 'device', 'dev1', 0)"
    with monkeypatch.context() as before:
        before.setattr(schema, "SCHEMA_VERSION", 14)
        schema.upgrade(engine)
        write(engine, line)

    schema.upgrade(engine)
    write(engine, "UPDATE alembic_version SET version_num = '0014'", "UPDATE schema_info SET value = 14", line)
    schema.upgrade(engine)

    with engine.connect() as connection:
        found = connection.execute(text("SELECT subject, tenant, action FROM change_log")).all()
    assert [tuple(row) for row in found] == [("dev1", "", "")] * 2


def test_programs_that_cannot_read_changes_of_webhooks_may_not_use_the_accounts() -> None:
    assert int(v0014_webhooks.revision) <= schema.COMPAT_VERSION
