package iothub.hbase.queue;

/** Bounds of one queue; 0 means none. */
record Limits(long messages, long bytes, Overflow overflow) {
  static Limits read(Input input) throws RefusedException {
    return new Limits(input.count64("limit of messages"), input.count64("limit of bytes"), Overflow.read(input));
  }

  Output write(Output output) {
    return output.i64(messages).i64(bytes).u8(overflow.ordinal());
  }
}
