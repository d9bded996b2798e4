"""Where Spark's Python workers look for modules."""

from __future__ import annotations

from iothub_spark.daemon import without_archives


def test_daemon_leaves_out_the_archives_of_spark_alone() -> None:
    """What a job brings along as an archive is still found."""
    places = [
        "/s/python/lib/pyspark.zip",
        "/s/python/lib/py4j-0.10.9.9-src.zip",
        "/jobs/iothub-jobs.zip",
        "",
        "/lib/python",
    ]

    assert without_archives(places) == ["/jobs/iothub-jobs.zip", "", "/lib/python"]
