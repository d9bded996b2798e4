package iothub.hbase.queue;

import java.io.IOException;
import java.nio.charset.StandardCharsets;

/** What a get on a queue's meta row is answered: one page of its records, or where it stands. Takes no lock. */
final class Pages {
  static final int MOST_BYTES = 8 << 20; // of one answer, so that it fits the gateway's frames; one record is always there
  private static final int RECORD_HEAD_BYTES = 12;

  private final Store store;

  Pages(Store store) {
    this.store = store;
  }

  /** version 1 | epoch 8 | after 8 | count 4 | bytes 4, for the reader of that epoch alone. */
  byte[] page(Key key, byte[] asked) throws IOException {
    Input input = new Input("page of " + key, asked);
    input.version(Request.VERSION);
    long epoch = input.count64("epoch");
    long after = input.count64("after");
    long count = input.atLeast(1, input.i32("count"), "count");
    long bytes = input.atLeast(1, input.i32("bytes"), "bytes");
    input.end();
    try {
      return page(key, epoch, after, count, bytes);
    } catch (RefusedException e) {
      return damaged(e);
    }
  }

  private byte[] page(Key key, long epoch, long after, long count, long bytes) throws IOException {
    State state = state(key);
    if (state == null) {
      return answer(Status.GONE).toBytes();
    }
    if (state.epoch != epoch) {
      return answer(Status.STALE_EPOCH).i64(state.epoch).toBytes();
    }
    Page page = new Page(count, bytes);
    store.scan(key, state.born, Math.max(after, state.floor) + 1, state.tail, page);
    long upto = page.isFull ? page.last : Math.max(after, state.tail);
    Output answer = answer(Status.DONE).i64(state.head).i64(state.tail).i64(upto).u8(upto >= state.tail ? 1 : 0);
    return answer.i32(page.size).bytes(page.records.toBytes()).toBytes();
  }

  /** Null if there is no such queue. */
  byte[] stats(Key key) throws IOException {
    try {
      State state = state(key);
      return state == null ? null : stats(state);
    } catch (RefusedException e) {
      return damaged(e);
    }
  }

  private static byte[] stats(State state) {
    Output answer = answer(Status.DONE).i64(state.epoch).i64(state.head).i64(state.tail).i64(state.reserved);
    state.limits.write(answer.i64(state.messages).i64(state.bytes));
    StateCodec.writeOwner(answer, state.owner);
    return answer.toBytes();
  }

  private State state(Key key) throws IOException {
    byte[] bytes = store.state(key);
    State state = bytes == null ? null : StateCodec.decode(key, bytes);
    return state == null || state.isDropped ? null : state;
  }

  private static byte[] damaged(RefusedException why) {
    return answer(Status.DAMAGED).bytes(why.getMessage().getBytes(StandardCharsets.UTF_8)).toBytes();
  }

  private static Output answer(Status status) {
    return new Output().u8(Request.VERSION).u8(status.code());
  }

  /** Collects records until there are enough. */
  private static final class Page implements Store.Visitor {
    private final Output records = new Output();
    private final long count;
    private long bytes;
    private int size;
    private long last;
    private boolean isFull;

    Page(long count, long bytes) {
      this.count = count;
      this.bytes = bytes;
    }

    @Override
    public boolean see(long position, QueuedRecord record) {
      boolean isTooMuch = records.size() + RECORD_HEAD_BYTES + record.bytes().length > MOST_BYTES;
      if (size > 0 && isTooMuch) {
        isFull = true;
        return false;
      }
      records.i64(position).i32(record.bytes().length).bytes(record.bytes());
      size++;
      last = position;
      bytes -= record.size();
      isFull = size == count || bytes <= 0;
      return !isFull;
    }
  }
}
