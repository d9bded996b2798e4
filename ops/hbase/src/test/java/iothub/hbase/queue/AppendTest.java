package iothub.hbase.queue;

import static iothub.hbase.queue.House.ONE;
import static iothub.hbase.queue.House.TWO;
import static iothub.hbase.queue.House.ack;
import static iothub.hbase.queue.House.appending;
import static iothub.hbase.queue.House.asking;
import static iothub.hbase.queue.House.qos0;
import static iothub.hbase.queue.House.qos1;
import static iothub.hbase.queue.House.qos2;
import static iothub.hbase.queue.House.reserve;
import static iothub.hbase.queue.House.room;
import static iothub.hbase.queue.House.words;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.util.List;
import org.junit.jupiter.api.Test;

/** Positions, repeats, limits and policies: what the queue port says, on a region in memory. */
class AppendTest {
  private final House house = new House();

  @Test
  void positionsAreDenseAndGoOnAfterTheQueueWasEmptied() {
    house.create(ONE);
    long epoch = house.claim(ONE);

    assertEquals("1 2", house.append(ONE, qos1("a"), qos1("b")));
    house.move(ONE, epoch, ack(2));
    assertEquals("3", house.append(ONE, qos1("c")));
    house.run(ONE, new Purge());
    assertEquals("4", house.append(ONE, qos1("d")));
    assertEquals(List.of(4L), house.positions(ONE, epoch));
  }

  @Test
  void unknownQueueIsGoneAndNothingIsCreated() {
    assertEquals("GONE", house.append(ONE, qos1("a")));
    assertEquals(0, house.store.commits);
  }

  @Test
  void repeatGetsTheFirstAnswerWhateverHasHappenedSince() {
    house.create(ONE, 2, 0, Overflow.REJECT);
    Append call = appending(9, 1, qos1("a"), qos1("b"), qos1("c"));

    assertEquals("1 2 full(session_queued_messages)", words(house.run(ONE, call)));
    house.run(ONE, new Purge());
    assertEquals("again: 1 2 full(session_queued_messages)", words(house.run(ONE, call)));
    assertEquals("3", words(house.run(ONE, appending(9, 2, qos1("d")))));
    assertEquals("OLD_SEQUENCE", words(house.run(ONE, call)));
    assertEquals("4", words(house.run(ONE, appending(8, 1, qos1("e")))));
  }

  @Test
  void failedCommitLeavesNothingAndTheRetryIsTheFirst() {
    house.create(ONE);
    house.store.isBroken = true;
    assertThrows(AssertionError.class, () -> house.run(ONE, appending(9, 1, qos1("a"))));
    house.store.isBroken = false;

    assertEquals("1", words(house.run(ONE, appending(9, 1, qos1("a")))));
  }

  @Test
  void manyQueuesAreOneCommit() {
    house.create(ONE);
    house.create(TWO);
    int before = house.store.commits;

    house.run(List.of(new Request.Step(TWO, appending(1, 1, qos1("a"))), new Request.Step(ONE, appending(1, 1, qos1("b"))),
        new Request.Step(ONE, appending(1, 2, qos1("c")))));

    assertEquals(before + 1, house.store.commits);
    assertEquals(2, house.state(ONE).tail);
  }

  @Test
  void qos2MessageIdIsAnsweredWithItsFirstPosition() {
    house.create(ONE);
    long epoch = house.claim(ONE);

    assertEquals("1 known1 2", house.append(ONE, qos2(5, "a"), qos2(5, "a"), qos2(6, "b")));
    house.move(ONE, epoch, ack(2));
    assertEquals("known2", house.append(ONE, qos2(6, "b")));
  }

  @Test
  void qos2MessageIdIsRememberedFor24HoursBeyondItsRecord() {
    house.create(ONE);
    long epoch = house.claim(ONE);
    house.append(ONE, qos2(5, "a"), qos2(6, "b"));
    house.move(ONE, epoch, ack(1));

    house.nowMs += History.REMEMBERED_MS - 1;
    assertEquals("known1", house.append(ONE, qos2(5, "a")));
    house.nowMs += 1;
    assertEquals("3 known2", house.append(ONE, qos2(5, "a"), qos2(6, "b")));
  }

  @Test
  void rejectRefusesTheNewest() {
    house.create(ONE, 0, 10, Overflow.REJECT);

    assertEquals("1 full(session_queued_bytes) 2", house.append(ONE, qos1("1234567"), qos1("1234"), qos1("123")));
  }

  @Test
  void dropOldestMakesAllTheRoomThatIsNeededOrNone() {
    house.create(ONE, 0, 30, Overflow.DROP_OLDEST);
    long epoch = house.claim(ONE);
    house.append(ONE, qos1("1234567890"), qos1("1234567890"), qos1("1234567890"));

    assertEquals("4 0:-1(session_queued_bytes) 0:-2(session_queued_bytes)", house.append(ONE, qos1("123456789012345")));
    assertEquals("full(session_queued_bytes)", house.append(ONE, qos1("1234567890123456789012345678901")));
    assertEquals(List.of(3L, 4L), house.positions(ONE, epoch));
    assertEquals(25, house.state(ONE).bytes);
    assertEquals(2, house.state(ONE).floor); // no tombstone was needed
  }

  @Test
  void dropOldestTakesWhatTheSameCallHasAppended() {
    house.create(ONE, 2, 0, Overflow.DROP_OLDEST);
    long epoch = house.claim(ONE);

    house.append(ONE, qos1("a"), qos1("b"), qos1("c"), qos1("d"), qos1("e"));

    assertEquals(List.of(4L, 5L), house.positions(ONE, epoch));
  }

  @Test
  void dropQos0FirstRefusesTheNewestWhenNoneIsLeft() {
    house.create(ONE, 3, 0, Overflow.DROP_QOS0_FIRST);
    long epoch = house.claim(ONE);
    house.append(ONE, qos1("a"), qos0("b"), qos0("c"));

    String hit = "(session_queued_messages)";
    assertEquals("4 5 full" + hit + " 0:-2" + hit + " 1:-3" + hit, house.append(ONE, qos1("d"), qos1("e"), qos1("f")));
    assertEquals(List.of(1L, 4L, 5L), house.positions(ONE, epoch));
  }

  @Test
  void whatMayHaveBeenSentIsSparedUntilTheHubSaysThatItWasNot() {
    house.create(ONE, 3, 0, Overflow.DROP_QOS0_FIRST);
    long epoch = house.claim(ONE);
    house.append(ONE, qos0("a"), qos0("b"), qos0("c"));
    house.move(ONE, epoch, reserve(3));

    assertEquals("full(session_queued_messages)", house.append(ONE, qos1("d")));
    house.move(ONE, epoch, reserve(1));
    assertEquals("4 0:-2(session_queued_messages)", house.append(ONE, qos1("d")));
  }

  @Test
  void roomOfTheTenantBoundsTheCall() {
    house.create(ONE);
    house.create(TWO, 0, 0, Overflow.DROP_OLDEST);

    Append two = new Append(1, 1, room(2, -1), List.of(qos1("a"), qos1("b"), qos1("c")));
    assertEquals("1 2 full(queued_messages)", words(house.run(ONE, two)));
    assertEquals("1 2 1:-1(queued_bytes)", words(house.run(TWO, new Append(1, 1, room(-1, 1), List.of(qos1("a"), qos1("b"))))));
  }

  @Test
  void whatIsTooLargeForAnyRoomOnlyTellsWhetherItIsKnown() {
    for (Overflow policy : Overflow.values()) {
      house.create(ONE, 3, 0, policy);
      house.append(ONE, qos0("a"), qos2(7, "b"));
      house.store.records.get(ONE).get(1L).value()[0] = 8; // to make room it would have to be read

      assertEquals("full(queued_messages) known2", words(house.run(ONE, new Append(1, 99, room(0, 0), List.of(asking(8), asking(7))))));
      assertEquals(2, house.state(ONE).tail);
      assertEquals(2, house.state(ONE).messages);
      house.run(ONE, new Drop());
    }
  }

  @Test
  void timestampsGoUpAlsoWhenTheClockGoesBack() {
    house.create(ONE);
    house.append(ONE, qos1("a"));
    long before = house.state(ONE).timestamp;

    house.nowMs -= 5_000;
    house.append(ONE, qos1("b"));

    assertEquals(before + 1, house.state(ONE).timestamp);
  }

  @Test
  void silentWritersAreForgottenWhenOthersCame() {
    house.create(ONE);
    for (int writer = 1; writer <= Writers.KEPT + 5; writer++) {
      house.run(ONE, appending(writer, 1, qos1("a")));
    }
    assertEquals(Writers.KEPT + 5, house.state(ONE).writers.entries().size());

    house.nowMs += Writers.SILENT_MS;
    house.run(ONE, appending(1, 2, qos1("a")));

    assertEquals(Writers.KEPT, house.state(ONE).writers.entries().size());
    assertEquals("again: 1", words(house.run(ONE, appending(1, 2, qos1("a")))).replaceAll("\\d+$", "1"));
  }
}
