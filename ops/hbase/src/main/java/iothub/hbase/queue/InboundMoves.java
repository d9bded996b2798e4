package iothub.hbase.queue;

/**
 * The publisher's side of QoS 2: intent, routed, finished.
 *
 * <p>Invariant: the intent is durable before the first append, `routed` before PUBREC, the removal before PUBCOMP. In any other order a crash loses
 * the message or stores it twice.
 */
final class InboundMoves {
  private static final int NEW = 0;
  private static final int OPEN = 1;
  private static final int ROUTED = 2;
  private static final MessageId NONE = new MessageId(0, 0);

  private InboundMoves() {}

  /**
   * The rest of the move is read here: message id 16, length 4, what is needed to finish it. Returns new, open or routed, and the message id
   * that is kept.
   */
  static Moves.Move intent(Input input, int packetId) throws RefusedException {
    MessageId id = MessageId.read(input);
    byte[] payload = input.bytes(input.i32("length of intent"), "intent");
    return (queue, output) -> {
      State.Intent known = queue.state().inbound.putIfAbsent(packetId, new State.Intent(false, id));
      if (known == null) {
        queue.payload(packetId, payload);
      }
      MessageId kept = known == null ? id : known.messageId();
      output.u8(known == null ? NEW : known.isRouted() ? ROUTED : OPEN).i64(kept.high()).i64(kept.low());
    };
  }

  /** Everything was appended: from now on a repeated PUBLISH gets its PUBREC alone. */
  static void record(Queue queue, int packetId) {
    State.Intent known = queue.state().inbound.get(packetId);
    if (known != null && known.isRouted()) {
      return;
    }
    if (known != null) {
      queue.payload(packetId, null);
    }
    queue.state().inbound.put(packetId, new State.Intent(true, known == null ? NONE : known.messageId()));
  }

  /** PUBREL was seen. */
  static void finish(Queue queue, int packetId) {
    State.Intent known = queue.state().inbound.remove(packetId);
    if (known != null && !known.isRouted()) {
      queue.payload(packetId, null);
    }
  }
}
