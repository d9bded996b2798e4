package iothub.hbase.queue;

/**
 * The 12 bytes that every row of one queue begins with: the queue id with its bits reversed, then the tenant id.
 *
 * <p>Orders as HBase orders rows. What follows in a row: {@link Rows}.
 */
record Key(long reversed, int tenant) implements Comparable<Key> {
  static final int BYTES = 12;

  static Key read(Input input) throws RefusedException {
    return new Key(input.i64("queue key"), input.i32("tenant id"));
  }

  /** The key at the beginning of an array that is long enough. */
  static Key of(byte[] row, int offset) {
    long reversed = 0;
    for (int i = 0; i < 8; i++) {
      reversed = reversed << 8 | row[offset + i] & 0xFF;
    }
    int tenant = 0;
    for (int i = 8; i < BYTES; i++) {
      tenant = tenant << 8 | row[offset + i] & 0xFF;
    }
    return new Key(reversed, tenant);
  }

  long queueId() {
    return Long.reverse(reversed);
  }

  Output write(Output output) {
    return output.i64(reversed).i32(tenant);
  }

  @Override
  public int compareTo(Key other) {
    int order = Long.compareUnsigned(reversed, other.reversed);
    return order != 0 ? order : Integer.compareUnsigned(tenant, other.tenant);
  }

  @Override
  public String toString() {
    return "queue " + queueId() + " of tenant " + Integer.toUnsignedString(tenant);
  }
}
