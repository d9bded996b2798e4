package iothub.hbase.queue;

import java.util.SortedMap;
import java.util.SortedSet;
import java.util.TreeMap;
import java.util.TreeSet;

/**
 * Where one queue stands: the content of its cell {@code m:s}, see {@link StateCodec}.
 *
 * <p>Invariants: {@code head <= floor <= tail}; no record at or below {@code floor} is there; {@code messages}, {@code bytes} and {@code qos0} count
 * the
 * records above it; {@code tail} never goes back; every cell of this queue has a timestamp of at most {@code timestamp}, and of this incarnation of
 * at
 * least {@code born}.
 */
final class State {
  boolean isDropped;
  long timestamp;
  long born;
  long tail;
  long head; // everything up to it is acknowledged
  long floor; // everything up to it is gone: acknowledged, purged, dropped or expired
  long epoch;
  long readerSequence;
  long reserved; // up to it a position may have been sent
  long messages;
  long bytes;
  long qos0;
  long qos0From; // no QoS 0 between `reserved` and it
  long nextExpiry; // no record is due before; 0: none will be
  long createToken;
  long claimToken;
  Limits limits;
  byte[] owner = {};
  boolean hasIds; // a QoS 2 message id was stored
  final History history = new History();
  final Settled settled = new Settled();
  final SortedSet<Long> released = new TreeSet<>();
  final SortedMap<Integer, Intent> inbound = new TreeMap<>();
  final Writers writers = new Writers();

  State(Limits limits) {
    this.limits = limits;
  }

  /** An inbound QoS 2 message of this session: its publisher's side. */
  record Intent(boolean isRouted, MessageId messageId) {}

  /** Drop policies spare what may have been sent. */
  long firstDroppable() {
    return Math.max(floor, reserved) + 1;
  }

  void stored(QueuedRecord record) {
    messages++;
    bytes += record.size();
    qos0 += record.qos() == 0 ? 1 : 0;
    long at = record.expiresAt();
    if (at > 0 && (nextExpiry == 0 || at < nextExpiry)) {
      nextExpiry = at;
    }
  }

  void removed(QueuedRecord record) {
    messages--;
    bytes = Math.max(bytes - record.size(), 0);
    qos0 = Math.min(qos0 - (record.qos() == 0 ? 1 : 0), messages); // a damaged record does not say what it was
  }

  /** Whether a message id will not come again, or nobody needs to know it any more. */
  boolean hasForgotten(Remembered id) {
    return id.position() <= history.forgotten() || settled.has(id);
  }

  /** Once per change: an empty queue needs no counter to be found so. */
  void settle(long nowMs) {
    if (messages == 0) {
      floor = tail;
      bytes = 0;
      qos0 = 0;
      nextExpiry = 0;
    }
    if (hasIds) {
      history.note(nowMs, floor);
    }
    writers.prune(nowMs);
  }
}
