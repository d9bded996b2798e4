package iothub.hbase.queue;

import java.io.IOException;

/**
 * Makes the caller the only reader: the epoch goes up by one. A repeat, recognised by its token, gets the same epoch as long as nobody else has
 * claimed.
 */
record Claim(long token, byte[] owner) implements Operation {
  static Claim read(Input input) throws RefusedException {
    return new Claim(input.i64("token"), StateCodec.readOwner(input));
  }

  @Override
  public Status apply(Queue queue, Output output) throws IOException {
    if (queue.isGone()) {
      return Status.GONE;
    }
    if (queue.state().claimToken != token || token == 0) {
      State state = queue.change();
      state.epoch = Math.addExact(state.epoch, 1);
      state.readerSequence = 0;
      state.claimToken = token;
      state.owner = owner;
    }
    writeClaim(queue.state(), output);
    return Status.DONE;
  }

  private static void writeClaim(State state, Output output) {
    output.i64(state.epoch).i64(state.head).i64(state.tail).i64(state.reserved).i64(state.messages).i64(state.bytes);
    output.i32(state.released.size());
    state.released.forEach(output::i64);
    output.i32(state.inbound.size());
    state.inbound.forEach((packetId, intent) -> StateCodec.writeIntent(output, packetId, intent));
  }
}
