package iothub.hbase.queue;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;

/**
 * Messages of one writer for one queue, in its order. (writer, sequence) names the call: a repeat gets the first answer, whatever has happened since.
 *
 * <p>{@code settled}: those of this writer's calls whose message ids will not come again; null: nothing is said.
 *
 * <p>Answers: whether it is a repeat, where the queue stands now, and the answer; see {@link Answer}.
 */
record Append(long writer, long sequence, Room room, List<QueuedRecord> records, Settled.Range settled) implements Operation {
  private static final int MOST_RECORDS = 4_096;

  static Append read(Input input) throws RefusedException {
    return read(input, null);
  }

  static Append readSettling(Input input) throws RefusedException {
    return read(input, Settled.Range.read(input));
  }

  private static Append read(Input input, Settled.Range settled) throws RefusedException {
    long writer = input.i64("writer");
    long sequence = input.atLeast(1, input.i64("sequence"), "sequence");
    Room room = Room.read(input);
    int count = (int) input.oneOf(1, MOST_RECORDS, input.count(4 + QueuedRecord.LEAST_BYTES, "number of messages"), "number of messages");
    List<QueuedRecord> records = new ArrayList<>(count);
    for (int i = 0; i < count; i++) {
      records.add(QueuedRecord.read(input.part(input.i32("length of message"), input.name() + ", message " + i)));
    }
    return new Append(writer, sequence, room, records, settled);
  }

  @Override
  public Status apply(Queue queue, Output output) throws IOException {
    if (queue.isGone()) {
      return Status.GONE;
    }
    Writers.Entry last = queue.state().writers.of(writer);
    if (last != null && sequence < last.sequence()) {
      output.i64(last.sequence());
      return Status.OLD_SEQUENCE;
    }
    boolean isRepeat = last != null && sequence == last.sequence();
    byte[] answer = isRepeat ? last.answer() : append(queue);
    State state = queue.state();
    output.u8(isRepeat ? 1 : 0).i64(state.epoch);
    StateCodec.writeOwner(output, state.owner);
    output.i64(state.head).i64(state.tail).i64(state.messages).i64(state.bytes).bytes(answer);
    return Status.DONE;
  }

  private byte[] append(Queue queue) throws IOException {
    State state = queue.change();
    if (settled != null) {
      state.settled.put(writer, settled);
    }
    Answer answer = new Answer();
    Room left = room.copy();
    for (QueuedRecord record : records) {
      deliver(queue, record, left, answer);
    }
    byte[] bytes = answer.toBytes();
    state.writers.answered(writer, new Writers.Entry(sequence, queue.nowMs(), bytes));
    queue.settle();
    return bytes;
  }

  private void deliver(Queue queue, QueuedRecord record, Room left, Answer answer) throws IOException {
    MessageId id = record.messageId();
    long known = id == null ? 0 : queue.position(id);
    if (known > 0) {
      answer.known(known);
      return;
    }
    int hit = left.hit(queue.state(), record.size());
    if (hit != Room.FITS && !Dropping.makeRoom(queue, record.size(), left, hit, answer)) {
      answer.full(hit);
      return;
    }
    queue.append(record, writer, sequence);
    left.taken(record.size());
    answer.stored(queue.state().tail);
  }
}
