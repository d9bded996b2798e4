package iothub.hbase.queue;

import java.util.LinkedHashMap;
import java.util.Map;

/**
 * The state cells of the queues of one region that were written last: a get of HBase costs more than all else an append does.
 *
 * <p>Invariant: what is here is what the region holds. Filled only under a queue's lock, right behind the commit; a commit that failed leaves nothing
 * here.
 */
final class StateCache {
  static final int MOST_STATES = 1_000;
  static final int MOST_STATE_BYTES = 2_048;

  private final Map<Key, byte[]> states = new LinkedHashMap<>(16, 0.75f, true) {
    private static final long serialVersionUID = 1;

    @Override
    protected boolean removeEldestEntry(Map.Entry<Key, byte[]> eldest) {
      return size() > MOST_STATES;
    }
  };

  /** Null if it is not here. */
  synchronized byte[] get(Key key) {
    return states.get(key);
  }

  synchronized void put(Key key, byte[] state) {
    if (state.length <= MOST_STATE_BYTES) {
      states.put(key, state);
    } else {
      states.remove(key);
    }
  }

  synchronized void remove(Key key) {
    states.remove(key);
  }
}
