package iothub.hbase.server;

import java.io.IOException;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.util.Progressable;

/**
 * The local file system, on which {@code hflush} means {@code fsync}.
 *
 * <p>HDFS keeps what was flushed in the memory of three machines; here there is one, and a flush would only reach its page cache. Setting {@code
 * hbase.wal.hsync}
 * alone does not do it: the Thrift gateway asks for SYNC_WAL, a mere flush, with every put and checkAndPut, whatever that setting says.
 */
public final class SyncedFileSystem extends LocalFileSystem {
  /** Called by Hadoop, for {@code fs.file.impl}. */
  public SyncedFileSystem() {
    super(new Raw());
  }

  private static final class Raw extends RawLocalFileSystem {
    @Override
    public FSDataOutputStream create(Path path, boolean overwrite, int buffer, short copies, long block, Progressable progress) throws IOException {
      return new Synced(super.create(path, overwrite, buffer, copies, block, progress));
    }

    @Override
    public FSDataOutputStream create(
        Path path, FsPermission permission, boolean overwrite, int buffer, short copies, long block, Progressable progress) throws IOException {
      return new Synced(super.create(path, permission, overwrite, buffer, copies, block, progress));
    }

    @Override
    public FSDataOutputStream createNonRecursive(
        Path path, FsPermission permission, boolean overwrite, int buffer, short copies, long block, Progressable progress) throws IOException {
      return new Synced(super.createNonRecursive(path, permission, overwrite, buffer, copies, block, progress));
    }
  }

  private static final class Synced extends FSDataOutputStream {
    Synced(FSDataOutputStream inner) throws IOException {
      super(inner, null, inner.getPos());
    }

    @Override
    public void hflush() throws IOException {
      hsync();
    }
  }
}
