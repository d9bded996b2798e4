"""The layout of our tables, and in what another one differs."""

from __future__ import annotations

from dataclasses import replace

from iothub_services.hbase.tables import COPROCESSOR, FamilyLayout, Tables, differences, layouts, split_keys


def test_queues_are_split_as_the_founding_design_says() -> None:
    """128 regions by the first byte: 02, 04 ... FE (B51)."""
    keys = split_keys(128)

    assert (len(keys), keys[0], keys[1], keys[-1]) == (127, b"\x02", b"\x04", b"\xfe")
    assert (split_keys(1), split_keys(2), len(split_keys(256))) == ((), (b"\x80",), 255)
    assert list(split_keys(100)) == sorted(set(split_keys(100)))


def test_tables_have_names_families_and_one_version() -> None:
    """Nothing may expire by its timestamp: some are offsets, not times."""
    found = {layout.name: layout for layout in layouts("hub", 4)}

    assert {name: [family.name for family in layout.families] for name, layout in found.items()} == {
        "hub:queues": ["m", "d"],
        "hub:queue_index": ["i"],
        "hub:bodies": ["b"],
        "hub:state": ["s"],
        "hub:checkpoints": ["c"],
        "hub:retained": ["r"],
    }
    families = [family.settings for layout in found.values() for family in layout.families]
    assert {(settings["VERSIONS"], settings["TTL"]) for settings in families} == {("1", "2147483647")}
    names = Tables("hub")
    assert names.queues in {name.encode() for name in found}
    assert names.retained == b"hub:retained"


def test_only_the_main_table_has_the_coprocessor() -> None:
    """So the others can be made in an HBase that has no jar of ours."""
    observed = [layout.name for layout in layouts("hub", 4) if COPROCESSOR in str(layout.settings)]

    assert observed == ["hub:queues"]


def test_table_of_queues_is_never_split_by_hbase() -> None:
    """All rows of a queue stay in one region."""
    fixed = [layout for layout in layouts("hub", 4) if layout.is_fixed]

    assert [layout.name for layout in fixed] == ["hub:queues"]
    assert all("DisabledRegionSplitPolicy" in layout.settings["SPLIT_POLICY"] for layout in fixed)


def test_differences_are_named() -> None:
    """Families, settings of ours, regions; what an operator has added is his."""
    wanted = layouts("hub", 4)[0]
    added = replace(wanted, settings={**wanted.settings, "MAX_FILESIZE": "1"})
    other = replace(
        wanted,
        families=(FamilyLayout("m", {**wanted.families[0].settings, "VERSIONS": "3"}), FamilyLayout("x")),
        settings={},
        splits=(b"\x80",),
    )

    assert differences(wanted, added) == []
    said = "; ".join(differences(wanted, other))
    assert "families m, x in place of d, m" in said
    assert "m: VERSIONS is 3 in place of 1" in said
    assert "SPLIT_POLICY is not set" in said
    assert "2 regions, or other bounds, in place of 4" in said


def test_table_that_may_split_is_not_measured_by_its_regions() -> None:
    """It grows."""
    state = layouts("hub", 4)[3]

    assert differences(state, replace(state, splits=(b"\x01", b"\x02"))) == []
