package iothub.hbase.queue;

import java.io.IOException;

/** Gives a queue other limits; what is stored above them stays. */
record SetLimits(Limits limits) implements Operation {
  @Override
  public Status apply(Queue queue, Output output) throws IOException {
    if (queue.isGone()) {
      return Status.GONE;
    }
    if (!queue.state().limits.equals(limits)) {
      queue.change().limits = limits;
    }
    return Status.DONE;
  }
}
