package iothub.hbase.queue;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.CellUtil;
import org.apache.hadoop.hbase.HConstants;
import org.apache.hadoop.hbase.client.Delete;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.Mutation;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.regionserver.Region;
import org.apache.hadoop.hbase.regionserver.RegionScanner;

/** The rows of one region. A commit is one entry of the write-ahead log, synced, and visible when it returns. */
final class RegionStore implements Store {
  private final Region region;
  private final StateCache cache;

  RegionStore(Region region, StateCache cache) {
    this.region = region;
    this.cache = cache;
  }

  @Override
  public Lock lock(Key key) throws IOException {
    byte[] row = Rows.meta(key);
    if (!region.getRegionInfo().containsRow(row)) {
      throw new RefusedException(key + " is not in region " + region.getRegionInfo().getEncodedName() + ": one call takes queues of one region");
    }
    return region.getRowLock(row, false)::release;
  }

  @Override
  public byte[] state(Key key) throws IOException {
    byte[] cached = cache.get(key);
    return cached != null ? cached : region.get(new Get(Rows.meta(key)).addColumn(Rows.META, Rows.STATE)).value();
  }

  @Override
  public Remains remains(Key key) throws IOException {
    Result state = region.get(new Get(Rows.meta(key)).addColumn(Rows.META, Rows.STATE));
    Scan scan = new Scan().withStartRow(Rows.intent(key, 0)).withStopRow(Rows.intent(key, Rows.LAST_PACKET_ID), true);
    List<Integer> packetIds = new ArrayList<>();
    List<Cell> cells = new ArrayList<>();
    try (RegionScanner scanner = region.getScanner(scan.addColumn(Rows.META, Rows.PAYLOAD))) {
      boolean isMore = true;
      while (isMore) {
        isMore = scanner.next(cells);
        cells.forEach(cell -> packetIds.add(Rows.packetId(cell.getRowArray(), cell.getRowOffset())));
        cells.clear();
      }
    }
    return new Remains(state.isEmpty() ? 0 : state.rawCells()[0].getTimestamp(), packetIds);
  }

  @Override
  public Remembered remembered(Key key, long born, MessageId id) throws IOException {
    Result found = region.get(new Get(Rows.id(key, id)).addColumn(Rows.META, Rows.POSITION).setTimeRange(born, Long.MAX_VALUE));
    return found.isEmpty() ? null : Remembered.read(found.value());
  }

  @Override
  public void scan(Key key, long born, long first, long last, Visitor visitor) throws IOException {
    if (first > last) {
      return;
    }
    Scan scan = new Scan().withStartRow(Rows.message(key, first)).withStopRow(Rows.message(key, last), true);
    scan.addColumn(Rows.DATA, Rows.RECORD).setTimeRange(born, Long.MAX_VALUE);
    List<Cell> cells = new ArrayList<>();
    try (RegionScanner scanner = region.getScanner(scan)) {
      boolean isMore = true;
      while (isMore) {
        isMore = scanner.next(cells);
        for (Cell cell : cells) {
          isMore &= see(cell, visitor);
        }
        cells.clear();
      }
    }
  }

  private static boolean see(Cell cell, Visitor visitor) throws IOException {
    long position = Rows.position(cell.getRowArray(), cell.getRowOffset());
    return visitor.see(position, QueuedRecord.stored(CellUtil.cloneValue(cell)));
  }

  @Override
  public void commit(Collection<Queue> changed) throws IOException {
    List<Mutation> mutations = new ArrayList<>();
    Map<Key, byte[]> states = new LinkedHashMap<>();
    for (Queue queue : changed) {
      byte[] state = StateCodec.encode(queue.state());
      states.put(queue.key(), state);
      mutations.add(new Put(Rows.meta(queue.key()), queue.state().timestamp).addColumn(Rows.META, Rows.STATE, state));
      addRows(queue, mutations);
    }
    states.keySet().forEach(cache::remove); // whoever fails below leaves it open what is stored
    List<byte[]> locked = states.keySet().stream().map(Rows::meta).toList();
    region.mutateRowsWithLocks(mutations, locked, HConstants.NO_NONCE, HConstants.NO_NONCE);
    states.forEach(cache::put);
  }

  private static void addRows(Queue queue, List<Mutation> mutations) {
    Key key = queue.key();
    long at = queue.state().timestamp;
    queue.forEachRecord((position, record) ->
        mutations.add(change(Rows.message(key, position), Rows.DATA, Rows.RECORD, at, record == null ? null : record.bytes())));
    queue.forEachId((id, remembered) ->
        mutations.add(change(Rows.id(key, id), Rows.META, Rows.POSITION, at, remembered == null ? null : remembered.toBytes())));
    queue.forEachPayload((packetId, payload) ->
        mutations.add(change(Rows.intent(key, packetId), Rows.META, Rows.PAYLOAD, at, payload)));
  }

  private static Mutation change(byte[] row, byte[] family, byte[] column, long at, byte[] value) {
    return value == null ? new Delete(row).addColumns(family, column, at) : new Put(row, at).addColumn(family, column, value);
  }
}
