package iothub.hbase.queue;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;

/**
 * What a reader does to its own queue, fenced by its epoch and by a sequence of its own: a call that was given up and lands late changes nothing.
 *
 * <p>A repeat (the same sequence) is done again: every move but an intent changes nothing the second time, and an intent says what it finds.
 */
record Moves(long epoch, long sequence, List<Move> moves) implements Operation {
  private static final int LEAST_MOVE_BYTES = 9;

  /** One move; returns what its kind returns. */
  interface Move {
    void apply(Queue queue, Output output) throws IOException;
  }

  static Moves read(Input input) throws RefusedException {
    long epoch = input.count64("epoch");
    long sequence = input.atLeast(1, input.i64("sequence"), "sequence");
    int count = input.count(LEAST_MOVE_BYTES, "number of moves");
    List<Move> moves = new ArrayList<>(count);
    for (int i = 0; i < count; i++) {
      moves.add(move(input));
    }
    return new Moves(epoch, sequence, moves);
  }

  private static Move move(Input input) throws RefusedException {
    int kind = input.u8("kind of move");
    long value = input.i64("value of move");
    switch (kind) {
      case 1, 2, 3 -> input.atLeast(0, value, "position");
      case 4, 5, 6 -> input.oneOf(1, 0xFFFF, value, "packet identifier");
      default -> throw input.refused("there is no move " + kind + "; this jar knows 1 to 6");
    }
    return switch (kind) {
      case 1 -> (queue, output) -> ReaderMoves.acknowledge(queue, value);
      case 2 -> (queue, output) -> ReaderMoves.release(queue, value);
      case 3 -> (queue, output) -> ReaderMoves.reserve(queue, value);
      case 4 -> (queue, output) -> InboundMoves.finish(queue, (int) value);
      case 5 -> (queue, output) -> InboundMoves.record(queue, (int) value);
      default -> InboundMoves.intent(input, (int) value);
    };
  }

  @Override
  public Status apply(Queue queue, Output output) throws IOException {
    if (queue.isGone()) {
      return Status.GONE;
    }
    State state = queue.state();
    if (state.epoch != epoch) {
      output.i64(state.epoch);
      return Status.STALE_EPOCH;
    }
    if (sequence < state.readerSequence) {
      output.i64(state.readerSequence);
      return Status.OLD_SEQUENCE;
    }
    queue.change().readerSequence = sequence;
    Output each = new Output();
    for (Move move : moves) {
      move.apply(queue, each);
    }
    queue.settle();
    output.i64(state.head).i64(state.tail).i64(state.messages).i64(state.bytes).bytes(each.toBytes());
    return Status.DONE;
  }
}
