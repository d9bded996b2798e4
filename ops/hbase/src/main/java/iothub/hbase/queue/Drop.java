package iothub.hbase.queue;

import java.io.IOException;

/** Removes a queue and tells how many records it had. What stays is a mark with a time, by which its rows vanish; dropping again changes nothing. */
record Drop() implements Operation {
  @Override
  public Status apply(Queue queue, Output told) throws IOException {
    if (queue.isGone()) {
      told.i64(0);
      return Status.GONE;
    }
    told.i64(queue.state().messages);
    State dropped = new State(null);
    dropped.isDropped = true;
    queue.replace(dropped);
    return Status.DONE;
  }
}
