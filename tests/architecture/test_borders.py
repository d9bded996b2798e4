"""Each border between packages is watched: a module or an import that does not belong there breaks the contract in setup.cfg."""

from __future__ import annotations

from copy import deepcopy
from functools import cache
from typing import Any

import grimp
import pytest
from importlinter.api import read_configuration
from importlinter.contracts.acyclic_siblings import AcyclicSiblingsContract
from importlinter.contracts.forbidden import ForbiddenContract
from importlinter.contracts.independence import IndependenceContract
from importlinter.contracts.layers import LayersContract
from importlinter.contracts.protected import ProtectedContract
from importlinter.domain.contract import Contract

from tests.architecture.tree import ROOT, listed, modules

KINDS = {
    "acyclic_siblings": AcyclicSiblingsContract,
    "forbidden": ForbiddenContract,
    "independence": IndependenceContract,
    "layers": LayersContract,
    "protected": ProtectedContract,
}
TESTING = "No product code imports what is there for tests"
SPARK = "Spark sees the records and the configuration, nothing else"
SERVICES = "Services, and what several of them use, with nothing left out"
DRIVERS = "Queue drivers do not know each other, with none left out"
PORTS = "A service sees of another service its port alone"

PRODUCT_MODULES = (
    "iothub.cli.ban",
    "iothub.doctor.all",
    "iothub.hub.composition.compose",
    "iothub.net.gate",
    "iothub_services.damaged",
    "iothub_tenants.broker.hub",
    "iothub_migrations.env",
    "iothub_spark.main",
)
CLOSED_TO_SPARK = (
    "iothub.cli.output",
    "iothub.doctor.all",
    "iothub.jobs.specs",
    "iothub.testing.clock",
    "iothub.net.gate",
    "iothub.hub.composition.compose",
    "iothub.engine.plane",
    "iothub_services.damaged",
    "iothub_tenants.broker.hub",
)
STRAY_MODULES = [
    ("Inside iothub, with nothing left out", "iothub.stray"),
    ("Inside the tenants' package, with nothing left out", "iothub_tenants.stray"),
    (SERVICES, "iothub_services.stray"),
    (DRIVERS, "iothub_services.queues.stray_driver"),
]


@pytest.fixture(autouse=True)
def _any_option(monkeypatch: pytest.MonkeyPatch) -> None:
    """`lint-imports` refuses unknown options; here it would read all attributes of a class, and fails at those that zope.interface adds."""
    monkeypatch.setattr(Contract, "_get_unrecognized_option_errors", lambda _options: {})


@cache
def _graph() -> grimp.ImportGraph:
    return grimp.build_graph(*listed("importlinter", "root_packages"), include_external_packages=True, cache_dir=None)


@cache
def _options() -> dict[str, Any]:
    return read_configuration(str(ROOT / "setup.cfg"))


def _is_kept(name: str, graph: grimp.ImportGraph) -> bool:
    """Check one contract of setup.cfg on a graph, as import-linter does."""
    options = next(each for each in _options()["contracts_options"] if each["name"] == name)
    contract = KINDS[options["type"]](name, dict(_options()["session_options"]), dict(options))
    return contract.check(graph, verbose=False).kept


def _changed(importer: str, imported: str = "") -> grimp.ImportGraph:
    """Return the tree's graph with one module or import more."""
    graph = deepcopy(_graph())
    graph.add_module(importer)
    if imported:
        graph.add_import(importer=importer, imported=imported, line_number=1, line_contents=f"import {imported}")
    return graph


@pytest.mark.parametrize("importer", PRODUCT_MODULES)
def test_no_product_package_may_import_what_is_there_for_tests(importer: str) -> None:
    assert importer in modules()

    assert not _is_kept(TESTING, _changed(importer, "iothub.testing.clock"))


@pytest.mark.parametrize("imported", CLOSED_TO_SPARK)
def test_spark_may_import_records_and_configuration_only(imported: str) -> None:
    assert imported in modules()

    assert not _is_kept(SPARK, _changed("iothub_spark.main", imported))


@pytest.mark.parametrize(("contract", "module"), STRAY_MODULES)
def test_stray_module_breaks_the_contract_of_its_package(contract: str, module: str) -> None:
    assert not _is_kept(contract, _changed(module))


@pytest.mark.parametrize(
    ("contract", "importer", "imported"),
    [
        (DRIVERS, "iothub_services.queues.redis.store", "iothub_services.queues.hbase.store"),
        (PORTS, "iothub_services.metrics.metrics", "iothub_services.queues.writer"),
        (PORTS, "iothub_services.stray.store", "iothub_services.queues.writer"),
        (PORTS, "iothub_services.queues.writer", "iothub_services.stray.store"),
    ],
)
def test_service_may_import_no_inside_of_another_one(contract: str, importer: str, imported: str) -> None:
    """A new service is protected, and held to the rule, without being named."""
    graph = _changed(importer, imported)
    for module in (importer, imported):
        graph.add_module(module.rpartition(".")[0])

    assert not _is_kept(contract, graph)


@pytest.mark.parametrize("contract", [TESTING, SPARK, SERVICES, DRIVERS, PORTS])
def test_borders_hold_as_the_tree_is(contract: str) -> None:
    """Else the tests above would show nothing."""
    assert _is_kept(contract, deepcopy(_graph()))
