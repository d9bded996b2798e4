package iothub.hbase.queue;

/** The bytes of {@link State} in cell {@code m:s}; the layout is in {@code docs/reference/coprocessor.md}. */
final class StateCodec {
  static final int VERSION = 1;
  private static final int DROPPED = 1;
  private static final int HAS_IDS = 2;
  private static final int HAS_SETTLED = 4;
  private static final int OWNER_MOST_BYTES = 255;

  private StateCodec() {}

  static byte[] encode(State state) {
    boolean hasSettled = !state.settled.ranges().isEmpty();
    int flags = (state.isDropped ? DROPPED : 0) | (state.hasIds ? HAS_IDS : 0) | (hasSettled ? HAS_SETTLED : 0);
    Output output = new Output().u8(VERSION).u8(flags);
    output.i64(state.timestamp).i64(state.born);
    if (state.isDropped) {
      return output.toBytes();
    }
    output.i64(state.tail).i64(state.head).i64(state.floor).i64(state.epoch).i64(state.readerSequence).i64(state.reserved);
    output.i64(state.messages).i64(state.bytes).i64(state.qos0).i64(state.qos0From).i64(state.nextExpiry);
    output.i64(state.createToken).i64(state.claimToken);
    state.limits.write(output);
    writeOwner(output, state.owner);
    writeHistory(output, state.history);
    writeReader(output, state);
    writeWriters(output, state.writers);
    if (hasSettled) {
      writeSettled(output, state.settled);
    }
    return output.toBytes();
  }

  /** Refuses what it does not know or what cannot be. */
  static State decode(Key key, byte[] bytes) throws RefusedException {
    Input input = new Input("state of " + key, bytes);
    input.oneOf(VERSION, VERSION, input.u8("version"), "version");
    int flags = (int) input.oneOf(0, DROPPED | HAS_IDS | HAS_SETTLED, input.u8("flags"), "flags");
    State state = new State(null);
    state.isDropped = (flags & DROPPED) != 0;
    state.hasIds = (flags & HAS_IDS) != 0;
    state.timestamp = input.count64("timestamp");
    state.born = input.oneOf(0, state.timestamp, input.i64("birth"), "birth");
    if (!state.isDropped) {
      readNumbers(input, state);
      state.limits = Limits.read(input);
      state.owner = readOwner(input);
      readHistory(input, state.history);
      readReader(input, state);
      readWriters(input, state.writers);
      if ((flags & HAS_SETTLED) != 0) {
        readSettled(input, state.settled);
      }
    }
    input.end();
    return state;
  }

  /** Whether these are the bytes of a dropped queue. */
  static boolean isDropped(byte[] bytes) {
    return bytes.length > 1 && bytes[0] == VERSION && (bytes[1] & DROPPED) != 0;
  }

  static void writeOwner(Output output, byte[] owner) {
    output.u8(owner.length).bytes(owner);
  }

  static byte[] readOwner(Input input) throws RefusedException {
    return input.bytes((int) input.oneOf(0, OWNER_MOST_BYTES, input.u8("length of owner"), "length of owner"), "owner");
  }

  private static void readNumbers(Input input, State state) throws RefusedException {
    state.tail = input.count64("tail");
    state.head = input.oneOf(0, state.tail, input.i64("head"), "head");
    state.floor = input.oneOf(state.head, state.tail, input.i64("floor"), "floor");
    state.epoch = input.count64("epoch");
    state.readerSequence = input.count64("reader sequence");
    state.reserved = input.count64("reserved");
    state.messages = input.oneOf(0, state.tail - state.floor, input.i64("messages"), "messages");
    state.bytes = input.count64("bytes");
    state.qos0 = input.oneOf(0, state.messages, input.i64("QoS 0 messages"), "QoS 0 messages");
    state.qos0From = input.count64("first QoS 0");
    state.nextExpiry = input.count64("next expiry");
    state.createToken = input.i64("token of creation");
    state.claimToken = input.i64("token of claim");
  }

  private static void writeHistory(Output output, History history) {
    output.i64(history.forgotten()).u8(history.entries().size());
    for (History.Entry entry : history.entries()) {
      output.i64(entry.atMs()).i64(entry.floor());
    }
  }

  private static void readHistory(Input input, History history) throws RefusedException {
    history.forgotten(input.count64("forgotten"));
    int entries = (int) input.oneOf(0, History.MOST_ENTRIES, input.u8("length of history"), "length of history");
    for (int i = 0; i < entries; i++) {
      history.entries().addLast(new History.Entry(input.count64("time"), input.count64("floor then")));
    }
  }

  private static void writeSettled(Output output, Settled settled) {
    output.u8(settled.ranges().size());
    settled.ranges().forEach((writer, range) -> range.write(output.i64(writer)));
  }

  private static void readSettled(Input input, Settled settled) throws RefusedException {
    int count = (int) input.oneOf(1, Settled.KEPT, input.u8("number of settled writers"), "number of settled writers");
    for (int i = 0; i < count; i++) {
      settled.put(input.i64("settled writer"), Settled.Range.read(input));
    }
  }

  private static void writeReader(Output output, State state) {
    output.i32(state.released.size());
    state.released.forEach(output::i64);
    output.i32(state.inbound.size());
    state.inbound.forEach((packetId, intent) -> writeIntent(output, packetId, intent));
  }

  static void writeIntent(Output output, int packetId, State.Intent intent) {
    output.u16(packetId).u8(intent.isRouted() ? 1 : 0).i64(intent.messageId().high()).i64(intent.messageId().low());
  }

  private static void readReader(Input input, State state) throws RefusedException {
    for (int left = input.count(8, "number of released"); left > 0; left--) {
      state.released.add(input.i64("released"));
    }
    for (int left = input.count(19, "number of inbound"); left > 0; left--) {
      int packetId = input.u16("packet identifier");
      boolean isRouted = input.oneOf(0, 1, input.u8("state of inbound"), "state of inbound") == 1;
      state.inbound.put(packetId, new State.Intent(isRouted, MessageId.read(input)));
    }
  }

  private static void writeWriters(Output output, Writers writers) {
    output.u16(writers.entries().size());
    writers.entries().forEach((writer, entry) -> {
      output.i64(writer).i64(entry.sequence()).i64(entry.atMs());
      output.i32(entry.answer().length).bytes(entry.answer());
    });
  }

  private static void readWriters(Input input, Writers writers) throws RefusedException {
    int count = (int) input.oneOf(0, Writers.MOST, input.u16("number of writers"), "number of writers");
    for (int i = 0; i < count; i++) {
      long writer = input.i64("writer");
      long sequence = input.i64("sequence");
      long atMs = input.i64("time");
      writers.answered(writer, new Writers.Entry(sequence, atMs, input.bytes(input.i32("length of answer"), "answer")));
    }
  }
}
