package iothub.hbase.queue;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.NavigableSet;
import java.util.Optional;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.CellUtil;
import org.apache.hadoop.hbase.DoNotRetryIOException;
import org.apache.hadoop.hbase.KeyValue;
import org.apache.hadoop.hbase.client.Append;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.RegionInfo;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.coprocessor.ObserverContext;
import org.apache.hadoop.hbase.coprocessor.RegionCoprocessor;
import org.apache.hadoop.hbase.coprocessor.RegionCoprocessorEnvironment;
import org.apache.hadoop.hbase.coprocessor.RegionObserver;
import org.apache.hadoop.hbase.regionserver.FlushLifeCycleTracker;
import org.apache.hadoop.hbase.regionserver.InternalScanner;
import org.apache.hadoop.hbase.regionserver.Region;
import org.apache.hadoop.hbase.regionserver.RegionScanner;
import org.apache.hadoop.hbase.regionserver.ScanType;
import org.apache.hadoop.hbase.regionserver.Store;
import org.apache.hadoop.hbase.regionserver.compactions.CompactionLifeCycleTracker;
import org.apache.hadoop.hbase.regionserver.compactions.CompactionRequest;
import org.apache.hadoop.hbase.util.Bytes;
import org.apache.hadoop.hbase.wal.WALEdit;
import org.apache.hadoop.hbase.wal.WALKey;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Virtual queues inside a region server: an append on column {@code m:mul} is a request of operations on queues, a get of {@code m:deq}, {@code
 * m:sta} or
 * {@code m:due} reads them. One instance per open region.
 *
 * <p>Knows HBase's hooks; what is done lies in {@link Batch}, {@link Pages}, {@link DueRecords} and {@link Eviction}. No unchecked exception leaves a
 * hook: HBase
 * would take its server down for it.
 */
public final class QueueObserver implements RegionCoprocessor, RegionObserver {
  private static final Logger LOG = LoggerFactory.getLogger(QueueObserver.class);
  private static final byte[] MULTI = Bytes.toBytes("mul");
  private static final String PAGE = "deq";
  private static final String STATS = "sta";
  private static final String DUE = "due";
  private static final String ASKED = "request";

  private final Marks marks = new Marks();
  private final StateCache states = new StateCache();
  private final Eviction eviction = new Eviction(marks);

  @Override
  public Optional<RegionObserver> getRegionObserver() {
    return Optional.of(this);
  }

  // --- requests

  @Override
  public Result preAppend(ObserverContext<RegionCoprocessorEnvironment> context, Append append, WALEdit edit) throws IOException {
    byte[] answer = guarded("append", () -> {
      Request request = Request.parse(asked(append));
      return new Batch(store(context), marks, System::currentTimeMillis).run(request);
    });
    context.bypass();
    return Result.create(List.of(cell(append.getRow(), MULTI, answer)));
  }

  private static byte[] asked(Append append) throws RefusedException {
    List<Cell> cells = append.getFamilyCellMap().get(Rows.META);
    boolean isOurs = append.size() == 1 && cells != null && CellUtil.matchingQualifier(cells.get(0), MULTI);
    if (!isOurs) {
      throw new RefusedException("a table of queues takes appends of one cell in column m:mul only");
    }
    return CellUtil.cloneValue(cells.get(0));
  }

  @Override
  public void preGetOp(ObserverContext<RegionCoprocessorEnvironment> context, Get get, List<Cell> result) throws IOException {
    String column = column(get);
    if (column == null) {
      return;
    }
    byte[] answer = guarded("get", () -> read(context, get, column));
    context.bypass();
    if (answer != null) {
      result.add(cell(get.getRow(), Bytes.toBytes(column), answer));
    }
  }

  /** Null if this is an ordinary get. */
  private static String column(Get get) {
    Map<byte[], NavigableSet<byte[]>> families = get.getFamilyMap();
    NavigableSet<byte[]> columns = families.size() == 1 ? families.get(Rows.META) : null;
    if (columns == null || columns.size() != 1 || columns.first().length != MULTI.length) {
      return null;
    }
    String column = Bytes.toString(columns.first());
    return column.equals(PAGE) || column.equals(STATS) || column.equals(DUE) ? column : null;
  }

  private byte[] read(ObserverContext<RegionCoprocessorEnvironment> context, Get get, String column) throws IOException {
    if (column.equals(DUE)) {
      return new DueRecords(store(context), marks).look(asked(get));
    }
    byte[] row = get.getRow();
    if (row.length != Key.BYTES + 1 || row[Key.BYTES] != Rows.META_ROW) {
      throw new RefusedException("m:" + column + " is asked of a queue's meta row (its 12 bytes and 00), not of " + Bytes.toStringBinary(row));
    }
    Pages pages = new Pages(store(context));
    Key key = Key.of(row, 0);
    return column.equals(STATS) ? pages.stats(key) : pages.page(key, asked(get));
  }

  private static byte[] asked(Get get) throws RefusedException {
    byte[] asked = get.getAttribute(ASKED);
    if (asked == null) {
      throw new RefusedException("this get needs an attribute '" + ASKED + "'");
    }
    return asked;
  }

  // --- what vanishes

  @Override
  public InternalScanner preMemStoreCompactionCompact(ObserverContext<RegionCoprocessorEnvironment> context, Store store, InternalScanner scanner) {
    return eviction.of(scanner, System.currentTimeMillis());
  }

  @Override
  public InternalScanner preFlush(
      ObserverContext<RegionCoprocessorEnvironment> context, Store store, InternalScanner scanner, FlushLifeCycleTracker tracker) {
    return eviction.of(scanner, System.currentTimeMillis());
  }

  @Override
  public InternalScanner preCompact(
      ObserverContext<RegionCoprocessorEnvironment> context, Store store, InternalScanner scanner, ScanType type,
      CompactionLifeCycleTracker tracker, CompactionRequest request) {
    boolean isOfAll = type == ScanType.COMPACT_DROP_DELETES;
    long nowMs = System.currentTimeMillis();
    return isOfAll ? eviction.ofAll(scanner, nowMs) : eviction.of(scanner, nowMs);
  }

  /** Refills the marks: without them nothing would vanish until a queue is next touched. */
  @Override
  public void postOpen(ObserverContext<RegionCoprocessorEnvironment> context) {
    Region region = context.getEnvironment().getRegion();
    learned(region.getRegionInfo(), () -> refill(region));
  }

  /** What the log brings back after a crash is flushed before {@link #postOpen}: the marks for that flush come from the log as well. */
  @Override
  @SuppressWarnings("deprecation") // the only hook that sees an entry of the log
  public void preWALRestore(
      ObserverContext<? extends RegionCoprocessorEnvironment> context, RegionInfo region, WALKey key, WALEdit edit) {
    learned(region, () -> {
      edit.getCells().stream().filter(cell -> CellUtil.matchingColumn(cell, Rows.META, Rows.STATE)).forEach(this::mark);
      return null;
    });
  }

  /** A region must open, also when its marks cannot be had. */
  private static void learned(RegionInfo region, Work work) {
    try {
      guarded("open", work);
    } catch (IOException e) {
      LOG.warn("states of queues in {} could not be read; consumed rows stay until they are", region.getRegionNameAsString(), e);
    }
  }

  private byte[] refill(Region region) throws IOException {
    List<Cell> cells = new ArrayList<>();
    try (RegionScanner scanner = region.getScanner(new Scan().addColumn(Rows.META, Rows.STATE))) {
      boolean isMore = true;
      while (isMore) {
        isMore = scanner.next(cells);
        cells.forEach(this::mark);
        cells.clear();
      }
    }
    LOG.info("{} queues in {}", marks.size(), region.getRegionInfo().getRegionNameAsString());
    return null;
  }

  private void mark(Cell cell) {
    byte[] row = cell.getRowArray();
    if (Rows.kind(row, cell.getRowOffset(), cell.getRowLength()) != Rows.META_ROW) {
      return;
    }
    Key key = Key.of(row, cell.getRowOffset());
    try {
      marks.put(key, Mark.of(StateCodec.decode(key, CellUtil.cloneValue(cell))));
    } catch (RefusedException e) {
      LOG.warn("rows of {} are kept: {}", key, e.getMessage());
    }
  }

  // --- the edge

  private iothub.hbase.queue.Store store(ObserverContext<RegionCoprocessorEnvironment> context) {
    return new RegionStore(context.getEnvironment().getRegion(), states);
  }

  private static Cell cell(byte[] row, byte[] column, byte[] value) {
    return new KeyValue(row, Rows.META, column, System.currentTimeMillis(), value);
  }

  /** What a hook does. */
  @FunctionalInterface
  private interface Work {
    byte[] run() throws IOException;
  }

  private static byte[] guarded(String hook, Work work) throws IOException {
    try {
      return work.run();
    } catch (RefusedException e) {
      throw new DoNotRetryIOException("refused: " + e.getMessage()); // a class that gateways know, which do not have this jar
    } catch (RuntimeException | LinkageError | AssertionError | StackOverflowError e) {
      LOG.error("defect in {}; the request was refused and nothing of it was written", hook, e);
      throw new DoNotRetryIOException("defect in the queue coprocessor (" + hook + "): " + e, e);
    }
  }
}
