package iothub.hbase.queue;

import java.io.IOException;

/** Removes a queue and returns how many records it had. What stays is a mark with a time, by which its rows vanish; dropping again changes nothing. */
record Drop() implements Operation {
  @Override
  public Status apply(Queue queue, Output output) throws IOException {
    if (queue.isGone()) {
      output.i64(0);
      return Status.GONE;
    }
    output.i64(queue.state().messages);
    State dropped = new State(null);
    dropped.isDropped = true;
    queue.replace(dropped);
    return Status.DONE;
  }
}
