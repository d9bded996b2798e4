"""Our tables in HBase: names, column families, settings, and the keys at which they are split beforehand.

Knows no connection. Row keys are in `iothub.records.keys`; what a cell holds is its store's business.

================  =====================================  ======  =========================================================
table             row                                    family  cells
================  =====================================  ======  =========================================================
`queues`          K | 0                                  `m`     a queue's meta row; driver `hbase`, with our coprocessor
`queues`          K | 1 | position                       `d`     its records
`queue_index`     tenant | queue id                      `i`     which queues a tenant has
`bodies`          reversed clock | tenant | rest of id   `b`     bodies that many records refer to
`state`           tenant | client id                     `s`     the folded record of a persistent session
`checkpoints`     1 | version | tenant | client id       `c`     a checkpoint's rows; row 0 `pointer`: which version counts
`retained`        tenant | topic                         `r`     retained messages; the bare tenant: its version counter
================  =====================================  ======  =========================================================

K spreads neighbouring queues over the regions (B49-B51), so the tables of queues are split before the first row, evenly by the first
byte, and never by HBase itself: all rows of a queue must stay in one region, or its coprocessor could not write them together. The
tables that begin with the tenant are small at first and split where they grow.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from iothub.records.layout import CHECKPOINTS_TABLE, STATES_TABLE, hbase_table

NO_SPLITS = "org.apache.hadoop.hbase.regionserver.DisabledRegionSplitPolicy"
COPROCESSOR = "iothub.hbase.queue.QueueObserver"
_COPROCESSOR_KEY = "coprocessor$1"
_USER_PRIORITY = 1073741823
_FOR_EVER_S = 2147483647
# Of the flush size. At HBase's own 0.014 every MB that comes has all that waits in memory copied: half of a profile of appends was that.
_EAGER_AT = {"hbase.memstore.inmemoryflush.threshold.factor": "0.2"}


@dataclass(frozen=True, slots=True)
class FamilyLayout:
    """A column family: HBase's own names of settings, and their values. Not given: HBase's default."""

    name: str
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TableLayout:
    """A table: its name with the namespace, its families, settings, and split keys (ascending)."""

    name: str
    families: tuple[FamilyLayout, ...]
    settings: Mapping[str, str] = field(default_factory=dict)
    splits: tuple[bytes, ...] = ()
    is_fixed: bool = False  # its regions never change: the splits are part of the layout


class Tables:
    """The names of our tables, as calls want them."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self.queues = self._named("queues")
        self.queue_index = self._named("queue_index")
        self.bodies = self._named("bodies")
        self.state = self._named(STATES_TABLE)
        self.checkpoints = self._named(CHECKPOINTS_TABLE)
        self.retained = self._named("retained")

    def _named(self, name: str) -> bytes:
        return hbase_table(self.namespace, name).encode()


def split_keys(regions: int) -> tuple[bytes, ...]:
    """Return the first bytes at which `regions` regions (1..256) begin, but for the first: 128 give 02, 04 ... FE."""
    return tuple(bytes((number * 256 // regions,)) for number in range(1, regions))


def layouts(namespace: str, regions: int) -> tuple[TableLayout, ...]:
    """Return the layout of every table."""
    names, splits = Tables(namespace), split_keys(regions)
    observed = {"SPLIT_POLICY": NO_SPLITS, _COPROCESSOR_KEY: coprocessor(COPROCESSOR)}
    # Rows that are gone soon, and meta rows that change with every append: EAGER drops both before a flush writes them.
    queues = (_family("m", "ROW", "EAGER", **_EAGER_AT), _family("d", "NONE", "EAGER", **_EAGER_AT))
    return (
        TableLayout(names.queues.decode(), queues, observed, splits, is_fixed=True),
        TableLayout(names.queue_index.decode(), (_family("i", "NONE", "NONE"),)),
        TableLayout(names.bodies.decode(), (_family("b", "ROW", "BASIC"),), {}, splits),
        TableLayout(names.state.decode(), (_family("s", "ROW", "BASIC"),)),
        TableLayout(names.checkpoints.decode(), (_family("c", "ROW", "NONE"),)),
        TableLayout(names.retained.decode(), (_family("r", "ROW", "NONE"),)),
    )


def coprocessor(java_class: str) -> str:
    """Return the setting that loads a class from the region servers' class path."""
    return f"|{java_class}|{_USER_PRIORITY}|"


def _family(name: str, bloom: str, in_memory_compaction: str, **more: str) -> FamilyLayout:
    """One version, kept for ever: cell timestamps of some tables are no times, so nothing may expire by them."""
    return FamilyLayout(
        name,
        {
            "VERSIONS": "1",
            "TTL": str(_FOR_EVER_S),
            "BLOOMFILTER": bloom,
            "IN_MEMORY_COMPACTION": in_memory_compaction,
            **more,
        },
    )


def differences(wanted: TableLayout, found: TableLayout) -> list[str]:
    """Say in what a table that exists is another one; settings that we do not make are its operator's."""
    said = []
    families = {family.name: family for family in found.families}
    names = {family.name for family in wanted.families}
    if names != families.keys():
        said.append(f"families {_listed(families)} in place of {_listed(names)}")
    said += _differing("", wanted.settings, found.settings)
    for family in wanted.families:
        if family.name in families:
            said += _differing(f"{family.name}: ", family.settings, families[family.name].settings)
    if wanted.is_fixed and wanted.splits != found.splits:
        said.append(f"{len(found.splits) + 1} regions, or other bounds, in place of {len(wanted.splits) + 1}")
    return said


def other_tables(problems: Iterable[str]) -> str:
    """Say what to do about tables that are others than ours."""
    return (
        f"HBase has other tables than this program's ({'; '.join(problems)}): "
        "alter or drop them in HBase's shell, or choose another hbase.namespace"
    )


def _differing(where: str, wanted: Mapping[str, str], found: Mapping[str, str]) -> list[str]:
    return [
        f"{where}{name} is {found.get(name, 'not set')} in place of {value}"
        for name, value in wanted.items()
        if found.get(name, "").upper() != value.upper()
    ]


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"
