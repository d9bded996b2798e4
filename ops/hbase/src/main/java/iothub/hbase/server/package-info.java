/**
 * A whole HBase in one JVM, for tests and for development. Knows nothing of queues; nothing here runs on a real cluster.
 */
package iothub.hbase.server;
