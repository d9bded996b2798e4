package iothub.hbase.queue;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;

/**
 * Removes those of the named records whose time has come; their message ids are forgotten with them. What may have been sent is spared, unless the
 * caller is
 * the one who knows that it was not ({@code isUnsent}). Returns the removed and the spared positions.
 */
record Expire(long nowMs, boolean isUnsent, List<Long> positions) implements Operation {
  static Expire read(Input input) throws RefusedException {
    long nowMs = input.count64("now");
    boolean isUnsent = input.oneOf(0, 1, input.u8("unsent"), "unsent") == 1;
    int count = input.count(8, "number of positions");
    List<Long> positions = new ArrayList<>(count);
    for (int i = 0; i < count; i++) {
      positions.add(input.atLeast(1, input.i64("position"), "position"));
    }
    return new Expire(nowMs, isUnsent, positions);
  }

  @Override
  public Status apply(Queue queue, Output output) throws IOException {
    if (queue.isGone()) {
      return Status.GONE;
    }
    List<Long> removed = new ArrayList<>();
    List<Long> spared = new ArrayList<>();
    for (long position : positions) {
      look(queue, position, removed, spared);
    }
    if (!removed.isEmpty()) {
      queue.settle();
    }
    write(output, removed);
    write(output, spared);
    return Status.DONE;
  }

  private void look(Queue queue, long position, List<Long> removed, List<Long> spared) throws IOException {
    QueuedRecord record = queue.record(position);
    if (record == null || !record.isDue(nowMs)) {
      return;
    }
    if (position <= queue.state().reserved && !isUnsent) {
      spared.add(position);
      return;
    }
    queue.change();
    queue.remove(position, record);
    queue.forget(record.messageId());
    removed.add(position);
  }

  private static void write(Output output, List<Long> positions) {
    output.i32(positions.size());
    positions.forEach(output::i64);
  }
}
