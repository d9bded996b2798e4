"""What a refusal means, by the name of the Java class: texts as a real gateway of HBase 2.6.1 sent them, stacks shortened."""

from __future__ import annotations

import pytest

from iothub_services.hbase.refusals import Effect, already_exists, failure, illegal_argument, refusal

STACK = b"\n\tat org.apache.hadoop.hbase.regionserver.HRegion.put(HRegion.java:3217)\n"
ATTEMPT = (
    b"2026-11-21T19:46:24.123Z, RpcRetryingCaller{globalStartTime=2026-11-21T19:46:20Z, pause=50, maxAttempts=5}, "
)
EXHAUSTED = b"org.apache.hadoop.hbase.client.RetriesExhaustedException: Failed after attempts=2, exceptions:\n"
NOT_SERVING = b"org.apache.hadoop.hbase.NotServingRegionException: org.apache.hadoop.hbase.NotServingRegionException: t is not online\n"
TIMED_OUT = b"java.net.SocketTimeoutException: callTimeout=3000\n"

CASES = {  # text, can_retry -> class that decides, retryable, may be written
    "no table": (
        b"org.apache.hadoop.hbase.TableNotFoundException: nope" + STACK,
        False,
        "TableNotFoundException",
        False,
        False,
    ),
    "no family": (
        b"org.apache.hadoop.hbase.regionserver.NoSuchColumnFamilyException: "
        b"org.apache.hadoop.hbase.regionserver.NoSuchColumnFamilyException: Column family zz does not exist"
        + STACK
        + b"\n"
        b"Caused by: org.apache.hadoop.hbase.ipc.RemoteWithExtrasException("
        b"org.apache.hadoop.hbase.regionserver.NoSuchColumnFamilyException): and so on" + STACK,
        False,
        "NoSuchColumnFamilyException",
        False,
        False,
    ),
    "our coprocessor": (
        b"org.apache.hadoop.hbase.DoNotRetryIOException: org.apache.hadoop.hbase.DoNotRetryIOException: stale epoch 3"
        + STACK,
        False,
        "DoNotRetryIOException",
        False,
        False,
    ),
    "the gateway without ZooKeeper": (
        b"org.apache.hadoop.hbase.DoNotRetryIOException: Zookeeper LIST could not be completed in 10000 ms" + STACK,
        False,
        "DoNotRetryIOException",
        True,
        True,
    ),
    "region on its way": (
        EXHAUSTED + ATTEMPT + NOT_SERVING + ATTEMPT + NOT_SERVING + STACK,
        True,
        "NotServingRegionException",
        True,
        False,
    ),
    "region on its way, after a time-out": (
        EXHAUSTED + ATTEMPT + TIMED_OUT + ATTEMPT + NOT_SERVING,
        True,
        "SocketTimeoutException",
        True,
        True,
    ),
    "scanner whose lease ran out": (
        b"org.apache.hadoop.hbase.regionserver.LeaseException: "
        b"org.apache.hadoop.hbase.regionserver.LeaseException: lease '7' does not exist" + STACK,
        False,
        "LeaseException",
        True,
        False,
    ),
    "too busy": (
        b"org.apache.hadoop.hbase.RegionTooBusyException: above memstore limit" + STACK,
        True,
        "RegionTooBusyException",
        True,
        False,
    ),
    "nobody listens": (
        EXHAUSTED + ATTEMPT + b"java.net.ConnectException: Connection refused",
        True,
        "ConnectException",
        True,
        False,
    ),
    "a name within a message": (
        b"java.io.IOException: row 'org.apache.hadoop.hbase.TableNotFoundException: x' is strange" + STACK,
        True,
        "IOException",
        True,
        True,
    ),
    "a class that nobody foresaw": (b"org.example.OddException: odd" + STACK, True, "OddException", True, True),
    "the same, and the gateway says no": (b"org.example.OddException: odd" + STACK, False, "OddException", False, True),
    "nothing at all": (b"", None, "an error", True, True),
}


@pytest.mark.parametrize("case", CASES)
def test_refusal_is_classified_by_its_class(case: str) -> None:
    """Retryable, and is it certain that nothing was written?"""
    text, can_retry, java_class, is_retryable, is_written = CASES[case]

    error = refusal("append", Effect.ROW, text, can_retry)

    assert (error.java_class or "an error", error.retryable, error.is_written) == (java_class, is_retryable, is_written)


def test_batch_with_a_wrong_family_is_refused_for_good() -> None:
    """The gateway wraps it and says that it can be retried; the class within says that it cannot. Other rows may be there."""
    text = (
        b"org.apache.hadoop.hbase.client.RetriesExhaustedWithDetailsException: Failed 1 action: "
        b"org.apache.hadoop.hbase.regionserver.NoSuchColumnFamilyException: Column family zz does not exist" + STACK
    )

    error = refusal("mutateRows", Effect.ROWS, text, True)

    assert (error.java_class, error.retryable, error.is_written) == ("NoSuchColumnFamilyException", False, True)


def test_reading_never_wrote() -> None:
    """Whatever happened."""
    assert not refusal("getRow", Effect.NONE, b"java.io.IOException: odd", True).is_written
    assert not failure("getRow", Effect.NONE, b"Internal error processing getRow", 6).is_written


def test_text_is_the_servers_own_words() -> None:
    """One line, without class names and stack, for the driver and for people."""
    error = refusal("append", Effect.ROW, CASES["our coprocessor"][0], False)

    assert error.text == "stale epoch 3"
    assert str(error) == "HBase refused append: DoNotRetryIOException: stale epoch 3"


def test_text_is_that_of_the_class_that_decides() -> None:
    """Not "Failed after attempts"."""
    error = refusal("append", Effect.ROW, CASES["region on its way, after a time-out"][0], True)

    assert str(error) == "HBase refused append: SocketTimeoutException: callTimeout=3000"


def test_long_text_is_cut() -> None:
    """A message with a whole table descriptor does not fill the log."""
    error = refusal("append", Effect.ROW, b"java.io.IOException: " + b"long " * 1000, True)

    assert len(error.text) <= 300
    assert error.text.endswith(" ...")


def test_other_exceptions_of_the_gateway() -> None:
    """Refused before anything was tried; a defect of the gateway may have come after the write."""
    illegal = illegal_argument("mutateRow", Effect.ROW, b"java.lang.IllegalArgumentException: Row length is 0" + STACK)
    exists = already_exists("createTable", b"table name already in use")
    defect = failure("append", Effect.ROW, b"Internal error processing append", 6)

    assert (illegal.text, illegal.retryable, illegal.is_written) == ("Row length is 0", False, False)
    assert (exists.java_class, exists.retryable, exists.is_written) == ("AlreadyExists", False, False)
    assert (defect.retryable, defect.is_written) == (False, True)
