package iothub.hbase.queue;

import org.apache.hadoop.hbase.DoNotRetryIOException;

/** A request, or something stored, that this version does not take. Its message names what is wrong; trying again would not help. */
final class RefusedException extends DoNotRetryIOException {
  private static final long serialVersionUID = 1;

  RefusedException(String message) {
    super(message);
  }
}
