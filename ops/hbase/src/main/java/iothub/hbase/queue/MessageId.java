package iothub.hbase.queue;

/** The 128 bits that name an Application Message throughout the hub. */
record MessageId(long high, long low) {
  static MessageId read(Input input) throws RefusedException {
    return new MessageId(input.i64("message id"), input.i64("message id"));
  }
}
