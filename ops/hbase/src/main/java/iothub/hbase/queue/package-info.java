/**
 * The virtual queues inside HBase's region servers: the {@code RegionObserver} of driver {@code hbase}.
 *
 * <p>Reading order: {@link iothub.hbase.queue.QueueObserver} (the hooks), {@code Request} and {@code Batch} (one call), {@code Append}, {@code Moves}
 * and the other
 * operations, {@code Queue} and {@code State} (one queue while it is changed), {@code Mark} and {@code Eviction} (what vanishes). The bytes are
 * described in
 * {@code docs/reference/coprocessor.md}.
 *
 * <p>It is loaded by its class name from a table descriptor. On a cluster the jar of this project is the only one of ours that the region servers
 * see,
 * so nothing in this package may use {@link iothub.hbase.server} or a library that HBase does not bring along.
 */
package iothub.hbase.queue;
