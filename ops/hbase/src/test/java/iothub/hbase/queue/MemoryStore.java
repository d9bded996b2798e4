package iothub.hbase.queue;

import java.io.IOException;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.NavigableMap;
import java.util.TreeMap;

/** A region in plain maps: what is committed is there at once, and a commit can be made to fail. */
final class MemoryStore implements Store {
  final Map<Key, byte[]> states = new HashMap<>();
  final Map<Key, Long> writtenAt = new HashMap<>();
  final Map<Key, NavigableMap<Long, Cell>> records = new HashMap<>();
  final Map<Key, Map<MessageId, Cell>> ids = new HashMap<>();
  final Map<Key, Map<Integer, byte[]>> payloads = new HashMap<>();
  int commits;
  int scanned;
  boolean isBroken;

  /** A value and when it was written. */
  record Cell(byte[] value, long at) {}

  @Override
  public Lock lock(Key key) {
    return () -> {};
  }

  @Override
  public byte[] state(Key key) {
    return states.get(key);
  }

  @Override
  public Remains remains(Key key) {
    return new Remains(writtenAt.getOrDefault(key, 0L), List.copyOf(payloads.getOrDefault(key, Map.of()).keySet()));
  }

  @Override
  public void scan(Key key, long born, long first, long last, Visitor visitor) throws IOException {
    if (first > last) {
      return;
    }
    NavigableMap<Long, Cell> range = records.getOrDefault(key, new TreeMap<>()).subMap(first, true, last, true);
    for (Map.Entry<Long, Cell> each : range.entrySet()) {
      scanned++;
      boolean isShown = each.getValue().at() >= born;
      if (isShown && !visitor.see(each.getKey(), QueuedRecord.stored(each.getValue().value()))) {
        return;
      }
    }
  }

  @Override
  public Remembered remembered(Key key, long born, MessageId id) {
    Cell cell = ids.getOrDefault(key, Map.of()).get(id);
    return cell == null || cell.at() < born ? null : Remembered.read(cell.value());
  }

  @Override
  public void commit(Collection<Queue> changed) throws IOException {
    if (isBroken) {
      throw new IOException("the log cannot be written");
    }
    commits++;
    changed.forEach(this::commit);
  }

  private void commit(Queue queue) {
    Key key = queue.key();
    long at = queue.state().timestamp;
    states.put(key, StateCodec.encode(queue.state()));
    writtenAt.put(key, at);
    queue.forEachRecord((position, record) ->
        set(records.computeIfAbsent(key, none -> new TreeMap<>()), position, record == null ? null : new Cell(record.bytes(), at)));
    queue.forEachId((id, remembered) ->
        set(ids.computeIfAbsent(key, none -> new HashMap<>()), id, remembered == null ? null : new Cell(remembered.toBytes(), at)));
    queue.forEachPayload((packetId, payload) -> set(payloads.computeIfAbsent(key, none -> new HashMap<>()), packetId, payload));
  }

  private static <K, V> void set(Map<K, V> map, K key, V value) {
    if (value == null) {
      map.remove(key);
    } else {
      map.put(key, value);
    }
  }
}
