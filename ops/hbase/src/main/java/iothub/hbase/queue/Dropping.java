package iothub.hbase.queue;

import java.io.IOException;
import java.util.SortedMap;
import java.util.TreeMap;

/** Makes room by the queue's overflow policy: all that is needed or nothing; what may have been sent is spared. */
final class Dropping {
  private Dropping() {}

  static boolean makeRoom(Queue queue, int size, Room left, int hit, Answer answer) throws IOException {
    State state = queue.state();
    Overflow policy = state.limits.overflow();
    long messages = left.messagesOver(state);
    long bytes = left.bytesOver(state, size);
    boolean isHopeless = messages > state.messages || bytes > state.bytes || policy == Overflow.DROP_QOS0_FIRST && state.qos0 == 0;
    if (policy == Overflow.REJECT || isHopeless) {
      return false;
    }
    SortedMap<Long, QueuedRecord> victims = victims(queue, policy, messages, bytes);
    victims.forEach((position, record) -> {
      queue.remove(position, record);
      left.freed(record.size());
      answer.dropped(hit, position);
    });
    return !victims.isEmpty();
  }

  /** The oldest that may go, empty if they do not suffice. */
  private static SortedMap<Long, QueuedRecord> victims(Queue queue, Overflow policy, long messages, long bytes) throws IOException {
    State state = queue.state();
    boolean isQos0Only = policy == Overflow.DROP_QOS0_FIRST;
    long first = isQos0Only ? Math.max(state.firstDroppable(), state.qos0From + 1) : state.firstDroppable();
    SortedMap<Long, QueuedRecord> victims = new TreeMap<>();
    long[] freed = {0};
    queue.scan(first, state.tail, (position, record) -> {
      if (policy.mayDrop(record)) {
        victims.put(position, record);
        freed[0] += record.size();
      }
      return victims.size() < messages || freed[0] < bytes;
    });
    boolean isEnough = victims.size() >= messages && freed[0] >= bytes;
    if (isQos0Only && (isEnough || victims.isEmpty())) {
      state.qos0From = victims.isEmpty() ? state.tail : victims.lastKey(); // not to be looked through again
    }
    if (!isEnough) {
      victims.clear();
    }
    return victims;
  }
}
