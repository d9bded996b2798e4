package iothub.hbase.admin;

import java.io.IOException;
import java.io.PrintStream;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.HConstants;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.RegionInfo;

/**
 * What HBase's shell does to the regions of a table, where there is no shell: {@code reopen NAME TIMES} closes and opens each, round after round,
 * {@code flush NAME} writes what is in memory.
 *
 * <p>Says nothing when all went well. A failure is one line on standard error, and exit code 1.
 */
public final class RegionAdmin {
  private static final int PATIENCE_MS = 120_000; // of one region on a busy machine

  private RegionAdmin() {}

  /** Takes a verb, a table, and how often. */
  public static void main(String[] args) {
    int code = run(args, System.err);
    if (code != 0) {
      System.exit(code);
    }
  }

  /** Does what {@code main} does, and returns the exit code. */
  public static int run(String[] args, PrintStream err) {
    Configuration conf = HBaseConfiguration.create(); // its time-outs are those of a gateway's calls, which clients wait for
    conf.setInt(HConstants.HBASE_RPC_TIMEOUT_KEY, PATIENCE_MS);
    conf.setInt(HConstants.HBASE_CLIENT_OPERATION_TIMEOUT, PATIENCE_MS);
    try (Connection connection = ConnectionFactory.createConnection(conf); Admin admin = connection.getAdmin()) {
      if (args.length == 3 && args[0].equals("reopen")) {
        for (int times = Integer.parseInt(args[2]); times > 0; times--) {
          reopen(admin, TableName.valueOf(args[1]));
        }
      } else if (args.length == 2 && args[0].equals("flush")) {
        admin.flush(TableName.valueOf(args[1]));
      } else {
        throw new IllegalArgumentException("expected: reopen NAME TIMES, or: flush NAME");
      }
      return 0;
    } catch (IOException | RuntimeException e) {
      String text = String.valueOf(e.getMessage()).lines().findFirst().orElse("");
      err.println("RegionAdmin: " + e.getClass().getSimpleName() + ": " + text);
      return 1;
    }
  }

  private static void reopen(Admin admin, TableName name) throws IOException {
    for (RegionInfo region : admin.getRegions(name)) {
      try {
        admin.unassign(region.getRegionName());
      } finally {
        admin.assign(region.getRegionName()); // also when nobody waited for the end of the other: a region that stays closed answers nobody
      }
    }
  }
}
