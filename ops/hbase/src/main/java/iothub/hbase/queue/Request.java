package iothub.hbase.queue;

import java.util.ArrayList;
import java.util.List;

/**
 * The operations of one call, on queues of one region.
 *
 * <pre>
 * version 1 | n 4 | (operation 1 | queue key 12 | length 4 | what it takes)*n
 * </pre>
 */
record Request(List<Step> steps) {
  static final int VERSION = 1;
  static final int MOST_STEPS = 16_384;
  private static final int STEP_BYTES = 1 + Key.BYTES + 4;

  /** One operation and its queue. */
  record Step(Key key, Operation operation) {}

  static Request parse(byte[] bytes) throws RefusedException {
    Input input = new Input("request", bytes);
    input.version(VERSION);
    int count = (int) input.oneOf(1, MOST_STEPS, input.count(STEP_BYTES, "number of operations"), "number of operations");
    List<Step> steps = new ArrayList<>(count);
    for (int i = 0; i < count; i++) {
      steps.add(step(input, i));
    }
    input.end();
    return new Request(steps);
  }

  private static Step step(Input input, int index) throws RefusedException {
    int code = input.u8("operation");
    Key key = Key.read(input);
    Input taken = input.part(input.i32("length of operation"), "operation " + index + " (code " + code + ", " + key + ")");
    Operation operation = operation(code, taken);
    taken.end();
    return new Step(key, operation);
  }

  private static Operation operation(int code, Input input) throws RefusedException {
    return switch (code) {
      case 1 -> Create.read(input);
      case 2 -> Append.read(input);
      case 3 -> Moves.read(input);
      case 4 -> Claim.read(input);
      case 5 -> new SetLimits(Limits.read(input));
      case 6 -> new Purge();
      case 7 -> Expire.read(input);
      case 8 -> new Drop();
      case 9 -> Append.readSettling(input);
      default -> throw input.refused("there is no such operation; this jar knows 1 to 9");
    };
  }
}
