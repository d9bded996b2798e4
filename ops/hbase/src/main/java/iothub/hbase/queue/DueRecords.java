package iothub.hbase.queue;

import java.io.IOException;
import java.util.Comparator;
import java.util.Map;
import java.util.PriorityQueue;
import java.util.function.Consumer;

/**
 * Records of one region whose time has come, in the order of their deadlines; those who remove them ask for it by {@link Expire}.
 *
 * <p>Theory: a mark knows a time before which nothing in its queue is due, so that a look costs nothing where nothing is. Where it may be, the
 * queue's
 * records are looked through; if nothing is due after all, the mark learns the earliest deadline.
 */
final class DueRecords {
  private static final int MOST = 65_536;
  private static final Comparator<Due> ORDER = Comparator.comparingLong(Due::atMs)
      .thenComparing((one, other) -> Long.compareUnsigned(one.key().queueId(), other.key().queueId()))
      .thenComparingLong(Due::position);

  private final Store store;
  private final Marks marks;

  DueRecords(Store store, Marks marks) {
    this.store = store;
    this.marks = marks;
  }

  /** One record. Its order is by deadline, queue id, position. */
  private record Due(long atMs, Key key, long position, boolean isSpared) {}

  /** version 1 | now 8 | count 4 | behind: expires at 8, queue id 8, position 8. */
  byte[] look(byte[] asked) throws IOException {
    Input input = new Input("look for due records", asked);
    input.version(Request.VERSION);
    long nowMs = input.count64("now");
    int count = (int) input.oneOf(1, MOST, input.i32("count"), "count");
    long atMs = input.count64("expires at");
    Due behind = new Due(atMs, new Key(Long.reverse(input.i64("queue id")), 0), input.count64("position"), false);
    input.end();
    PriorityQueue<Due> found = new PriorityQueue<>(ORDER.reversed());
    Consumer<Due> soonest = due -> {
      if (ORDER.compare(due, behind) > 0) {
        found.add(due);
      }
      if (found.size() > count) {
        found.remove();
      }
    };
    for (Map.Entry<Key, Mark> each : marks.due(nowMs)) {
      try {
        look(each.getKey(), each.getValue(), nowMs, soonest);
      } catch (RefusedException e) {
        // damaged: its session ends, and other queues go on
      }
    }
    return answer(found);
  }

  private void look(Key key, Mark mark, long nowMs, Consumer<Due> due) throws IOException {
    byte[] bytes = store.state(key);
    State state = bytes == null ? null : StateCodec.decode(key, bytes);
    if (state == null || state.isDropped) {
      return;
    }
    long[] earliest = {0};
    store.scan(key, state.born, state.floor + 1, state.tail, (position, record) -> {
      long atMs = record.expiresAt();
      if (atMs > 0 && (earliest[0] == 0 || atMs < earliest[0])) {
        earliest[0] = atMs;
      }
      if (record.isDue(nowMs)) {
        due.accept(new Due(atMs, key, position, position <= state.reserved));
      }
      return true;
    });
    marks.looked(key, mark, earliest[0]);
  }

  private static byte[] answer(PriorityQueue<Due> found) {
    Output answer = new Output().u8(Request.VERSION).i32(found.size());
    for (Due due : found.stream().sorted(ORDER).toList()) {
      due.key().write(answer.i64(due.atMs())).i64(due.position()).u8(due.isSpared() ? 1 : 0);
    }
    return answer.toBytes();
  }
}
