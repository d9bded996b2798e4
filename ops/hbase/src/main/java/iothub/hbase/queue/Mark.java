package iothub.hbase.queue;

/**
 * By what the rows of a queue that nobody will read again are known: in memory for every queue of a region, so that no flush or compaction has to
 * look.
 *
 * <p>It judges only rows that are as old as itself: what was written later belongs to a state that it does not know.
 */
record Mark(long timestamp, long born, long floor, long forgotten, Settled settled, long nextExpiry) {
  static Mark of(State state) {
    if (state.isDropped) {
      return new Mark(state.timestamp, state.timestamp + 1, 0, 0, Settled.NOTHING, 0);
    }
    Settled settled = state.settled.ranges().isEmpty() ? Settled.NOTHING : state.settled;
    return new Mark(state.timestamp, state.born, state.floor, state.history.forgotten(), settled, state.nextExpiry);
  }

  boolean hasConsumed(long position, long writtenAt) {
    return isFromBefore(writtenAt) || position <= floor && writtenAt <= timestamp;
  }

  /** A queue that nobody has changed for so long does not say itself what it has forgotten since. */
  boolean hasForgotten(Remembered id, long writtenAt, long nowMs) {
    long upto = timestamp <= nowMs - History.REMEMBERED_MS ? floor : forgotten;
    return isFromBefore(writtenAt) || writtenAt <= timestamp && (id.position() <= upto || settled.has(id));
  }

  /** Of an earlier incarnation of the queue. */
  boolean isFromBefore(long writtenAt) {
    return writtenAt < born;
  }

  Mark withNextExpiry(long atMs) {
    return new Mark(timestamp, born, floor, forgotten, settled, atMs);
  }
}
