package iothub.hbase.queue;

import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;

/**
 * Who has appended to a queue: of each writer incarnation the last sequence and what it was answered, so that a repeat gets the first answer.
 *
 * <p>Forgets a writer when it has been silent for ten minutes and at least 32 others were heard since.
 */
final class Writers {
  static final int KEPT = 32;
  static final int MOST = 1024;
  static final long SILENT_MS = TimeUnit.MINUTES.toMillis(10);

  private final Map<Long, Entry> entries = new HashMap<>();

  record Entry(long sequence, long atMs, byte[] answer) {}

  Map<Long, Entry> entries() {
    return entries;
  }

  Entry of(long writer) {
    return entries.get(writer);
  }

  void answered(long writer, Entry entry) {
    entries.put(writer, entry);
  }

  void prune(long nowMs) {
    if (entries.size() <= KEPT) {
      return;
    }
    List<Long> oldestFirst = entries.keySet().stream().sorted(Comparator.comparingLong(writer -> entries.get(writer).atMs())).toList();
    for (long writer : oldestFirst.subList(0, entries.size() - KEPT)) {
      if (entries.size() > MOST || entries.get(writer).atMs() <= nowMs - SILENT_MS) {
        entries.remove(writer);
      }
    }
  }
}
