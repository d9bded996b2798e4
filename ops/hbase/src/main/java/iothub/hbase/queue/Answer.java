package iothub.hbase.queue;

/**
 * What became of the messages of one append, in their order, as runs; this is what a repeat gets again.
 *
 * <pre>
 * n 4 | (kind 1 | first 8 | count 4)*n | d 4 | (message 4 | hit 1 | first 8 | count 4)*d
 * kind 0: stored at first, first + 1, ...   1: known, stored at first before (count 1)   2: full, first is the hit
 * d: what was dropped to make room for a message (its index here)
 * </pre>
 */
final class Answer {
  private static final int STORED = 0;
  private static final int KNOWN = 1;
  private static final int FULL = 2;

  private final Output runs = new Output();
  private final Output drops = new Output();
  private int messages; // answered so far
  private int runCount;
  private int dropCount;
  private int kind = -1;
  private long first;
  private int count;
  private int dropHit;
  private long dropFirst;
  private int dropLength;

  void stored(long position) {
    endDrop();
    boolean isNext = kind == STORED && first + count == position;
    answered(STORED, position, isNext);
  }

  void known(long position) {
    answered(KNOWN, position, false);
  }

  void full(int hit) {
    answered(FULL, hit, kind == FULL && first == hit);
  }

  /** For the message that is answered next. */
  void dropped(int hit, long position) {
    if (dropLength > 0 && dropHit == hit && dropFirst + dropLength == position) {
      dropLength++;
      return;
    }
    endDrop();
    dropHit = hit;
    dropFirst = position;
    dropLength = 1;
  }

  byte[] toBytes() {
    endRun();
    return new Output().i32(runCount).bytes(runs.toBytes()).i32(dropCount).bytes(drops.toBytes()).toBytes();
  }

  private void answered(int newKind, long newFirst, boolean isMore) {
    messages++;
    if (isMore) {
      count++;
      return;
    }
    endRun();
    kind = newKind;
    first = newFirst;
    count = 1;
  }

  private void endRun() {
    if (count > 0) {
      runs.u8(kind).i64(first).i32(count);
      runCount++;
      count = 0;
    }
  }

  private void endDrop() {
    if (dropLength > 0) {
      drops.i32(messages).u8(dropHit).i64(dropFirst).i32(dropLength);
      dropCount++;
      dropLength = 0;
    }
  }
}
