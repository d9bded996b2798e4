package iothub.hbase.queue;

import java.util.LinkedHashMap;
import java.util.Map;

/**
 * Of each writer the calls whose message ids will not come again, as its own calls have said it: those from {@code from} up to, but without,
 * {@code upto}.
 *
 * <p>Keeps the {@value #KEPT} writers that were heard last. What a forgotten writer left is forgotten after 24 hours, as ids are that nobody settles.
 */
final class Settled {
  static final int KEPT = 32;
  static final Settled NOTHING = new Settled();

  private final Map<Long, Range> ranges = new LinkedHashMap<>();

  /** Sequences of one writer. */
  record Range(long from, long upto) {
    static Range read(Input input) throws RefusedException {
      long from = input.atLeast(1, input.i64("first settled sequence"), "first settled sequence");
      return new Range(from, input.atLeast(from, input.i64("end of settled sequences"), "end of settled sequences"));
    }

    void write(Output output) {
      output.i64(from).i64(upto);
    }
  }

  /** In the order in which they were heard. */
  Map<Long, Range> ranges() {
    return ranges;
  }

  void put(long writer, Range range) {
    ranges.remove(writer);
    ranges.put(writer, range);
    if (ranges.size() > KEPT) {
      ranges.remove(ranges.keySet().iterator().next());
    }
  }

  boolean has(Remembered id) {
    Range range = id.sequence() == 0 ? null : ranges.get(id.writer());
    return range != null && range.from() <= id.sequence() && id.sequence() < range.upto();
  }
}
