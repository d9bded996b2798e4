package iothub.hbase.queue;

import java.io.IOException;

/** One thing to do with one queue; parsed and looked at completely before any lock is taken. */
interface Operation {
  /** Does it under the queue's lock, and writes what the caller gets beside the status. */
  Status apply(Queue queue, Output output) throws IOException;
}
