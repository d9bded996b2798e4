package iothub.hbase.admin;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.stream.Collectors;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.NamespaceDescriptor;
import org.apache.hadoop.hbase.NamespaceExistException;
import org.apache.hadoop.hbase.TableExistsException;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptor;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptorBuilder;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.RegionInfo;
import org.apache.hadoop.hbase.client.TableDescriptor;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;
import org.apache.hadoop.hbase.util.Bytes;

/**
 * Creates and describes tables. Knows none of ours: what is wanted comes on standard input, what is there goes to standard output, both as lines
 * of words separated by tabs.
 *
 * <pre>
 *   table NAME | family NAME | set KEY VALUE (of the family above, else of the table) | split KEY (hexadecimal)
 * </pre>
 *
 * <p>{@code create} makes all tables, and their namespaces, and answers {@code created NAME} for each, or {@code exists NAME} when somebody else was
 * quicker. When one of them is there already it makes none, and prints those that are: whoever asked looks at them first. A failure is one line on
 * standard error, and exit code 1.
 */
public final class TableAdmin {
  private static final long CREATION_S = 240; // of one table; the program that runs this waits for five minutes

  private final Admin admin;
  private final PrintStream out;

  private TableAdmin(Admin admin, PrintStream out) {
    this.admin = admin;
    this.out = out;
  }

  /** Takes a verb and its arguments. */
  public static void main(String[] args) {
    PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
    int code = run(args, System.in, out, System.err);
    if (code != 0) {
      System.exit(code);
    }
  }

  /** Does what {@code main} does with the input and the output of the process, and returns the exit code. */
  public static int run(String[] args, InputStream in, PrintStream out, PrintStream err) {
    try (Connection connection = ConnectionFactory.createConnection(HBaseConfiguration.create()); Admin admin = connection.getAdmin()) {
      if (args.length == 1 && args[0].equals("create")) {
        new TableAdmin(admin, out).create(read(in));
      } else {
        throw new IllegalArgumentException("expected: create");
      }
      return 0;
    } catch (IOException | RuntimeException e) {
      String text = String.valueOf(e.getMessage()).lines().findFirst().orElse("");
      err.println("TableAdmin: " + e.getClass().getSimpleName() + ": " + text);
      return 1;
    } finally {
      out.flush();
    }
  }

  private void create(List<Wanted> all) throws IOException {
    List<TableDescriptor> there = new ArrayList<>();
    for (Wanted wanted : all) {
      if (admin.tableExists(wanted.name)) {
        there.add(admin.getDescriptor(wanted.name));
      }
    }
    for (TableDescriptor table : there) {
      describe(table);
    }
    if (there.isEmpty()) {
      createAll(all);
    }
  }

  /** Makes them side by side: each takes the master's time for its regions one after the other. */
  private void createAll(List<Wanted> all) throws IOException {
    Map<TableName, Future<Void>> begun = new LinkedHashMap<>();
    for (Wanted wanted : all) {
      createNamespace(wanted.name.getNamespaceAsString());
    }
    for (Wanted wanted : all) {
      try {
        begun.put(wanted.name, admin.createTableAsync(wanted.descriptor(), wanted.splits.isEmpty() ? null : wanted.splits.toArray(new byte[0][])));
      } catch (TableExistsException e) {
        print("exists", wanted.name.getNameAsString());
      }
    }
    for (Map.Entry<TableName, Future<Void>> each : begun.entrySet()) {
      print(await(each.getValue()) ? "created" : "exists", each.getKey().getNameAsString());
    }
  }

  /** Returns false when somebody else was quicker. */
  private static boolean await(Future<Void> creation) throws IOException {
    try {
      creation.get(CREATION_S, TimeUnit.SECONDS);
      return true;
    } catch (ExecutionException e) {
      if (e.getCause() instanceof TableExistsException) {
        return false;
      }
      throw e.getCause() instanceof IOException ? (IOException) e.getCause() : new IOException(e.getCause());
    } catch (TimeoutException e) {
      throw new IOException("not created within " + CREATION_S + " s", e);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw new IOException("interrupted", e);
    }
  }

  private void createNamespace(String name) throws IOException {
    List<String> known = List.of(admin.listNamespaces());
    if (!known.contains(name)) {
      try {
        admin.createNamespace(NamespaceDescriptor.create(name).build());
      } catch (NamespaceExistException e) {
        return; // somebody was quicker
      }
    }
  }

  private void describe(TableDescriptor table) throws IOException {
    print("table", table.getTableName().getNameAsString());
    table.getValues().forEach((key, value) -> print("set", key.toString(), Bytes.toString(value.copyBytes())));
    for (ColumnFamilyDescriptor family : table.getColumnFamilies()) {
      print("family", family.getNameAsString());
      family.getValues().forEach((key, value) -> print("set", Bytes.toString(key.copyBytes()), Bytes.toString(value.copyBytes())));
    }
    for (RegionInfo region : admin.getRegions(table.getTableName())) {
      if (region.getStartKey().length > 0) {
        print("split", Bytes.toHex(region.getStartKey()));
      }
    }
  }

  private void print(String... words) {
    out.println(String.join("\t", words));
  }

  private static List<Wanted> read(InputStream in) throws IOException {
    List<Wanted> all = new ArrayList<>();
    BufferedReader lines = new BufferedReader(new InputStreamReader(in, StandardCharsets.UTF_8));
    for (String line : lines.lines().collect(Collectors.toList())) {
      String[] words = line.split("\t", -1);
      if (words[0].equals("table") && words.length == 2) {
        all.add(new Wanted(TableName.valueOf(words[1])));
      } else if (all.isEmpty() || !all.get(all.size() - 1).take(words)) {
        throw new IOException("unexpected line: " + line);
      }
    }
    return all;
  }

  /** One table as it is read, line by line. */
  private static final class Wanted {
    private final TableName name;
    private final TableDescriptorBuilder table;
    private final List<Map.Entry<String, ColumnFamilyDescriptorBuilder>> families = new ArrayList<>();
    private final List<byte[]> splits = new ArrayList<>();

    Wanted(TableName name) {
      this.name = name;
      this.table = TableDescriptorBuilder.newBuilder(name);
    }

    boolean take(String[] words) {
      if (words[0].equals("family") && words.length == 2) {
        families.add(Map.entry(words[1], ColumnFamilyDescriptorBuilder.newBuilder(Bytes.toBytes(words[1]))));
      } else if (words[0].equals("set") && words.length == 3 && families.isEmpty()) {
        table.setValue(words[1], words[2]);
      } else if (words[0].equals("set") && words.length == 3) {
        families.get(families.size() - 1).getValue().setValue(words[1], words[2]);
      } else if (words[0].equals("split") && words.length == 2) {
        splits.add(Bytes.fromHex(words[1]));
      } else {
        return false;
      }
      return true;
    }

    TableDescriptor descriptor() {
      families.forEach(family -> table.setColumnFamily(family.getValue().build()));
      return table.build();
    }
  }
}
