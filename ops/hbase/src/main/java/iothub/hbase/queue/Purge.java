package iothub.hbase.queue;

import java.io.IOException;

/** Drops every record, without a tombstone: the floor goes to the tail. Positions go on; head, released and inbound stay. Returns how many they were. */
record Purge() implements Operation {
  @Override
  public Status apply(Queue queue, Output output) throws IOException {
    if (queue.isGone()) {
      return Status.GONE;
    }
    output.i64(queue.state().messages);
    if (queue.state().messages > 0) {
      queue.change().messages = 0;
      queue.settle();
    }
    return Status.DONE;
  }
}
