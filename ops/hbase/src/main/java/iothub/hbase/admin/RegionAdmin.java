package iothub.hbase.admin;

import java.io.IOException;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.RegionInfo;

/**
 * What HBase's shell does to the regions of a table, where there is no shell: {@code reopen NAME} closes and opens each, {@code flush NAME} writes
 * what is in memory.
 *
 * <p>Says nothing when all went well. A failure is one line on standard error, and exit code 1.
 */
public final class RegionAdmin {
  private RegionAdmin() {}

  /** Takes a verb and a table. */
  public static void main(String[] args) {
    try (Connection connection = ConnectionFactory.createConnection(HBaseConfiguration.create()); Admin admin = connection.getAdmin()) {
      String verb = args.length == 2 ? args[0] : "";
      if (verb.equals("reopen")) {
        reopen(admin, TableName.valueOf(args[1]));
      } else if (verb.equals("flush")) {
        admin.flush(TableName.valueOf(args[1]));
      } else {
        throw new IllegalArgumentException("expected: reopen NAME, or: flush NAME");
      }
    } catch (IOException | RuntimeException e) {
      String text = String.valueOf(e.getMessage()).lines().findFirst().orElse("");
      System.err.println("RegionAdmin: " + e.getClass().getSimpleName() + ": " + text);
      System.exit(1);
    }
  }

  private static void reopen(Admin admin, TableName name) throws IOException {
    for (RegionInfo region : admin.getRegions(name)) {
      admin.unassign(region.getRegionName());
      admin.assign(region.getRegionName());
    }
  }
}
