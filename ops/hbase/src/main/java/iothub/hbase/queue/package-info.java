/**
 * The virtual queues inside HBase's region servers: the {@code RegionObserver} of driver {@code hbase} belongs here.
 *
 * <p>It is loaded by its class name from a table descriptor. On a cluster the jar of this project is the only one of ours that the region servers see,
 * so nothing in this package may use {@link iothub.hbase.server} or a library that HBase does not bring along.
 */
package iothub.hbase.queue;
