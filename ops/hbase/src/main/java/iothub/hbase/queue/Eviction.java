package iothub.hbase.queue;

import java.io.IOException;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.function.Predicate;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.CellUtil;
import org.apache.hadoop.hbase.regionserver.InternalScanner;
import org.apache.hadoop.hbase.regionserver.ScannerContext;

/**
 * What an in-memory compaction, a flush or a compaction leaves out: records below the floor, rows of dropped queues, message ids that are forgotten.
 *
 * <p>Looks at cells and {@link Marks} only: the region must not be read while it closes. What it does not understand it keeps.
 */
final class Eviction {
  static final long DROPPED_KEPT_MS = TimeUnit.DAYS.toMillis(30);

  private final Marks marks;

  Eviction(Marks marks) {
    this.marks = marks;
  }

  InternalScanner of(InternalScanner scanner, long nowMs) {
    return new Filtered(scanner, cell -> isGone(cell, nowMs));
  }

  /** {@code nowMs}: of a compaction that sees every file; the marks of queues that were dropped long ago go as well. */
  InternalScanner ofAll(InternalScanner scanner, long nowMs) {
    return new Filtered(scanner, cell -> isGone(cell, nowMs) || isOldDrop(cell, nowMs));
  }

  boolean isGone(Cell cell, long nowMs) {
    byte[] row = cell.getRowArray();
    int at = cell.getRowOffset();
    int kind = Rows.kind(row, at, cell.getRowLength());
    if (kind <= Rows.META_ROW) {
      return false;
    }
    Mark mark = marks.of(Key.of(row, at));
    if (mark == null) {
      return false;
    }
    long writtenAt = cell.getTimestamp();
    return switch (kind) {
      case Rows.MESSAGE_ROW -> cell.getRowLength() == Rows.MESSAGE_ROW_BYTES && mark.hasConsumed(Rows.position(row, at), writtenAt);
      case Rows.INTENT_ROW -> mark.isFromBefore(writtenAt);
      case Rows.ID_ROW -> mark.isFromBefore(writtenAt) || isForgotten(mark, cell, nowMs);
      default -> false;
    };
  }

  private static boolean isForgotten(Mark mark, Cell cell, long nowMs) {
    boolean isPut = cell.getType() == Cell.Type.Put;
    return isPut && mark.hasForgotten(Remembered.read(CellUtil.cloneValue(cell)), cell.getTimestamp(), nowMs);
  }

  private static boolean isOldDrop(Cell cell, long nowMs) {
    boolean isState = Rows.kind(cell.getRowArray(), cell.getRowOffset(), cell.getRowLength()) == Rows.META_ROW;
    boolean isOld = cell.getTimestamp() < nowMs - DROPPED_KEPT_MS;
    return isState && isOld && cell.getType() == Cell.Type.Put && StateCodec.isDropped(CellUtil.cloneValue(cell));
  }

  /** A scanner without the cells that are gone. A batch may come out empty with more to follow; its users take that. */
  private static final class Filtered implements InternalScanner {
    private final InternalScanner inner;
    private final Predicate<Cell> isGone;

    Filtered(InternalScanner inner, Predicate<Cell> isGone) {
      this.inner = inner;
      this.isGone = isGone;
    }

    @Override
    public boolean next(List<Cell> cells, ScannerContext context) throws IOException {
      int before = cells.size();
      boolean isMore = inner.next(cells, context);
      cells.subList(before, cells.size()).removeIf(isGone);
      return isMore;
    }

    @Override
    public void close() throws IOException {
      inner.close();
    }
  }
}
