package iothub.hbase.queue;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Deque;
import java.util.List;
import java.util.Map;
import java.util.SortedMap;
import java.util.SortedSet;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.function.LongSupplier;
import java.util.stream.Collectors;

/**
 * Does one request: takes the locks of its queues in sorted order, does its operations in their own order, commits all of it at once.
 *
 * <p>Invariant: nothing outside knows of a change before it is durable.
 */
final class Batch {
  private final Store store;
  private final Marks marks;
  private final LongSupplier clockMs;

  Batch(Store store, Marks marks, LongSupplier clockMs) {
    this.store = store;
    this.marks = marks;
    this.clockMs = clockMs;
  }

  /** What one operation has returned. */
  private record Result(Status status, byte[] bytes) {}

  /** Returns the answer: version 1 | n 4 | (status 1 | length 4 | what is returned)*n. */
  byte[] run(Request request) throws IOException {
    SortedSet<Key> keys = request.steps().stream().map(Request.Step::key).collect(Collectors.toCollection(TreeSet::new));
    Deque<Store.Lock> locks = new ArrayDeque<>(keys.size());
    try {
      for (Key key : keys) {
        locks.push(store.lock(key));
      }
      return runLocked(keys, request.steps());
    } finally {
      locks.forEach(Store.Lock::close);
    }
  }

  private byte[] runLocked(Collection<Key> keys, List<Request.Step> steps) throws IOException {
    long nowMs = clockMs.getAsLong();
    SortedMap<Key, Queue> queues = new TreeMap<>();
    SortedMap<Key, String> damaged = new TreeMap<>();
    for (Key key : keys) {
      try {
        queues.put(key, new Queue(key, store, load(key), nowMs));
      } catch (RefusedException e) {
        damaged.put(key, e.getMessage());
        queues.put(key, new Queue(key, store, remains(key), nowMs));
      }
    }
    List<Result> results = new ArrayList<>(steps.size());
    for (Request.Step step : steps) {
      results.add(apply(step, queues, damaged));
    }
    commit(queues.values());
    return answer(results);
  }

  /** A damaged queue can be dropped, and nothing else. */
  private static Result apply(Request.Step step, Map<Key, Queue> queues, Map<Key, String> damaged) throws IOException {
    String damage = damaged.get(step.key());
    if (damage != null && !(step.operation() instanceof Drop)) {
      return new Result(Status.DAMAGED, damage.getBytes(StandardCharsets.UTF_8));
    }
    Output output = new Output();
    return new Result(step.operation().apply(queues.get(step.key()), output), output.toBytes());
  }

  private static byte[] answer(List<Result> all) {
    Output answer = new Output().u8(Request.VERSION).i32(all.size());
    for (Result result : all) {
      answer.u8(result.status().code()).i32(result.bytes().length).bytes(result.bytes());
    }
    return answer.toBytes();
  }

  private State load(Key key) throws IOException {
    byte[] bytes = store.state(key);
    if (bytes == null) {
      return null;
    }
    State state = StateCodec.decode(key, bytes);
    marks.tighten(key, state);
    return state;
  }

  /** A state of a damaged queue that is good for dropping it. */
  private State remains(Key key) throws IOException {
    Store.Remains remains = store.remains(key);
    State state = new State(null);
    state.timestamp = remains.writtenAt();
    remains.packetIds().forEach(packetId -> state.inbound.put(packetId, new State.Intent(false, null)));
    return state;
  }

  private void commit(Collection<Queue> queues) throws IOException {
    List<Queue> changed = queues.stream().filter(Queue::isChanged).toList();
    if (!changed.isEmpty()) {
      store.commit(changed);
      changed.forEach(queue -> marks.put(queue.key(), Mark.of(queue.state())));
    }
  }
}
