package iothub.hbase.queue;

import java.io.IOException;
import java.util.HashMap;
import java.util.Map;
import java.util.TreeMap;
import java.util.function.BiConsumer;

/**
 * One queue while a request changes it, under its lock: its state, and its rows as they will be.
 *
 * <p>Theory: what an operation writes is kept here until all of the request is done and {@link Batch} commits it. Positions above {@code storedTail}
 * are
 * looked up here alone, those below in the store, without the ones removed here. Null in one of the maps: to be removed.
 */
final class Queue {
  private final Key key;
  private final Store store;
  private final long nowMs;
  private State state;
  private boolean isChanged;
  private long storedTail;
  private final TreeMap<Long, QueuedRecord> records = new TreeMap<>();
  private final Map<MessageId, Remembered> ids = new HashMap<>();
  private final Map<Integer, byte[]> payloads = new TreeMap<>();

  /** {@code state}: null if there is no such queue. */
  Queue(Key key, Store store, State state, long nowMs) {
    this.key = key;
    this.store = store;
    this.nowMs = nowMs;
    this.state = state;
    if (state != null) {
      storedTail = state.tail;
      state.history.forget(nowMs);
    }
  }

  Key key() {
    return key;
  }

  long nowMs() {
    return nowMs;
  }

  boolean isChanged() {
    return isChanged;
  }

  /** As it is now; null if it was never made. A dropped one is there, marked so. */
  State state() {
    return state;
  }

  boolean isGone() {
    return state == null || state.isDropped;
  }

  /** The state, to be changed: from now on the request writes it, with a timestamp behind every earlier one. */
  State change() {
    if (!isChanged) {
      isChanged = true;
      state.timestamp = Math.max(nowMs, state.timestamp + 1);
    }
    return state;
  }

  /** Begins anew, live or dropped: nothing of what was there before shows any more. */
  void replace(State fresh) {
    long before = state == null ? 0 : state.timestamp;
    fresh.timestamp = isChanged ? before : Math.max(nowMs, before + 1);
    fresh.born = fresh.timestamp;
    if (state != null) {
      state.inbound.keySet().forEach(packetId -> payloads.put(packetId, null));
    }
    records.clear();
    ids.clear();
    state = fresh;
    storedTail = 0;
    isChanged = true;
  }

  void settle() {
    state.settle(nowMs);
  }

  // --- records

  /** {@code writer}, {@code sequence}: the call that brings it. */
  void append(QueuedRecord record, long writer, long sequence) {
    state.tail++;
    records.put(state.tail, record);
    state.stored(record);
    MessageId id = record.messageId();
    if (id != null) {
      ids.put(id, record.isSettledLater() ? new Remembered(state.tail, writer, sequence) : new Remembered(state.tail, 0, 0));
      state.hasIds = true;
    }
  }

  /** Leaves the position empty. */
  void remove(long position, QueuedRecord record) {
    state.removed(record);
    if (position == state.floor + 1) {
      state.floor = position; // no tombstone: what is not above the floor vanishes by itself
    }
    if (position > storedTail) {
      records.remove(position);
    } else if (position > state.floor) {
      records.put(position, null);
    }
  }

  /** As if its message had never come. */
  void forget(MessageId id) {
    if (id != null) {
      ids.put(id, null);
    }
  }

  /** Null if there is none at this position. */
  QueuedRecord record(long position) throws IOException {
    QueuedRecord[] found = {null};
    scan(position, position, (at, record) -> {
      found[0] = record;
      return false;
    });
    return found[0];
  }

  void scan(long first, long last, Store.Visitor visitor) throws IOException {
    boolean[] isEnough = {false};
    long from = Math.max(first, state.floor + 1);
    if (from <= Math.min(last, storedTail)) {
      store.scan(key, state.born, from, Math.min(last, storedTail), (position, record) -> {
        isEnough[0] = !records.containsKey(position) && !visitor.see(position, record);
        return !isEnough[0];
      });
    }
    from = Math.max(from, storedTail + 1);
    if (isEnough[0] || from > last) {
      return;
    }
    for (Map.Entry<Long, QueuedRecord> each : records.subMap(from, true, last, true).entrySet()) {
      if (!visitor.see(each.getKey(), each.getValue())) {
        return;
      }
    }
  }

  /** The position of a QoS 2 message that is still remembered, 0 otherwise. */
  long position(MessageId id) throws IOException {
    if (!state.hasIds) {
      return 0;
    }
    if (ids.containsKey(id)) {
      Remembered here = ids.get(id);
      return here == null ? 0 : here.position();
    }
    Remembered stored = store.remembered(key, state.born, id);
    return stored == null || state.hasForgotten(stored) ? 0 : stored.position();
  }

  // --- inbound

  void payload(int packetId, byte[] payload) {
    payloads.put(packetId, payload);
  }

  // --- for the commit

  void forEachRecord(BiConsumer<Long, QueuedRecord> consumer) {
    records.tailMap(state.floor, false).forEach(consumer);
  }

  void forEachId(BiConsumer<MessageId, Remembered> consumer) {
    ids.forEach(consumer);
  }

  void forEachPayload(BiConsumer<Integer, byte[]> consumer) {
    payloads.forEach(consumer);
  }
}
