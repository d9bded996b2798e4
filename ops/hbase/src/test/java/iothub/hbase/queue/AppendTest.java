package iothub.hbase.queue;

import static iothub.hbase.queue.Harness.ONE;
import static iothub.hbase.queue.Harness.TWO;
import static iothub.hbase.queue.Harness.ack;
import static iothub.hbase.queue.Harness.appending;
import static iothub.hbase.queue.Harness.asking;
import static iothub.hbase.queue.Harness.qos0;
import static iothub.hbase.queue.Harness.qos1;
import static iothub.hbase.queue.Harness.qos2;
import static iothub.hbase.queue.Harness.reserve;
import static iothub.hbase.queue.Harness.room;
import static iothub.hbase.queue.Harness.settledLater;
import static iothub.hbase.queue.Harness.settling;
import static iothub.hbase.queue.Harness.words;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import org.junit.jupiter.api.Test;

/** Positions, repeats, limits and policies: what the queue port says, on a region in memory. */
class AppendTest {
  private final Harness harness = new Harness();

  @Test
  void positionsAreDenseAndGoOnAfterTheQueueWasEmptied() {
    harness.create(ONE);
    long epoch = harness.claim(ONE);

    assertEquals("1 2", harness.append(ONE, qos1("a"), qos1("b")));
    harness.move(ONE, epoch, ack(2));
    assertEquals("3", harness.append(ONE, qos1("c")));
    harness.run(ONE, new Purge());
    assertEquals("4", harness.append(ONE, qos1("d")));
    assertEquals(List.of(4L), harness.positions(ONE, epoch));
  }

  @Test
  void unknownQueueIsGoneAndNothingIsCreated() {
    assertEquals("GONE", harness.append(ONE, qos1("a")));
    assertEquals(0, harness.store.commits);
  }

  @Test
  void repeatGetsTheFirstAnswerWhateverHasHappenedSince() {
    harness.create(ONE, 2, 0, Overflow.REJECT);
    Append call = appending(9, 1, qos1("a"), qos1("b"), qos1("c"));

    assertEquals("1 2 full(session_queued_messages)", words(harness.run(ONE, call)));
    harness.run(ONE, new Purge());
    assertEquals("again: 1 2 full(session_queued_messages)", words(harness.run(ONE, call)));
    assertEquals("3", words(harness.run(ONE, appending(9, 2, qos1("d")))));
    assertEquals("OLD_SEQUENCE", words(harness.run(ONE, call)));
    assertEquals("4", words(harness.run(ONE, appending(8, 1, qos1("e")))));
  }

  @Test
  void failedCommitLeavesNothingAndTheRetryIsTheFirst() {
    harness.create(ONE);
    harness.store.isBroken = true;
    assertThrows(AssertionError.class, () -> harness.run(ONE, appending(9, 1, qos1("a"))));
    harness.store.isBroken = false;

    assertEquals("1", words(harness.run(ONE, appending(9, 1, qos1("a")))));
  }

  @Test
  void manyQueuesAreOneCommit() {
    harness.create(ONE);
    harness.create(TWO);
    int before = harness.store.commits;

    harness.run(List.of(new Request.Step(TWO, appending(1, 1, qos1("a"))), new Request.Step(ONE, appending(1, 1, qos1("b"))),
        new Request.Step(ONE, appending(1, 2, qos1("c")))));

    assertEquals(before + 1, harness.store.commits);
    assertEquals(2, harness.state(ONE).tail);
  }

  @Test
  void qos2MessageIdIsAnsweredWithItsFirstPosition() {
    harness.create(ONE);
    long epoch = harness.claim(ONE);

    assertEquals("1 known1 2", harness.append(ONE, qos2(5, "a"), qos2(5, "a"), qos2(6, "b")));
    harness.move(ONE, epoch, ack(2));
    assertEquals("known2", harness.append(ONE, qos2(6, "b")));
  }

  @Test
  void qos2MessageIdIsRememberedFor24HoursBeyondItsRecord() {
    harness.create(ONE);
    long epoch = harness.claim(ONE);
    harness.append(ONE, qos2(5, "a"), qos2(6, "b"));
    harness.move(ONE, epoch, ack(1));

    harness.nowMs += History.REMEMBERED_MS - 1;
    assertEquals("known1", harness.append(ONE, qos2(5, "a")));
    harness.nowMs += 1;
    assertEquals("3 known2", harness.append(ONE, qos2(5, "a"), qos2(6, "b")));
  }

  @Test
  void settledIdsAreForgottenAndNoOthers() {
    harness.create(ONE);
    harness.run(ONE, appending(9, 4, settledLater(1, "a"), qos2(2, "will")));
    harness.run(ONE, appending(8, 5, settledLater(3, "c")));
    harness.run(ONE, appending(9, 6, settledLater(4, "d")));

    harness.run(ONE, settling(9, 7, 1, 6, settledLater(5, "e")));

    assertTrue(harness.isForgotten(ONE, 1)); // although its record is there
    assertFalse(harness.isForgotten(ONE, 2)); // whoever has it may be somebody else
    assertFalse(harness.isForgotten(ONE, 3)); // of another writer
    assertFalse(harness.isForgotten(ONE, 4)); // not settled yet
    assertFalse(harness.isForgotten(ONE, 5));
    assertEquals("6 known2 known3 known4", words(harness.run(ONE, appending(7, 1, qos2(1, "a"), qos2(2, "b"), qos2(3, "c"), qos2(4, "d")))));
  }

  @Test
  void callThatIsRepeatedSettlesNothingAnew() {
    harness.create(ONE);
    harness.run(ONE, appending(9, 1, settledLater(1, "a")));
    harness.run(ONE, settling(9, 2, 1, 2, settledLater(2, "b")));
    harness.run(ONE, settling(9, 3, 3, 3, settledLater(3, "c"))); // what was not settled yet may come again

    assertEquals("OLD_SEQUENCE", words(harness.run(ONE, settling(9, 2, 1, 2, settledLater(2, "b")))));
    assertFalse(harness.isForgotten(ONE, 2));
    assertEquals("again: 3", words(harness.run(ONE, settling(9, 3, 1, 4, settledLater(3, "c")))));
    assertFalse(harness.isForgotten(ONE, 3));
  }

  @Test
  void idsThatNobodySettlesGoAfter24Hours() {
    harness.create(ONE);
    long epoch = harness.claim(ONE);
    harness.run(ONE, appending(9, 1, settledLater(1, "a")));
    harness.move(ONE, epoch, ack(1));

    harness.nowMs += History.REMEMBERED_MS;
    harness.append(ONE, qos1("b"));

    assertTrue(harness.isForgotten(ONE, 1));
  }

  @Test
  void idsOfAQueueThatStandsStillGoAfter24Hours() {
    harness.create(ONE);
    long epoch = harness.claim(ONE);
    harness.append(ONE, qos2(1, "a"), qos2(2, "b"), qos2(3, "waits"));
    harness.move(ONE, epoch, ack(1));
    harness.move(ONE, epoch, ack(2)); // within the hour, so the history has no entry of it

    harness.nowMs = harness.state(ONE).timestamp + History.REMEMBERED_MS - 1;
    assertFalse(harness.isForgotten(ONE, 1));
    harness.nowMs++;

    assertTrue(harness.isForgotten(ONE, 1));
    assertTrue(harness.isForgotten(ONE, 2));
    assertFalse(harness.isForgotten(ONE, 3));
  }

  @Test
  void settledWritersAreBounded() {
    harness.create(ONE);
    for (long writer = 1; writer <= Settled.KEPT + 3; writer++) {
      harness.run(ONE, settling(writer, 2, 1, 2, settledLater(writer, "a")));
    }

    assertEquals(Settled.KEPT, harness.state(ONE).settled.ranges().size());
    assertFalse(harness.state(ONE).settled.ranges().containsKey(3L));
    assertTrue(harness.state(ONE).settled.ranges().containsKey(4L));
  }

  @Test
  void rejectRefusesTheNewest() {
    harness.create(ONE, 0, 10, Overflow.REJECT);

    assertEquals("1 full(session_queued_bytes) 2", harness.append(ONE, qos1("1234567"), qos1("1234"), qos1("123")));
  }

  @Test
  void dropOldestMakesAllTheRoomThatIsNeededOrNone() {
    harness.create(ONE, 0, 30, Overflow.DROP_OLDEST);
    long epoch = harness.claim(ONE);
    harness.append(ONE, qos1("1234567890"), qos1("1234567890"), qos1("1234567890"));

    assertEquals("4 0:-1(session_queued_bytes) 0:-2(session_queued_bytes)", harness.append(ONE, qos1("123456789012345")));
    assertEquals("full(session_queued_bytes)", harness.append(ONE, qos1("1234567890123456789012345678901")));
    assertEquals(List.of(3L, 4L), harness.positions(ONE, epoch));
    assertEquals(25, harness.state(ONE).bytes);
    assertEquals(2, harness.state(ONE).floor); // no tombstone was needed
  }

  @Test
  void dropOldestTakesWhatTheSameCallHasAppended() {
    harness.create(ONE, 2, 0, Overflow.DROP_OLDEST);
    long epoch = harness.claim(ONE);

    harness.append(ONE, qos1("a"), qos1("b"), qos1("c"), qos1("d"), qos1("e"));

    assertEquals(List.of(4L, 5L), harness.positions(ONE, epoch));
  }

  @Test
  void dropQos0FirstRefusesTheNewestWhenNoneIsLeft() {
    harness.create(ONE, 3, 0, Overflow.DROP_QOS0_FIRST);
    long epoch = harness.claim(ONE);
    harness.append(ONE, qos1("a"), qos0("b"), qos0("c"));

    String hit = "(session_queued_messages)";
    assertEquals("4 5 full" + hit + " 0:-2" + hit + " 1:-3" + hit, harness.append(ONE, qos1("d"), qos1("e"), qos1("f")));
    assertEquals(List.of(1L, 4L, 5L), harness.positions(ONE, epoch));
  }

  @Test
  void whatMayHaveBeenSentIsSparedUntilTheHubSaysThatItWasNot() {
    harness.create(ONE, 3, 0, Overflow.DROP_QOS0_FIRST);
    long epoch = harness.claim(ONE);
    harness.append(ONE, qos0("a"), qos0("b"), qos0("c"));
    harness.move(ONE, epoch, reserve(3));

    assertEquals("full(session_queued_messages)", harness.append(ONE, qos1("d")));
    harness.move(ONE, epoch, reserve(1));
    assertEquals("4 0:-2(session_queued_messages)", harness.append(ONE, qos1("d")));
  }

  @Test
  void roomOfTheTenantBoundsTheCall() {
    harness.create(ONE);
    harness.create(TWO, 0, 0, Overflow.DROP_OLDEST);

    Append two = new Append(1, 1, room(2, -1), List.of(qos1("a"), qos1("b"), qos1("c")), null);
    assertEquals("1 2 full(queued_messages)", words(harness.run(ONE, two)));
    assertEquals("1 2 1:-1(queued_bytes)", words(harness.run(TWO, new Append(1, 1, room(-1, 1), List.of(qos1("a"), qos1("b")), null))));
  }

  @Test
  void whatIsTooLargeForTheQueueOnlySaysWhetherItIsKnown() {
    for (Overflow policy : Overflow.values()) {
      harness.create(ONE, 3, 0, policy);
      harness.append(ONE, qos0("a"), qos2(7, "b"));
      harness.store.records.get(ONE).get(1L).value()[0] = 8; // to make room it would have to be read

      assertEquals("full(queued_messages) known2", words(harness.run(ONE, new Append(1, 99, room(0, 0), List.of(asking(8), asking(7)), null))));
      assertEquals(2, harness.state(ONE).tail);
      assertEquals(2, harness.state(ONE).messages);
      harness.run(ONE, new Drop());
    }
  }

  @Test
  void timestampsGoUpAlsoWhenTheClockGoesBack() {
    harness.create(ONE);
    harness.append(ONE, qos1("a"));
    long before = harness.state(ONE).timestamp;

    harness.nowMs -= 5_000;
    harness.append(ONE, qos1("b"));

    assertEquals(before + 1, harness.state(ONE).timestamp);
  }

  @Test
  void silentWritersAreForgottenWhenOthersCame() {
    harness.create(ONE);
    for (int writer = 1; writer <= Writers.KEPT + 5; writer++) {
      harness.run(ONE, appending(writer, 1, qos1("a")));
    }
    assertEquals(Writers.KEPT + 5, harness.state(ONE).writers.entries().size());

    harness.nowMs += Writers.SILENT_MS;
    harness.run(ONE, appending(1, 2, qos1("a")));

    assertEquals(Writers.KEPT, harness.state(ONE).writers.entries().size());
    assertEquals("again: 1", words(harness.run(ONE, appending(1, 2, qos1("a")))).replaceAll("\\d+$", "1"));
  }
}
