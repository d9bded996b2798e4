package iothub.hbase.queue;

import java.util.Arrays;

/** Bytes that grow: numbers are written big-endian. */
final class Output {
  private byte[] bytes = new byte[256];
  private int size;

  Output u8(int value) {
    return number(1, value);
  }

  Output u16(int value) {
    return number(2, value);
  }

  Output i32(int value) {
    return number(4, value);
  }

  Output i64(long value) {
    return number(8, value);
  }

  Output bytes(byte[] more) {
    room(more.length);
    System.arraycopy(more, 0, bytes, size, more.length);
    size += more.length;
    return this;
  }

  int size() {
    return size;
  }

  byte[] toBytes() {
    return Arrays.copyOf(bytes, size);
  }

  private Output number(int width, long value) {
    room(width);
    for (int shift = 8 * (width - 1); shift >= 0; shift -= 8) {
      bytes[size++] = (byte) (value >>> shift);
    }
    return this;
  }

  private void room(int more) {
    if (more > bytes.length - size) {
      bytes = Arrays.copyOf(bytes, Math.max(2 * bytes.length, Math.addExact(size, more)));
    }
  }
}
