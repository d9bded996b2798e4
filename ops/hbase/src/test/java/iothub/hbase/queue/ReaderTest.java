package iothub.hbase.queue;

import static iothub.hbase.queue.House.ONE;
import static iothub.hbase.queue.House.TWO;
import static iothub.hbase.queue.House.ack;
import static iothub.hbase.queue.House.due;
import static iothub.hbase.queue.House.qos0;
import static iothub.hbase.queue.House.qos1;
import static iothub.hbase.queue.House.qos2;
import static iothub.hbase.queue.House.release;
import static iothub.hbase.queue.House.reserve;
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
  private final House house = new House();

  @Test
  void claimMakesTheNextEpochAndFencesTheReaderBefore() {
    house.run(ONE, new Create(1, 41, new Limits(0, 0, Overflow.REJECT)));
    long old = house.claim(ONE);
    long fresh = house.claim(ONE);

    assertEquals(41, old);
    assertEquals(42, fresh);
    assertEquals(Status.STALE_EPOCH, house.move(ONE, old, ack(1)).status());
    assertEquals(Status.DONE, house.move(ONE, fresh, ack(1)).status());
  }

  @Test
  void repeatedClaimGetsTheSameEpochUntilSomebodyElseClaims() throws IOException {
    house.create(ONE);

    assertEquals(1, house.run(ONE, new Claim(77, new byte[0])).input().i64("epoch"));
    assertEquals(1, house.run(ONE, new Claim(77, new byte[0])).input().i64("epoch"));
    assertEquals(2, house.run(ONE, new Claim(78, new byte[0])).input().i64("epoch"));
    assertEquals(3, house.run(ONE, new Claim(77, new byte[0])).input().i64("epoch"));
  }

  @Test
  void repeatedCreateIsDoneAndAnotherOneIsRefused() {
    Limits limits = new Limits(0, 0, Overflow.REJECT);
    assertEquals(Status.DONE, house.run(ONE, new Create(5, 1, limits)).status());
    assertEquals(Status.DONE, house.run(ONE, new Create(5, 1, limits)).status());
    assertEquals(Status.EXISTS, house.run(ONE, new Create(6, 1, limits)).status());
  }

  @Test
  void callThatLandsLateChangesNothing() {
    house.create(ONE);
    long epoch = house.claim(ONE);
    house.run(ONE, new Moves(epoch, 2, List.of(reserve(2048))));

    assertEquals(Status.OLD_SEQUENCE, house.run(ONE, new Moves(epoch, 1, List.of(reserve(1024)))).status());
    assertEquals(2048, house.state(ONE).reserved);
  }

  @Test
  void acknowledgementNeverGoesBackNorBeyondTheTail() {
    house.create(ONE);
    long epoch = house.claim(ONE);
    house.append(ONE, qos1("aa"), qos1("bbb"), qos1("c"));
    house.move(ONE, epoch, ack(2));
    house.move(ONE, epoch, ack(1));

    assertEquals(2, house.state(ONE).head);
    assertEquals(1, house.state(ONE).messages);
    assertEquals(1, house.state(ONE).bytes);
    house.move(ONE, epoch, ack(9));
    assertEquals(3, house.state(ONE).head);
    assertEquals(0, house.state(ONE).bytes);
    assertEquals("4", house.append(ONE, qos1("d")));
  }

  @Test
  void releasedIsForgottenOnlyWhenTheHeadHasPassed() {
    house.create(ONE);
    long epoch = house.claim(ONE);
    house.append(ONE, qos2(1, "a"), qos2(2, "b"), qos2(3, "c"));
    house.move(ONE, epoch, release(3), release(1), release(9));
    house.run(ONE, new Purge());

    assertEquals(List.of(1L, 3L), List.copyOf(house.state(ONE).released));
    assertEquals(0, house.state(ONE).head);
    house.move(ONE, epoch, ack(1), release(1));
    assertEquals(List.of(3L), List.copyOf(house.state(ONE).released));
  }

  @Test
  void damagedQueueIsRefusedAndDroppedAllTheSame() throws IOException {
    house.create(ONE);
    long epoch = house.claim(ONE);
    byte[] taken = new Output().i64(0).i64(99).i32(3).bytes(new byte[] {1, 2, 3}).toBytes();
    house.move(ONE, epoch, InboundMoves.intent(new Input("intent", taken), 5));
    house.store.states.put(ONE, new byte[] {9, 9});
    house.store.writtenAt.put(ONE, house.nowMs + 5_000); // by a clock that was ahead

    assertEquals(Status.DAMAGED, house.run(ONE, new Purge()).status());
    House.Told told = house.run(ONE, new Drop());
    assertEquals(Status.DONE, told.status());
    assertEquals(0, told.input().i64("records"));
    assertEquals(house.nowMs + 5_001, house.state(ONE).timestamp);
    assertTrue(house.store.payloads.get(ONE).isEmpty());
    assertEquals(Status.GONE, house.run(ONE, new Drop()).status());
  }

  @Test
  void intentIsKeptUntilRoutedAndKnownUntilFinished() throws IOException {
    house.create(ONE);
    long epoch = house.claim(ONE);
    byte[] taken = new Output().i64(0).i64(99).i32(3).bytes(new byte[] {1, 2, 3}).toBytes();
    Moves.Move intent = InboundMoves.intent(new Input("intent", taken), 5);

    assertEquals(0, result(house.move(ONE, epoch, intent)));
    assertEquals(1, result(house.move(ONE, epoch, intent)));
    assertEquals(3, house.store.payloads.get(ONE).get(5).length);
    house.move(ONE, epoch, (queue, told) -> InboundMoves.record(queue, 5));
    assertEquals(2, result(house.move(ONE, epoch, intent)));
    assertNull(house.store.payloads.get(ONE).get(5));
    house.move(ONE, epoch, (queue, told) -> InboundMoves.finish(queue, 5));
    assertTrue(house.state(ONE).inbound.isEmpty());
  }

  private static int result(House.Told told) throws IOException {
    Input input = told.input();
    input.bytes(32, "where it stands");
    return input.u8("result");
  }

  @Test
  void expiryRemovesWhatIsDueSparesWhatMayHaveBeenSentAndForgetsIds() throws IOException {
    house.create(ONE);
    long epoch = house.claim(ONE);
    QueuedRecord idDue = House.record(2, 10, new MessageId(0, 7), "c");
    house.append(ONE, due(10, "a"), due(99, "b"), idDue, qos1("d"));
    house.move(ONE, epoch, reserve(1));

    Input told = house.run(ONE, new Expire(10, false, List.of(1L, 2L, 3L, 4L, 5L))).input();

    assertEquals(1, told.i32("removed"));
    assertEquals(3, told.i64("position"));
    assertEquals(1, told.i32("spared"));
    assertEquals(1, told.i64("position"));
    assertEquals(List.of(1L, 2L, 4L), house.positions(ONE, epoch));
    assertEquals("5", house.append(ONE, idDue));
    house.run(ONE, new Expire(10, true, List.of(1L)));
    assertEquals(List.of(2L, 4L, 5L), house.positions(ONE, epoch));
  }

  @Test
  void dueRecordsComeInTheOrderOfTheirDeadlinesAndLooksLearn() throws IOException {
    house.create(ONE);
    house.create(TWO);
    house.append(ONE, due(20, "a"), due(10, "b"), due(90, "c"));
    house.append(TWO, due(10, "d"));

    assertEquals(List.of("10/1/2", "10/2/1", "20/1/1"), look(50, 10, 0, 0, 0));
    assertEquals(List.of("10/2/1", "20/1/1"), look(50, 10, 10, 1, 2));
    assertEquals(List.of("10/1/2"), look(50, 1, 0, 0, 0));
    house.run(ONE, new Expire(50, false, List.of(1L, 2L)));
    house.run(TWO, new Expire(50, false, List.of(1L)));
    assertEquals(List.of(), look(50, 10, 0, 0, 0));
    int before = house.store.scanned;
    assertEquals(List.of(), look(60, 10, 0, 0, 0));
    assertEquals(before, house.store.scanned);
    assertEquals(List.of("90/1/3"), look(90, 10, 0, 0, 0));
  }

  @Test
  void dueRecordsAreFoundBesideDamagedOnesAndDamagedQueues() throws IOException {
    house.create(ONE);
    house.create(TWO);
    house.append(ONE, due(10, "a"), due(10, "b"), due(10, "c"));
    house.append(TWO, due(20, "d"));
    house.store.records.get(ONE).get(2L).value()[0] = 8;

    assertEquals(List.of("10/1/1", "10/1/3", "20/2/1"), look(50, 10, 0, 0, 0));
    house.store.states.get(ONE)[0] = 9;
    assertEquals(List.of("20/2/1"), look(50, 10, 0, 0, 0));
  }

  private List<String> look(long nowMs, int count, long atMs, long queueId, long position) throws IOException {
    byte[] asked = new Output().u8(1).i64(nowMs).i32(count).i64(atMs).i64(queueId).i64(position).toBytes();
    Input input = new Input("due", new DueRecords(house.store, house.marks).look(asked));
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
    house.create(ONE);
    house.append(ONE, qos2(1, "a"), qos1("b"));
    assertEquals(Status.DONE, house.run(ONE, new Drop()).status());
    assertEquals(Status.GONE, house.run(ONE, new Drop()).status());
    assertEquals("GONE", house.append(ONE, qos1("c")));
    assertTrue(house.isEvicted(ONE, 2));

    house.create(ONE);
    long epoch = house.claim(ONE);

    assertEquals(List.of(), house.positions(ONE, epoch));
    assertEquals("1", house.append(ONE, qos2(1, "a")));
    assertEquals(List.of(1L), house.positions(ONE, epoch));
    assertFalse(house.isEvicted(ONE, 1));
    assertTrue(house.isEvicted(ONE, 2));
  }

  @Test
  void onlyWhatIsBelowTheFloorIsEvicted() {
    house.create(ONE);
    long epoch = house.claim(ONE);
    house.append(ONE, qos1("a"), qos1("b"), qos1("c"));
    assertFalse(house.isEvicted(ONE, 1));

    house.move(ONE, epoch, ack(2));

    assertTrue(house.isEvicted(ONE, 2));
    assertFalse(house.isEvicted(ONE, 3));
    house.marks = new Marks();
    assertFalse(house.isEvicted(ONE, 1)); // no mark, nothing goes
  }

  @Test
  void markJudgesNothingThatIsYoungerThanItself() {
    Mark mark = new Mark(100, 50, 7, 0, 0);

    assertTrue(mark.hasConsumed(7, 100));
    assertFalse(mark.hasConsumed(7, 101)); // of a successor whose mark is not here yet
    assertTrue(mark.hasConsumed(8, 49));
    assertFalse(mark.hasConsumed(8, 50));
  }

  @Test
  void damagedQueueIsNamedAndKeepsWhatItHasWhileOthersGoOn() {
    house.create(ONE);
    house.create(TWO);
    house.store.states.get(ONE)[0] = 9;
    byte[] before = house.store.states.get(ONE).clone();

    List<House.Told> told =
        house.run(List.of(new Request.Step(ONE, House.appending(1, 1, qos1("a"))), new Request.Step(TWO, House.appending(1, 1, qos1("b")))));

    assertEquals(Status.DAMAGED, told.get(0).status());
    assertEquals("state of queue 1 of tenant 7: version must be from 1 to 1, not 9",
        new String(told.get(0).bytes(), StandardCharsets.UTF_8));
    assertEquals(Status.DONE, told.get(1).status());
    assertEquals(List.of(before.length), List.of(house.store.states.get(ONE).length));
  }

  @Test
  void damagedRecordIsPassedOver() {
    house.create(ONE);
    long epoch = house.claim(ONE);
    house.append(ONE, qos0("a"), qos0("b"), qos1("c"));
    house.store.records.get(ONE).get(1L).value()[0] = 8;
    house.store.records.get(ONE).get(2L).value()[0] = 8;

    assertEquals(List.of(1L, 2L, 3L), house.positions(ONE, epoch)); // with bytes that the hub names as damaged
    assertEquals(Status.DONE, house.move(ONE, epoch, ack(2)).status());
    assertEquals(1, house.state(ONE).messages);
    assertEquals(1, house.state(ONE).qos0); // as many as there may be
    assertEquals("4", house.append(ONE, qos1("d")));
    house.move(ONE, epoch, ack(4));
    assertEquals(0, house.state(ONE).bytes);
  }

  @Test
  void damagedRecordMakesRoomAsTheOldestDoes() {
    house.run(ONE, new Create(1, 1, new Limits(2, 0, Overflow.DROP_OLDEST)));
    long epoch = house.claim(ONE);
    house.append(ONE, qos1("a"), qos1("b"));
    house.store.records.get(ONE).get(1L).value()[0] = 8;

    house.append(ONE, qos1("c"));

    assertEquals(List.of(2L, 3L), house.positions(ONE, epoch));
    assertEquals(2, house.state(ONE).messages);
  }
}
