package iothub.hbase.server;

import java.io.File;
import java.io.IOException;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.HConstants;
import org.apache.hadoop.hbase.LocalHBaseCluster;
import org.apache.hadoop.hbase.master.HMaster;
import org.apache.hadoop.hbase.thrift.ThriftServer;
import org.apache.hadoop.hbase.zookeeper.MiniZooKeeperCluster;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * ZooKeeper, one master, one region server and the Thrift 1 gateway in one JVM, on a folder of the local file system.
 *
 * <p>Everything comes from {@code hbase-site.xml} on the class path, whose {@code ${iothub.*}} are system properties of this JVM: one file serves any
 * folder and any ports. {@link AdminSocket} runs our programs in it. Ends with code 1 as soon as one of the parts has ended: half a server would
 * answer nothing and never be started again.
 */
public final class SingleServer {
  private static final Logger LOG = LoggerFactory.getLogger(SingleServer.class);
  private static final long MASTER_START_MS = TimeUnit.SECONDS.toMillis(120);
  private static final long LOOK_MS = 50;

  private final Configuration conf;
  private final MiniZooKeeperCluster zooKeeper;
  private final LocalHBaseCluster cluster;
  private final ThriftServer gateway;
  private volatile boolean isStopping;

  private SingleServer(Configuration conf) throws IOException, InterruptedException {
    this.conf = conf;
    this.zooKeeper = startZooKeeper(conf);
    this.cluster = new LocalHBaseCluster(conf, 1, 1);
    this.gateway = new ThriftServer(conf);
  }

  /** Takes no arguments; see {@code ops/hbase/conf/hbase-site.xml}. */
  public static void main(String[] args) {
    try {
      Configuration conf = HBaseConfiguration.create();
      conf.setClass("fs.file.impl", SyncedFileSystem.class, FileSystem.class); // here and not in the file, which HBase's own tools read too
      SingleServer server = new SingleServer(conf);
      Runtime.getRuntime().addShutdownHook(new Thread(server::stop, "stop"));
      server.run();
    } catch (Exception e) {
      LOG.error("HBase cannot run here", e);
      System.exit(1);
    }
  }

  private static MiniZooKeeperCluster startZooKeeper(Configuration conf) throws IOException, InterruptedException {
    int port = conf.getInt(HConstants.ZOOKEEPER_CLIENT_PORT, 0);
    MiniZooKeeperCluster zooKeeper = new MiniZooKeeperCluster(conf);
    zooKeeper.setDefaultClientPort(port);
    int taken = zooKeeper.startup(new File(conf.get(HConstants.ZOOKEEPER_DATA_DIR)));
    if (taken != port) { // it silently takes the next free one, where nobody would look for it
      zooKeeper.shutdown();
      throw new IOException("port " + port + " for ZooKeeper is in use; choose another one");
    }
    return zooKeeper;
  }

  private void run() throws Exception {
    cluster.startup();
    awaitMaster();
    LOG.info("HBase is up on ZooKeeper {}; starting the gateway", conf.get(HConstants.ZOOKEEPER_CLIENT_PORT));
    AdminSocket.open();
    watch("master", cluster.getMasters().get(0));
    watch("region server", cluster.getRegionServers().get(0));
    gateway.run(new String[0]); // until it is stopped
    endBecauseOf("gateway");
  }

  private void awaitMaster() throws IOException, InterruptedException {
    long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(MASTER_START_MS);
    while (System.nanoTime() < deadline) {
      HMaster master = cluster.getActiveMaster();
      if (master != null && master.isInitialized()) {
        return;
      }
      if (cluster.getLiveMasters().isEmpty() || cluster.getLiveRegionServers().isEmpty()) {
        throw new IOException("master or region server ended while starting; the log above says why");
      }
      Thread.sleep(LOOK_MS);
    }
    throw new IOException("the master was not ready within " + MASTER_START_MS / 1000 + " s");
  }

  private void watch(String part, Thread thread) {
    Thread watcher = new Thread(() -> {
      try {
        thread.join();
        endBecauseOf(part);
      } catch (InterruptedException e) {
        Thread.currentThread().interrupt();
      }
    }, "watch " + part);
    watcher.setDaemon(true);
    watcher.start();
  }

  private void endBecauseOf(String part) {
    if (!isStopping) {
      LOG.error("the {} has ended by itself; ending all", part);
      System.exit(1);
    }
  }

  private void stop() {
    isStopping = true;
    gateway.stop();
    cluster.shutdown();
    cluster.join();
    try {
      zooKeeper.shutdown();
    } catch (IOException e) {
      LOG.warn("ZooKeeper did not stop cleanly", e);
    }
    LOG.info("HBase has stopped");
  }
}
