"""One run of one job: reads the spec, starts Spark, runs the job, says how it ended.

Knows every job by name. Exit codes: 0; 1 differences or damage, or Java is gone; 2 a wrong spec; 4 log or checkpoint are not what they must be;
7 a store does not answer.
"""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from iothub.base.errors import ConfigError, IotHubError
from iothub.records.job_catalogue import CATALOGUE
from iothub.records.job_spec import Option, Spec, read_spec
from iothub_spark import preflight
from iothub_spark.failures import NO_JAVA, kind_of, translated
from iothub_spark.jobs.table import JOBS
from iothub_spark.report import Report
from iothub_spark.session import start_session

_CODES = {"config": 2, "conflict": 4, "unavailable": 7, "corrupt": 1, "died": 1}


def main(arguments: Sequence[str]) -> int:
    """Run `JOB --spec FILE` and return the exit code."""
    report = Report()
    try:
        spec = _spec(arguments)
        return _run(spec, report)
    except IotHubError as error:
        return _failed(report, error)
    except Exception as error:  # the edge: Spark's errors are many, and some carry one of ours
        traceback.print_exc()
        return _failed(report, translated(error))


def _failed(report: Report, error: IotHubError) -> int:
    kind = kind_of(error)
    report.failed(kind, str(error))
    return _CODES[kind]


def _run(spec: Spec, report: Report) -> int:
    preflight.check(spec)
    spark = start_session(spec.spark, spec.job)
    try:
        report.done(JOBS[spec.job](spark, spec, report))
    finally:
        with suppress(*NO_JAVA):  # who is gone need not be stopped, and hides no error
            spark.stop()
    return 0


def _spec(arguments: Sequence[str]) -> Spec:
    parser = argparse.ArgumentParser(prog="iothub_spark", description="Run one job over the event log.")
    parser.add_argument("job", choices=sorted(JOBS))
    parser.add_argument("--spec", required=True, type=Path, help="the spec file that `iothub job run` writes")
    given = parser.parse_args(arguments)
    spec = read_spec(given.spec)
    if spec.job != given.job:
        raise ConfigError(f"{given.spec}: this is the spec of job {spec.job}, expected one of {given.job}")
    _check_options(spec)
    return spec


def _check_options(spec: Spec) -> None:
    entry = CATALOGUE[spec.job]
    for name, value in spec.options.items():
        option = entry.option(name)
        if option is None:
            known = ", ".join(option.name for option in entry.options) or "none"
            raise ConfigError(f"options.{name}: job {spec.job} has no such option; it has {known}")
        if not _is_of(option.kind, value):
            raise ConfigError(f"options.{name}: expected a {option.kind}, got {value!r}")


def _is_of(kind: str, value: Option) -> bool:
    if kind == "flag":
        return isinstance(value, bool)
    if kind == "number":
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, str)


if __name__ == "__main__":  # spark-submit runs a file, not a package
    sys.exit(main(sys.argv[1:]))
