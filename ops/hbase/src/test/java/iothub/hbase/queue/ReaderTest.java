package iothub.hbase.queue;

import static iothub.hbase.queue.Harness.ONE;
import static iothub.hbase.queue.Harness.TWO;
import static iothub.hbase.queue.Harness.ack;
import static iothub.hbase.queue.Harness.due;
import static iothub.hbase.queue.Harness.qos0;
import static iothub.hbase.queue.Harness.qos1;
import static iothub.hbase.queue.Harness.qos2;
import static iothub.hbase.queue.Harness.release;
import static iothub.hbase.queue.Harness.reserve;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;

/** Claims, moves, pages, expiry, and what vanishes. */
class ReaderTest {
  private final Harness harness = new Harness();

  @Test
  void claimMakesTheNextEpochAndFencesTheReaderBefore() {
    harness.run(ONE, new Create(1, 41, new Limits(0, 0, Overflow.REJECT)));
    long old = harness.claim(ONE);
    long fresh = harness.claim(ONE);

    assertEquals(41, old);
    assertEquals(42, fresh);
    assertEquals(Status.STALE_EPOCH, harness.move(ONE, old, ack(1)).status());
    assertEquals(Status.DONE, harness.move(ONE, fresh, ack(1)).status());
  }

  @Test
  void repeatedClaimGetsTheSameEpochUntilSomebodyElseClaims() throws IOException {
    harness.create(ONE);

    assertEquals(1, harness.run(ONE, new Claim(77, new byte[0])).input().i64("epoch"));
    assertEquals(1, harness.run(ONE, new Claim(77, new byte[0])).input().i64("epoch"));
    assertEquals(2, harness.run(ONE, new Claim(78, new byte[0])).input().i64("epoch"));
    assertEquals(3, harness.run(ONE, new Claim(77, new byte[0])).input().i64("epoch"));
  }

  @Test
  void repeatedCreateIsDoneAndAnotherOneIsRefused() {
    Limits limits = new Limits(0, 0, Overflow.REJECT);
    assertEquals(Status.DONE, harness.run(ONE, new Create(5, 1, limits)).status());
    assertEquals(Status.DONE, harness.run(ONE, new Create(5, 1, limits)).status());
    assertEquals(Status.EXISTS, harness.run(ONE, new Create(6, 1, limits)).status());
  }

  @Test
  void callThatLandsLateChangesNothing() {
    harness.create(ONE);
    long epoch = harness.claim(ONE);
    harness.run(ONE, new Moves(epoch, 2, List.of(reserve(2048))));

    assertEquals(Status.OLD_SEQUENCE, harness.run(ONE, new Moves(epoch, 1, List.of(reserve(1024)))).status());
    assertEquals(2048, harness.state(ONE).reserved);
  }

  @Test
  void acknowledgementNeverGoesBackNorBeyondTheTail() {
    harness.create(ONE);
    long epoch = harness.claim(ONE);
    harness.append(ONE, qos1("aa"), qos1("bbb"), qos1("c"));
    harness.move(ONE, epoch, ack(2));
    harness.move(ONE, epoch, ack(1));

    assertEquals(2, harness.state(ONE).head);
    assertEquals(1, harness.state(ONE).messages);
    assertEquals(1, harness.state(ONE).bytes);
    harness.move(ONE, epoch, ack(9));
    assertEquals(3, harness.state(ONE).head);
    assertEquals(0, harness.state(ONE).bytes);
    assertEquals("4", harness.append(ONE, qos1("d")));
  }

  @Test
  void releasedIsForgottenOnlyWhenTheHeadHasPassed() {
    harness.create(ONE);
    long epoch = harness.claim(ONE);
    harness.append(ONE, qos2(1, "a"), qos2(2, "b"), qos2(3, "c"));
    harness.move(ONE, epoch, release(3), release(1), release(9));
    harness.run(ONE, new Purge());

    assertEquals(List.of(1L, 3L), List.copyOf(harness.state(ONE).released));
    assertEquals(0, harness.state(ONE).head);
    harness.move(ONE, epoch, ack(1), release(1));
    assertEquals(List.of(3L), List.copyOf(harness.state(ONE).released));
  }

  @Test
  void damagedQueueIsRefusedAndDroppedAllTheSame() throws IOException {
    harness.create(ONE);
    long epoch = harness.claim(ONE);
    byte[] taken = new Output().i64(0).i64(99).i32(3).bytes(new byte[] {1, 2, 3}).toBytes();
    harness.move(ONE, epoch, InboundMoves.intent(new Input("intent", taken), 5));
    harness.store.states.put(ONE, new byte[] {9, 9});
    harness.store.writtenAt.put(ONE, harness.nowMs + 5_000); // by a clock that was ahead

    assertEquals(Status.DAMAGED, harness.run(ONE, new Purge()).status());
    Harness.Result result = harness.run(ONE, new Drop());
    assertEquals(Status.DONE, result.status());
    assertEquals(0, result.input().i64("records"));
    assertEquals(harness.nowMs + 5_001, harness.state(ONE).timestamp);
    assertTrue(harness.store.payloads.get(ONE).isEmpty());
    assertEquals(Status.GONE, harness.run(ONE, new Drop()).status());
  }

  @Test
  void intentIsKeptUntilRoutedAndKnownUntilFinished() throws IOException {
    harness.create(ONE);
    long epoch = harness.claim(ONE);
    byte[] taken = new Output().i64(0).i64(99).i32(3).bytes(new byte[] {1, 2, 3}).toBytes();
    Moves.Move intent = InboundMoves.intent(new Input("intent", taken), 5);

    assertEquals(0, result(harness.move(ONE, epoch, intent)));
    assertEquals(1, result(harness.move(ONE, epoch, intent)));
    assertEquals(3, harness.store.payloads.get(ONE).get(5).length);
    harness.move(ONE, epoch, (queue, output) -> InboundMoves.record(queue, 5));
    assertEquals(2, result(harness.move(ONE, epoch, intent)));
    assertNull(harness.store.payloads.get(ONE).get(5));
    harness.move(ONE, epoch, (queue, output) -> InboundMoves.finish(queue, 5));
    assertTrue(harness.state(ONE).inbound.isEmpty());
  }

  private static int result(Harness.Result result) throws IOException {
    Input input = result.input();
    input.bytes(32, "where it stands");
    return input.u8("result");
  }

  @Test
  void expiryRemovesWhatIsDueSparesWhatMayHaveBeenSentAndForgetsIds() throws IOException {
    harness.create(ONE);
    long epoch = harness.claim(ONE);
    QueuedRecord idDue = Harness.record(2, 10, new MessageId(0, 7), "c");
    harness.append(ONE, due(10, "a"), due(99, "b"), idDue, qos1("d"));
    harness.move(ONE, epoch, reserve(1));

    Input result = harness.run(ONE, new Expire(10, false, List.of(1L, 2L, 3L, 4L, 5L))).input();

    assertEquals(1, result.i32("removed"));
    assertEquals(3, result.i64("position"));
    assertEquals(1, result.i32("spared"));
    assertEquals(1, result.i64("position"));
    assertEquals(List.of(1L, 2L, 4L), harness.positions(ONE, epoch));
    assertEquals("5", harness.append(ONE, idDue));
    harness.run(ONE, new Expire(10, true, List.of(1L)));
    assertEquals(List.of(2L, 4L, 5L), harness.positions(ONE, epoch));
  }

  @Test
  void dueRecordsComeInTheOrderOfTheirDeadlinesAndLooksLearn() throws IOException {
    harness.create(ONE);
    harness.create(TWO);
    harness.append(ONE, due(20, "a"), due(10, "b"), due(90, "c"));
    harness.append(TWO, due(10, "d"));

    assertEquals(List.of("10/1/2", "10/2/1", "20/1/1"), look(50, 10, 0, 0, 0));
    assertEquals(List.of("10/2/1", "20/1/1"), look(50, 10, 10, 1, 2));
    assertEquals(List.of("10/1/2"), look(50, 1, 0, 0, 0));
    harness.run(ONE, new Expire(50, false, List.of(1L, 2L)));
    harness.run(TWO, new Expire(50, false, List.of(1L)));
    assertEquals(List.of(), look(50, 10, 0, 0, 0));
    int before = harness.store.scanned;
    assertEquals(List.of(), look(60, 10, 0, 0, 0));
    assertEquals(before, harness.store.scanned);
    assertEquals(List.of("90/1/3"), look(90, 10, 0, 0, 0));
  }

  @Test
  void dueRecordsAreFoundBesideDamagedOnesAndDamagedQueues() throws IOException {
    harness.create(ONE);
    harness.create(TWO);
    harness.append(ONE, due(10, "a"), due(10, "b"), due(10, "c"));
    harness.append(TWO, due(20, "d"));
    harness.store.records.get(ONE).get(2L).value()[0] = 8;

    assertEquals(List.of("10/1/1", "10/1/3", "20/2/1"), look(50, 10, 0, 0, 0));
    harness.store.states.get(ONE)[0] = 9;
    assertEquals(List.of("20/2/1"), look(50, 10, 0, 0, 0));
  }

  private List<String> look(long nowMs, int count, long atMs, long queueId, long position) throws IOException {
    byte[] asked = new Output().u8(1).i64(nowMs).i32(count).i64(atMs).i64(queueId).i64(position).toBytes();
    Input input = new Input("due", new DueRecords(harness.store, harness.marks).look(asked));
    input.version(1);
    List<String> found = new ArrayList<>();
    for (int left = input.i32("count"); left > 0; left--) {
      long due = input.i64("at");
      found.add(due + "/" + Key.read(input).queueId() + "/" + input.i64("position"));
      input.u8("spared");
    }
    return found;
  }

  @Test
  void droppedQueueIsGoneAndASuccessorStartsEmpty() {
    harness.create(ONE);
    harness.append(ONE, qos2(1, "a"), qos1("b"));
    assertEquals(Status.DONE, harness.run(ONE, new Drop()).status());
    assertEquals(Status.GONE, harness.run(ONE, new Drop()).status());
    assertEquals("GONE", harness.append(ONE, qos1("c")));
    assertTrue(harness.isEvicted(ONE, 2));

    harness.create(ONE);
    long epoch = harness.claim(ONE);

    assertEquals(List.of(), harness.positions(ONE, epoch));
    assertEquals("1", harness.append(ONE, qos2(1, "a")));
    assertEquals(List.of(1L), harness.positions(ONE, epoch));
    assertFalse(harness.isEvicted(ONE, 1));
    assertTrue(harness.isEvicted(ONE, 2));
  }

  @Test
  void onlyWhatIsBelowTheFloorIsEvicted() {
    harness.create(ONE);
    long epoch = harness.claim(ONE);
    harness.append(ONE, qos1("a"), qos1("b"), qos1("c"));
    assertFalse(harness.isEvicted(ONE, 1));

    harness.move(ONE, epoch, ack(2));

    assertTrue(harness.isEvicted(ONE, 2));
    assertFalse(harness.isEvicted(ONE, 3));
    harness.marks = new Marks();
    assertFalse(harness.isEvicted(ONE, 1)); // no mark, nothing goes
  }

  @Test
  void markJudgesNothingThatIsYoungerThanItself() {
    Mark mark = new Mark(100, 50, 7, 0, Settled.NOTHING, 0);

    assertTrue(mark.hasConsumed(7, 100));
    assertFalse(mark.hasConsumed(7, 101)); // of a successor whose mark is not here yet
    assertTrue(mark.hasConsumed(8, 49));
    assertFalse(mark.hasConsumed(8, 50));
  }

  @Test
  void damagedQueueIsNamedAndKeepsWhatItHasWhileOthersGoOn() {
    harness.create(ONE);
    harness.create(TWO);
    harness.store.states.get(ONE)[0] = 9;
    byte[] before = harness.store.states.get(ONE).clone();

    List<Harness.Result> results =
        harness.run(List.of(new Request.Step(ONE, Harness.appending(1, 1, qos1("a"))), new Request.Step(TWO, Harness.appending(1, 1, qos1("b")))));

    assertEquals(Status.DAMAGED, results.get(0).status());
    assertEquals("state of queue 1 of tenant 7: version must be from 1 to 1, not 9",
        new String(results.get(0).bytes(), StandardCharsets.UTF_8));
    assertEquals(Status.DONE, results.get(1).status());
    assertEquals(List.of(before.length), List.of(harness.store.states.get(ONE).length));
  }

  @Test
  void damagedRecordIsPassedOver() {
    harness.create(ONE);
    long epoch = harness.claim(ONE);
    harness.append(ONE, qos0("a"), qos0("b"), qos1("c"));
    harness.store.records.get(ONE).get(1L).value()[0] = 8;
    harness.store.records.get(ONE).get(2L).value()[0] = 8;

    assertEquals(List.of(1L, 2L, 3L), harness.positions(ONE, epoch)); // with bytes that the hub names as damaged
    assertEquals(Status.DONE, harness.move(ONE, epoch, ack(2)).status());
    assertEquals(1, harness.state(ONE).messages);
    assertEquals(1, harness.state(ONE).qos0); // as many as there may be
    assertEquals("4", harness.append(ONE, qos1("d")));
    harness.move(ONE, epoch, ack(4));
    assertEquals(0, harness.state(ONE).bytes);
  }

  @Test
  void damagedRecordMakesRoomAsTheOldestDoes() {
    harness.run(ONE, new Create(1, 1, new Limits(2, 0, Overflow.DROP_OLDEST)));
    long epoch = harness.claim(ONE);
    harness.append(ONE, qos1("a"), qos1("b"));
    harness.store.records.get(ONE).get(1L).value()[0] = 8;

    harness.append(ONE, qos1("c"));

    assertEquals(List.of(2L, 3L), harness.positions(ONE, epoch));
    assertEquals(2, harness.state(ONE).messages);
  }
}
