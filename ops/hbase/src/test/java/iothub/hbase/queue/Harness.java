package iothub.hbase.queue;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.hadoop.hbase.KeyValue;

/** One region with a clock of its own, asked in operations and answered in words. */
final class Harness {
  static final Key ONE = new Key(Long.reverse(1), 7);
  static final Key TWO = new Key(Long.reverse(2), 7);

  final MemoryStore store = new MemoryStore();
  Marks marks = new Marks();
  long nowMs = 1_000_000;
  private long sequence;

  /** The result of one operation. */
  record Result(Status status, byte[] bytes) {
    Input input() {
      return new Input("result", bytes);
    }
  }

  Result run(Key key, Operation operation) {
    return run(List.of(new Request.Step(key, operation))).get(0);
  }

  List<Result> run(List<Request.Step> steps) {
    try {
      return results(new Batch(store, marks, () -> nowMs).run(new Request(steps)));
    } catch (IOException e) {
      throw new AssertionError(e);
    }
  }

  private static List<Result> results(byte[] answer) throws RefusedException {
    Input input = new Input("answer", answer);
    input.version(Request.VERSION);
    List<Result> results = new ArrayList<>();
    for (int left = input.i32("count"); left > 0; left--) {
      Status status = Status.values()[input.u8("status")];
      results.add(new Result(status, input.bytes(input.i32("length"), "result")));
    }
    input.end();
    return results;
  }

  void create(Key key, long messages, long bytes, Overflow overflow) {
    assertEquals(Status.DONE, run(key, new Create(1, 1, new Limits(messages, bytes, overflow))).status());
  }

  void create(Key key) {
    create(key, 0, 0, Overflow.REJECT);
  }

  long claim(Key key) {
    try {
      return run(key, new Claim(0, new byte[] {'w'})).input().i64("epoch");
    } catch (RefusedException e) {
      throw new AssertionError(e);
    }
  }

  Result move(Key key, long epoch, Moves.Move... moves) {
    sequence++;
    return run(key, new Moves(epoch, sequence, List.of(moves)));
  }

  static Moves.Move ack(long position) {
    return (queue, output) -> ReaderMoves.acknowledge(queue, position);
  }

  static Moves.Move reserve(long position) {
    return (queue, output) -> ReaderMoves.reserve(queue, position);
  }

  static Moves.Move release(long position) {
    return (queue, output) -> ReaderMoves.release(queue, position);
  }

  /** Appends as a new call; the answer in words. */
  String append(Key key, QueuedRecord... records) {
    sequence++;
    return words(run(key, appending(1, sequence, records)));
  }

  static Append appending(long writer, long sequence, QueuedRecord... records) {
    return new Append(writer, sequence, room(-1, -1), List.of(records), null);
  }

  /** A call that says which ones before it are settled. */
  static Append settling(long writer, long sequence, long from, long upto, QueuedRecord... records) {
    return new Append(writer, sequence, room(-1, -1), List.of(records), new Settled.Range(from, upto));
  }

  static Room room(long messages, long bytes) {
    try {
      return Room.read(new Input("room", new Output().i64(messages).i64(bytes).toBytes()));
    } catch (RefusedException e) {
      throw new AssertionError(e);
    }
  }

  /** For instance {@code "1 2 known1 full(session_queued_messages) -1(queued_bytes)"}: positions, refusals, drops. */
  static String words(Result result) {
    if (result.status() != Status.DONE) {
      return result.status().name();
    }
    try {
      Input input = result.input();
      String repeat = input.u8("repeat") == 1 ? "again: " : "";
      input.i64("epoch");
      StateCodec.readOwner(input);
      input.bytes(32, "where it stands");
      return repeat + String.join(" ", answer(input));
    } catch (RefusedException e) {
      throw new AssertionError(e);
    }
  }

  private static List<String> answer(Input input) throws RefusedException {
    String[] hits = {"", "session_queued_messages", "session_queued_bytes", "queued_messages", "queued_bytes"};
    List<String> words = new ArrayList<>();
    for (int left = input.i32("runs"); left > 0; left--) {
      int kind = input.u8("kind");
      long first = input.i64("first");
      int count = input.i32("count");
      for (int i = 0; i < count; i++) {
        words.add(kind == 0 ? "" + (first + i) : kind == 1 ? "known" + first : "full(" + hits[(int) first] + ")");
      }
    }
    for (int left = input.i32("drops"); left > 0; left--) {
      int message = input.i32("message");
      String hit = hits[input.u8("hit")];
      long first = input.i64("first");
      int count = input.i32("count");
      for (int i = 0; i < count; i++) {
        words.add(message + ":-" + (first + i) + "(" + hit + ")");
      }
    }
    assertEquals(0, input.rest());
    return words;
  }

  /** Positions that a reader of this epoch finds. */
  List<Long> positions(Key key, long epoch) {
    try {
      byte[] asked = new Output().u8(1).i64(epoch).i64(0).i32(100_000).i32(1 << 30).toBytes();
      Input input = new Input("page", new Pages(store).page(key, asked));
      input.version(1);
      assertEquals(Status.DONE.code(), input.u8("status"));
      input.bytes(24, "head, tail, upto");
      assertEquals(1, input.u8("short"));
      List<Long> found = new ArrayList<>();
      for (int left = input.i32("count"); left > 0; left--) {
        found.add(input.i64("position"));
        input.bytes(input.i32("length"), "record");
      }
      return found;
    } catch (IOException e) {
      throw new AssertionError(e);
    }
  }

  State state(Key key) {
    try {
      return StateCodec.decode(key, store.states.get(key));
    } catch (RefusedException e) {
      throw new AssertionError(e);
    }
  }

  /** Whether an in-memory compaction, now, would leave a stored record out. */
  boolean isEvicted(Key key, long position) {
    MemoryStore.Cell cell = store.records.get(key).get(position);
    assertTrue(cell != null, "nothing was written at " + position);
    Mark mark = marks.of(key);
    return mark != null && mark.hasConsumed(position, cell.at());
  }

  /** Whether an in-memory compaction, now, would leave out what is kept of a message id. */
  boolean isForgotten(Key key, long id) {
    MessageId messageId = new MessageId(0, id);
    MemoryStore.Cell cell = store.ids.get(key).get(messageId);
    return new Eviction(marks).isGone(new KeyValue(Rows.id(key, messageId), Rows.META, Rows.POSITION, cell.at(), cell.value()), nowMs);
  }

  static QueuedRecord qos1(String body) {
    return record(1, 0, null, body);
  }

  static QueuedRecord qos0(String body) {
    return record(0, 0, null, body);
  }

  static QueuedRecord qos2(long id, String body) {
    return record(2, 0, new MessageId(0, id), body);
  }

  /** One whose id its writer settles. */
  static QueuedRecord settledLater(long id, String body) {
    byte[] bytes = qos2(id, body).bytes().clone();
    bytes[3] = 6;
    try {
      return QueuedRecord.read(new Input("record", bytes));
    } catch (RefusedException e) {
      throw new AssertionError(e);
    }
  }

  /** One that only asks whether its message is known: no queue has room for so much, and no record of any is looked at to make it. */
  static QueuedRecord asking(long id) {
    byte[] all = new Output().u8(1).u8(2).u8(0).u8(3).i64(0).i32(Integer.MAX_VALUE).u16(0).i64(0).i64(id).toBytes();
    try {
      return QueuedRecord.read(new Input("record", all));
    } catch (RefusedException e) {
      throw new AssertionError(e);
    }
  }

  static QueuedRecord due(long atMs, String body) {
    return record(1, atMs, null, body);
  }

  static QueuedRecord record(int qos, long expiresAt, MessageId id, String body) {
    byte[] bytes = body.getBytes(StandardCharsets.UTF_8);
    Output output = new Output().u8(1).u8(qos).u8(0).u8(id == null ? 0 : 2).i64(expiresAt).i32(bytes.length).u16(0);
    if (id != null) {
      output.i64(id.high()).i64(id.low());
    }
    byte[] all = output.bytes(bytes).toBytes();
    try {
      return QueuedRecord.read(new Input("record", Arrays.copyOf(all, all.length)));
    } catch (RefusedException e) {
      throw new AssertionError(e);
    }
  }
}
