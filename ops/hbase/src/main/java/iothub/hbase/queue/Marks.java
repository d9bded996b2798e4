package iothub.hbase.queue;

import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/**
 * The {@link Mark} of every queue of one region.
 *
 * <p>Invariant: what a mark says is durable. A queue without a mark loses nothing.
 */
final class Marks {
  private final Map<Key, Mark> marks = new ConcurrentHashMap<>();

  /** Null if there is none. */
  Mark of(Key key) {
    return marks.get(key);
  }

  void put(Key key, Mark mark) {
    marks.merge(key, mark, (old, fresh) -> fresh.timestamp() >= old.timestamp() ? fresh : old);
  }

  int size() {
    return marks.size();
  }

  /** Queues that may hold a record that is due. */
  List<Map.Entry<Key, Mark>> due(long nowMs) {
    return marks.entrySet().stream().filter(each -> each.getValue().nextExpiry() > 0 && each.getValue().nextExpiry() <= nowMs).toList();
  }

  /** Somebody has looked at all records of a queue as it was at {@code seen}: nothing is due before {@code atMs} (0: never). */
  void looked(Key key, Mark seen, long atMs) {
    marks.replace(key, seen, seen.withNextExpiry(atMs));
  }

  /** What looking has found since the state was written. */
  void tighten(Key key, State state) {
    Mark mark = marks.get(key);
    if (mark != null && mark.timestamp() == state.timestamp && !state.isDropped) {
      state.nextExpiry = mark.nextExpiry();
    }
  }
}
