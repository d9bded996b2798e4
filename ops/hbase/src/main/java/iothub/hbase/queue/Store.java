package iothub.hbase.queue;

import java.io.IOException;
import java.util.Collection;
import java.util.List;

/** What the operations need of a region, and nothing else of HBase. */
interface Store {
  /** Waits until nobody else changes this queue; held until closed. */
  Lock lock(Key key) throws IOException;

  /** The queue's state cell, null if there is none. */
  byte[] state(Key key) throws IOException;

  /** What is left of a queue whose state is damaged. */
  Remains remains(Key key) throws IOException;

  /** Shows the records of a range that were written at {@code born} or later, ascending, until {@code visitor} has seen enough. */
  void scan(Key key, long born, long first, long last, Visitor visitor) throws IOException;

  /** What is kept of a message id, null if nothing is. */
  Remembered remembered(Key key, long born, MessageId id) throws IOException;

  /** Writes what the queues have changed: all or nothing, durable when it returns. */
  void commit(Collection<Queue> changed) throws IOException;

  /** When the state was written, and which packet identifiers have a payload. */
  record Remains(long writtenAt, List<Integer> packetIds) {}

  /** A row lock. */
  interface Lock extends AutoCloseable {
    @Override
    void close();
  }

  /** Sees records, as long as it returns true. */
  @FunctionalInterface
  interface Visitor {
    boolean see(long position, QueuedRecord record) throws IOException;
  }
}
