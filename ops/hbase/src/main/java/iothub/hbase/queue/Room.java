package iothub.hbase.queue;

/**
 * How much more may be stored: by the queue's own limits, and by what the caller says is left of its tenant's, which one region cannot know.
 *
 * <p>Counts down while messages are stored and up again while others are dropped. -1: the tenant has no such limit.
 */
final class Room {
  static final int FITS = 0;
  static final int SESSION_QUEUED_MESSAGES = 1;
  static final int SESSION_QUEUED_BYTES = 2;
  static final int QUEUED_MESSAGES = 3;
  static final int QUEUED_BYTES = 4;

  private final boolean isMessagesBound;
  private final boolean isBytesBound;
  private long messages;
  private long bytes;

  private Room(boolean isMessagesBound, long messages, boolean isBytesBound, long bytes) {
    this.isMessagesBound = isMessagesBound;
    this.messages = messages;
    this.isBytesBound = isBytesBound;
    this.bytes = bytes;
  }

  static Room read(Input input) throws RefusedException {
    long messages = input.atLeast(-1, input.i64("room for messages"), "room for messages");
    long bytes = input.atLeast(-1, input.i64("room for bytes"), "room for bytes");
    return new Room(messages >= 0, messages, bytes >= 0, bytes);
  }

  Room copy() {
    return new Room(isMessagesBound, messages, isBytesBound, bytes);
  }

  /** Which limit one more message would break; the queue's own first. */
  int hit(State state, long size) {
    if (over(state.messages + 1, state.limits.messages()) > 0) {
      return SESSION_QUEUED_MESSAGES;
    }
    if (over(state.bytes + size, state.limits.bytes()) > 0) {
      return SESSION_QUEUED_BYTES;
    }
    if (isMessagesBound && messages < 1) {
      return QUEUED_MESSAGES;
    }
    return isBytesBound && bytes < size ? QUEUED_BYTES : FITS;
  }

  /** How many messages must go so that one more fits. */
  long messagesOver(State state) {
    long own = over(state.messages + 1, state.limits.messages());
    return Math.max(own, isMessagesBound ? 1 - messages : 0);
  }

  /** How many bytes must go so that {@code size} more fit. */
  long bytesOver(State state, long size) {
    long own = over(state.bytes + size, state.limits.bytes());
    return Math.max(own, isBytesBound ? size - bytes : 0);
  }

  void taken(long size) {
    messages--;
    bytes -= size;
  }

  void freed(long size) {
    messages++;
    bytes += size;
  }

  private static long over(long value, long limit) {
    return limit == 0 ? 0 : value - limit;
  }
}
