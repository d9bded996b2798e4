package iothub.hbase.queue;

/**
 * What is kept of a QoS 2 message id, in a cell {@code m:i}: the position that its message got, and the call that gave it, for ids of which the
 * writer says when they are settled. {@code sequence} 0: nobody says, so it is kept for 24 hours beyond its record.
 *
 * <pre>
 * version 1 | position 8
 * version 2 | position 8 | writer 8 | sequence 8
 * </pre>
 */
record Remembered(long position, long writer, long sequence) {
  private static final int FOR_24_HOURS = 1;
  private static final int UNTIL_SETTLED = 2;

  /** Position 0: it is damaged, and its message id is not known any more. */
  static Remembered read(byte[] value) {
    try {
      Input input = new Input("message id", value);
      int version = (int) input.oneOf(FOR_24_HOURS, UNTIL_SETTLED, input.u8("version"), "version");
      long position = input.count64("position");
      return version == FOR_24_HOURS ? new Remembered(position, 0, 0) : new Remembered(position, input.i64("writer"), input.count64("sequence"));
    } catch (RefusedException e) {
      return new Remembered(0, 0, 0);
    }
  }

  byte[] toBytes() {
    Output output = new Output().u8(sequence == 0 ? FOR_24_HOURS : UNTIL_SETTLED).i64(position);
    return (sequence == 0 ? output : output.i64(writer).i64(sequence)).toBytes();
  }
}
