package iothub.hbase.queue;

/** What a full queue does with the next message; its code is stored. */
enum Overflow {
  REJECT,
  DROP_OLDEST,
  DROP_QOS0_FIRST;

  static Overflow read(Input input) throws RefusedException {
    return values()[(int) input.oneOf(0, values().length - 1, input.u8("overflow policy"), "overflow policy")];
  }

  boolean mayDrop(QueuedRecord record) {
    return this == DROP_OLDEST || this == DROP_QOS0_FIRST && record.qos() == 0;
  }
}
