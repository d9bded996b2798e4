package iothub.hbase.queue;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import java.util.Random;
import org.apache.hadoop.hbase.util.Bytes;
import org.junit.jupiter.api.Test;

/** Requests and cells as bytes: what is known is read, everything else is refused by name, and nothing else happens. */
class CodecTest {
  private static final Key ONE = Harness.ONE;

  @Test
  void keysOrderAsTheirRowsDo() {
    List<Key> keys = List.of(new Key(0, 1), new Key(0, -1), new Key(1, 0), new Key(Long.MAX_VALUE, 0), new Key(Long.MIN_VALUE, 0), new Key(-1, -1));
    for (int i = 1; i < keys.size(); i++) {
      assertTrue(keys.get(i - 1).compareTo(keys.get(i)) < 0);
      assertTrue(Bytes.compareTo(Rows.meta(keys.get(i - 1)), Rows.meta(keys.get(i))) < 0);
      assertEquals(keys.get(i), Key.of(Rows.message(keys.get(i), 5), 0));
    }
  }

  @Test
  void exampleOfTheReferencePage() throws RefusedException {
    String hex = "01 00000001 02 800000000000000000000007 0000003d 0000000000000063 0000000000000001 ffffffffffffffff ffffffffffffffff"
        + "00000001 00000015 01 01 00 00 0000000000000000 00000003 0000 616263";
    byte[] bytes = HexFormat.of().parseHex(hex.replace(" ", ""));

    Request.Step step = Request.parse(bytes).steps().get(0);

    assertEquals(ONE, step.key());
    Append append = (Append) step.operation();
    assertEquals(99, append.writer());
    assertEquals(1, append.sequence());
    assertEquals(3, append.records().get(0).size());
  }

  @Test
  void settlingAppendHasItsSettledCallsFirst() throws RefusedException {
    String hex = "01 00000001 09 800000000000000000000007 0000005d 0000000000000002 0000000000000006 0000000000000063 0000000000000007 ffffffffffffffff"
        + "ffffffffffffffff 00000001 00000025 01 02 00 06 0000000000000000 00000003 0000 00000000000000010000000000000002 616263";

    Append append = (Append) Request.parse(HexFormat.of().parseHex(hex.replace(" ", ""))).steps().get(0).operation();

    assertEquals(new Settled.Range(2, 6), append.settled());
    assertEquals(7, append.sequence());
    assertTrue(append.records().get(0).isSettledLater());
    assertEquals(new MessageId(1, 2), append.records().get(0).messageId());
  }

  @Test
  void stateOfVersion1() throws RefusedException {
    State state = new State(new Limits(3, 4, Overflow.DROP_QOS0_FIRST));
    state.timestamp = 0x0102;
    state.born = 1;
    state.tail = 9;
    state.head = 2;
    state.floor = 3;
    state.messages = 5;
    state.owner = new byte[] {0x77};
    state.hasIds = true;
    state.released.add(4L);
    state.inbound.put(5, new State.Intent(true, new MessageId(6, 7)));
    state.history.note(8, 3);
    state.writers.answered(10, new Writers.Entry(11, 12, new byte[] {13}));
    String golden = "010200000000000001020000000000000001000000000000000900000000000000020000000000000003000000000000000000000000000000000000"
        + "000000000000000000000000000500000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000"
        + "000000000000000000030000000000000004020177000000000000000001000000000000000800000000000000030000000100000000000000040000"
        + "0001000501000000000000000600000000000000070001000000000000000a000000000000000b000000000000000c000000010d";

    assertEquals(golden, HexFormat.of().formatHex(StateCodec.encode(state)));
    byte[] bytes = HexFormat.of().parseHex(golden);
    assertArrayEquals(bytes, StateCodec.encode(StateCodec.decode(ONE, bytes)));
  }

  @Test
  void stateHasASettledPartOnlyIfSomethingIsSettled() throws RefusedException {
    State state = new State(new Limits(0, 0, Overflow.REJECT));
    byte[] without = StateCodec.encode(state);
    state.settled.put(0x0A, new Settled.Range(2, 3));
    byte[] with = StateCodec.encode(state);

    assertEquals(0, without[1]);
    assertEquals(4, with[1]);
    String part = HexFormat.of().formatHex(with).substring(2 * without.length);
    assertEquals("01" + "000000000000000a" + "0000000000000002" + "0000000000000003", part);
    assertArrayEquals(with, StateCodec.encode(StateCodec.decode(ONE, with)));
    assertThrows(RefusedException.class, () -> StateCodec.decode(ONE, Arrays.copyOf(with, with.length - 1)));
  }

  @Test
  void messageIdIsKeptWithItsCallOrWithout() {
    assertEquals("010000000000000005", HexFormat.of().formatHex(new Remembered(5, 0, 0).toBytes()));
    String call = "02" + "0000000000000005" + "0000000000000006" + "0000000000000007";
    assertEquals(call, HexFormat.of().formatHex(new Remembered(5, 6, 7).toBytes()));
    assertEquals(new Remembered(5, 6, 7), Remembered.read(HexFormat.of().parseHex(call)));
    assertEquals(new Remembered(5, 0, 0), Remembered.read(new Remembered(5, 0, 0).toBytes()));
    assertEquals(0, Remembered.read(new byte[] {3}).position());
  }

  @Test
  void everyShorterStateIsRefused() {
    byte[] bytes = StateCodec.encode(new State(new Limits(0, 0, Overflow.REJECT)));
    for (int size = 0; size < bytes.length; size++) {
      byte[] shorter = Arrays.copyOf(bytes, size);
      assertThrows(RefusedException.class, () -> StateCodec.decode(ONE, shorter));
    }
  }

  @Test
  void whateverArrivesIsReadOrRefused() throws RefusedException {
    Random random = new Random(4);
    byte[] good = new Output().u8(1).i32(1).u8(3).i64(ONE.reversed()).i32(7).i32(29).i64(1).i64(1).i32(1).u8(1).i64(5).toBytes();
    Request.parse(good);
    for (int i = 0; i < 20_000; i++) {
      byte[] bytes = random.nextBoolean() ? good.clone() : new byte[random.nextInt(64)];
      for (int changes = random.nextInt(4); changes >= 0 && bytes.length > 0; changes--) {
        bytes[random.nextInt(bytes.length)] = (byte) random.nextInt();
      }
      try {
        Request.parse(bytes);
      } catch (RefusedException e) {
        assertTrue(e.getMessage().length() > 10);
      }
    }
  }

  @Test
  void refusalsNameWhatIsWrong() {
    refused("request: version needs 1 bytes, 0 are left", "");
    refused("request: version 2 is not known here; this jar knows version 1: update the older side", "02");
    refused("request: number of operations is 4294967295, for which the rest of 0 bytes is too short", "01ffffffff");
    String append = "010000000102" + "800000000000000000000007";
    refused("operation 0 (code 2, queue 1 of tenant 7) needs 2147483647 bytes, 0 are left", append + "7fffffff");
    refused("operation 0 (code 2, queue 1 of tenant 7) needs 4294967295 bytes, 0 are left", append + "ffffffff");
    refused("writer needs 8 bytes, 0 are left", append + "00000000");
    String head = append + "0000003a" + "0000000000000063" + "0000000000000001" + "ffffffffffffffff" + "ffffffffffffffff" + "00000001" + "00000012";
    String rest = "0000000000000000" + "00000000" + "0000";
    refused("message 0: QoS must be from 0 to 2, not 3", head + "01030000" + rest);
    refused("message 0: a message id belongs to QoS 2 only, not to QoS 1", head + "01010002" + rest.substring(0, 24) + "0000");
    refused("message 0: there is no message id that could be settled", head + "01020004" + rest.substring(0, 24) + "0000");
    refused("message 0: version 2 is not known here", head + "02010000" + rest);
    String settling = "010000000109" + "800000000000000000000007";
    refused("first settled sequence must be at least 1, not 0", settling + "00000010" + "0000000000000000" + "0000000000000001");
    refused("end of settled sequences must be at least 3, not 2", settling + "00000010" + "0000000000000003" + "0000000000000002");
    refused("writer needs 8 bytes, 0 are left", settling + "00000010" + "0000000000000003" + "0000000000000003");
    refused("there is no such operation; this jar knows 1 to 9", "01000000010a" + "800000000000000000000007" + "00000000");
    refused("message 0: size is 1, but the body has 0 bytes", head + "01010000" + "0000000000000000" + "00000001" + "0000");
  }

  private static void refused(String why, String hex) {
    RefusedException refusal = assertThrows(RefusedException.class, () -> Request.parse(HexFormat.of().parseHex(hex)));
    assertTrue(refusal.getMessage().contains(why), refusal.getMessage());
  }
}
