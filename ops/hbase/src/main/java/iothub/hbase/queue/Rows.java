package iothub.hbase.queue;

import org.apache.hadoop.hbase.util.Bytes;

/**
 * The table's families, columns and row keys. Behind a queue's {@link Key} one byte says what the row is:
 *
 * <pre>
 * 00                 m:s  the queue's state
 * 01 position 8      d:b  one message
 * 02 packet id 2     m:p  the message of an open inbound QoS 2 intent
 * 03 message id 16   m:i  the position that a QoS 2 message got
 * </pre>
 */
final class Rows {
  static final byte[] META = Bytes.toBytes("m");
  static final byte[] DATA = Bytes.toBytes("d");
  static final byte[] STATE = Bytes.toBytes("s");
  static final byte[] RECORD = Bytes.toBytes("b");
  static final byte[] PAYLOAD = Bytes.toBytes("p");
  static final byte[] POSITION = Bytes.toBytes("i");

  static final int META_ROW = 0;
  static final int MESSAGE_ROW = 1;
  static final int INTENT_ROW = 2;
  static final int ID_ROW = 3;
  static final int LAST_PACKET_ID = 65_535;
  static final int MESSAGE_ROW_BYTES = Key.BYTES + 9;

  private Rows() {}

  static byte[] meta(Key key) {
    return row(key, META_ROW).toBytes();
  }

  static byte[] message(Key key, long position) {
    return row(key, MESSAGE_ROW).i64(position).toBytes();
  }

  static byte[] intent(Key key, int packetId) {
    return row(key, INTENT_ROW).u16(packetId).toBytes();
  }

  static byte[] id(Key key, MessageId id) {
    return row(key, ID_ROW).i64(id.high()).i64(id.low()).toBytes();
  }

  /** What a row is, -1 if it is none of a queue's. */
  static int kind(byte[] row, int offset, int length) {
    return length > Key.BYTES ? row[offset + Key.BYTES] & 0xFF : -1;
  }

  /** The position in the key of a message row. */
  static long position(byte[] row, int offset) {
    long position = 0;
    for (int i = offset + Key.BYTES + 1; i < offset + MESSAGE_ROW_BYTES; i++) {
      position = position << 8 | row[i] & 0xFF;
    }
    return position;
  }

  /** The packet identifier in the key of an intent's row. */
  static int packetId(byte[] row, int offset) {
    int at = offset + Key.BYTES + 1;
    return (row[at] & 0xFF) << 8 | row[at + 1] & 0xFF;
  }

  private static Output row(Key key, int kind) {
    return key.write(new Output()).u8(kind);
  }
}
