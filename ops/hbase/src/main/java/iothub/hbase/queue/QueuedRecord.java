package iothub.hbase.queue;

/**
 * One delivery as the hub sends it and as it is stored: the bytes are kept unchanged, and looked into where limits, policies and expiry need it.
 *
 * <pre>
 * version 1 | qos 1 | flags 1 | form 1 | expires at (ms) 8 | size 4 | n 2 | (subscription identifier 4) * n | [message id 16] | body or reference
 * form: bit 0 the rest is a reference to a body, bit 1 a message id is there (QoS 2 only), bit 2 its writer says when the id is settled
 * </pre>
 */
record QueuedRecord(byte[] bytes, boolean isDamaged) {
  static final int VERSION = 1;
  static final int LEAST_BYTES = 18;
  private static final int IS_REFERENCE = 1;
  private static final int HAS_ID = 2;
  private static final int IS_SETTLED_LATER = 4;
  private static final int MOST_REFERENCE_BYTES = 1024;
  private static final int QOS = 1;
  private static final int FORM = 3;
  private static final int EXPIRES_AT = 4;
  private static final int SIZE = 12;
  private static final int IDENTIFIERS = 16;

  /** Looks at everything once; the accessors below rely on it. */
  static QueuedRecord read(Input input) throws RefusedException {
    byte[] bytes = input.remaining();
    input.version(VERSION);
    int qos = (int) input.oneOf(0, 2, input.u8("QoS"), "QoS");
    input.u8("flags");
    int form = (int) input.oneOf(0, IS_REFERENCE | HAS_ID | IS_SETTLED_LATER, input.u8("form"), "form");
    input.count64("expiry");
    long size = input.atLeast(0, input.i32("size"), "size");
    input.part(4 * input.u16("number of subscription identifiers"), "subscription identifiers");
    if ((form & HAS_ID) != 0) {
      if (qos != 2) {
        throw input.refused("a message id belongs to QoS 2 only, not to QoS " + qos);
      }
      MessageId.read(input);
    } else if ((form & IS_SETTLED_LATER) != 0) {
      throw input.refused("there is no message id that could be settled");
    }
    boolean isReference = (form & IS_REFERENCE) != 0;
    if (isReference && input.rest() > MOST_REFERENCE_BYTES) {
      throw input.refused("a reference has at most " + MOST_REFERENCE_BYTES + " bytes, not " + input.rest());
    }
    if (!isReference && input.rest() != size) {
      throw input.refused("size is " + size + ", but the body has " + input.rest() + " bytes");
    }
    return new QueuedRecord(bytes, false);
  }

  /** One that was stored. A damaged one has no size, no deadline and no message id; the hub is given its bytes, and names it. */
  static QueuedRecord stored(byte[] bytes) {
    try {
      return read(new Input("record", bytes));
    } catch (RefusedException e) {
      return new QueuedRecord(bytes, true);
    }
  }

  int qos() {
    return isDamaged ? 1 : bytes[QOS];
  }

  /** What it counts for in limits: the bytes of its body, wherever that is. */
  int size() {
    return isDamaged ? 0 : (int) number(SIZE, 4);
  }

  /** Unix time in ms, 0: never. */
  long expiresAt() {
    return isDamaged ? 0 : number(EXPIRES_AT, 8);
  }

  boolean isDue(long nowMs) {
    long at = expiresAt();
    return at > 0 && at <= nowMs;
  }

  /** Null if it has none. */
  MessageId messageId() {
    if (isDamaged || (bytes[FORM] & HAS_ID) == 0) {
      return null;
    }
    int at = IDENTIFIERS + 2 + 4 * (int) number(IDENTIFIERS, 2);
    return new MessageId(number(at, 8), number(at + 8, 8));
  }

  /** Whether its writer says when the message id will not come again. */
  boolean isSettledLater() {
    return !isDamaged && (bytes[FORM] & IS_SETTLED_LATER) != 0;
  }

  private long number(int at, int width) {
    long value = 0;
    for (int i = at; i < at + width; i++) {
      value = value << 8 | bytes[i] & 0xFF;
    }
    return value;
  }
}
