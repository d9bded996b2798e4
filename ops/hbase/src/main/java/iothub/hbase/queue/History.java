package iothub.hbase.queue;

import java.util.ArrayDeque;
import java.util.Deque;
import java.util.concurrent.TimeUnit;

/**
 * How far the floor of a queue had come, hour by hour: a QoS 2 message id is remembered for 24 hours beyond its record.
 *
 * <p>Invariant: ascending in both; the record of every position up to {@link #forgotten()} went at least 24 hours ago.
 */
final class History {
  static final long REMEMBERED_MS = TimeUnit.HOURS.toMillis(24);
  static final long STEP_MS = TimeUnit.HOURS.toMillis(1);
  static final int MOST_ENTRIES = 26;

  private final Deque<Entry> entries = new ArrayDeque<>();
  private long forgotten;

  record Entry(long atMs, long floor) {}

  /** Message ids of positions up to this one are not known any more. */
  long forgotten() {
    return forgotten;
  }

  void forgotten(long position) {
    forgotten = position;
  }

  Deque<Entry> entries() {
    return entries;
  }

  void forget(long nowMs) {
    while (!entries.isEmpty() && entries.getFirst().atMs() <= nowMs - REMEMBERED_MS) {
      forgotten = entries.removeFirst().floor();
    }
  }

  void note(long nowMs, long floor) {
    forget(nowMs);
    Entry last = entries.peekLast();
    boolean isHigher = floor > (last == null ? forgotten : last.floor());
    boolean isLater = last == null || nowMs >= last.atMs() + STEP_MS;
    if (isHigher && isLater && entries.size() < MOST_ENTRIES) {
      entries.addLast(new Entry(nowMs, floor));
    }
  }
}
