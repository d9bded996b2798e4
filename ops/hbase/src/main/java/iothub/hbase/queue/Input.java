package iothub.hbase.queue;

import java.util.Arrays;

/**
 * Reads numbers (big-endian) and bytes from a bounded part of an array.
 *
 * <p>Never reads past its end: whoever asks gives the name of the field, and the refusal contains it.
 */
final class Input {
  private final String what;
  private final byte[] bytes;
  private final int end;
  private int at;

  Input(String what, byte[] bytes) {
    this(what, bytes, 0, bytes.length);
  }

  private Input(String what, byte[] bytes, int from, int end) {
    this.what = what;
    this.bytes = bytes;
    this.at = from;
    this.end = end;
  }

  int u8(String name) throws RefusedException {
    return (int) number(1, name);
  }

  int u16(String name) throws RefusedException {
    return (int) number(2, name);
  }

  int i32(String name) throws RefusedException {
    return (int) number(4, name);
  }

  long i64(String name) throws RefusedException {
    return number(8, name);
  }

  /** A 64-bit number that is not negative. */
  long count64(String name) throws RefusedException {
    return atLeast(0, i64(name), name);
  }

  /** A 32-bit number of things that take at least {@code each} bytes in the rest. */
  int count(int each, String name) throws RefusedException {
    long count = number(4, name);
    if (count > rest() / each) {
      throw refused(name + " is " + count + ", for which the rest of " + rest() + " bytes is too short");
    }
    return (int) count;
  }

  long atLeast(long least, long value, String name) throws RefusedException {
    if (value < least) {
      throw refused(name + " must be at least " + least + ", not " + value);
    }
    return value;
  }

  long oneOf(long least, long most, long value, String name) throws RefusedException {
    if (value < least || value > most) {
      throw refused(name + " must be from " + least + " to " + most + ", not " + value);
    }
    return value;
  }

  byte[] bytes(int size, String name) throws RefusedException {
    need(size, name);
    at += size;
    return Arrays.copyOfRange(bytes, at - size, at);
  }

  /** The next {@code size} bytes as an input of their own, with its own name for refusals. */
  Input part(int size, String name) throws RefusedException {
    need(size, name);
    at += size;
    return new Input(name, bytes, at - size, at);
  }

  /** All the bytes of this input, read or not. */
  byte[] remaining() {
    return Arrays.copyOfRange(bytes, at, end);
  }

  /** What this is, for the names of its parts. */
  String name() {
    return what;
  }

  int rest() {
    return end - at;
  }

  void version(int known) throws RefusedException {
    int version = u8("version");
    if (version != known) {
      throw refused("version " + version + " is not known here; this jar knows version " + known + ": update the older side");
    }
  }

  void end() throws RefusedException {
    if (at != end) {
      throw refused(rest() + " bytes follow behind its end");
    }
  }

  RefusedException refused(String why) {
    return new RefusedException(what + ": " + why);
  }

  private long number(int size, String name) throws RefusedException {
    need(size, name);
    long value = 0;
    for (int i = 0; i < size; i++) {
      value = value << 8 | bytes[at++] & 0xFF;
    }
    return value;
  }

  private void need(int size, String name) throws RefusedException {
    if (size < 0 || size > rest()) {
      throw refused(name + " needs " + Integer.toUnsignedString(size) + " bytes, " + rest() + " are left");
    }
  }
}
