package iothub.hbase.queue;

import java.io.IOException;

/** Acknowledge, release, reserve. */
final class ReaderMoves {
  private ReaderMoves() {}

  /** Everything up to a position is done; never back, never beyond the tail. */
  static void acknowledge(Queue queue, long position) throws IOException {
    State state = queue.state();
    long upto = Math.min(position, state.tail);
    if (upto <= state.head) {
      return;
    }
    if (upto == state.tail) {
      state.messages = 0; // no need to look at what goes
    } else {
      queue.scan(state.floor + 1, upto, (at, record) -> {
        state.removed(record);
        return true;
      });
    }
    state.head = upto;
    state.floor = Math.max(state.floor, upto);
    state.released.headSet(upto + 1).clear(); // only here, never at PUBCOMP
  }

  static void release(Queue queue, long position) {
    State state = queue.state();
    if (position > state.head && position <= state.tail) {
      state.released.add(position);
    }
  }

  static void reserve(Queue queue, long position) {
    State state = queue.state();
    if (position < state.reserved) {
      state.qos0From = 0; // what was spared before may be dropped now
    }
    state.reserved = position;
  }
}
