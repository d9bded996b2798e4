/**
 * What Thrift 1 cannot say: tables with splits, settings of families and a coprocessor. Run by {@code iothub hbase create-tables} on HBase's own
 * class path.
 */
package iothub.hbase.admin;
