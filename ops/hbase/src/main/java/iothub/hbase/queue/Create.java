package iothub.hbase.queue;

import java.io.IOException;

/** Makes a queue whose first claim gets {@code firstEpoch}. A repeat, recognised by its token, is answered as the first. */
record Create(long token, long firstEpoch, Limits limits) implements Operation {
  static Create read(Input input) throws RefusedException {
    return new Create(input.i64("token"), input.atLeast(1, input.i64("first epoch"), "first epoch"), Limits.read(input));
  }

  @Override
  public Status apply(Queue queue, Output output) throws IOException {
    if (!queue.isGone()) {
      return queue.state().createToken == token ? Status.DONE : Status.EXISTS;
    }
    State state = new State(limits);
    state.epoch = firstEpoch - 1;
    state.createToken = token;
    queue.replace(state);
    return Status.DONE;
  }
}
