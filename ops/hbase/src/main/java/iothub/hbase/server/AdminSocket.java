package iothub.hbase.server;

import iothub.hbase.admin.RegionAdmin;
import iothub.hbase.admin.TableAdmin;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.PrintStream;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.channels.Channels;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Runs our administration programs inside this JVM, for whoever asks at a Unix socket: a JVM of its own for each takes seconds of processor.
 *
 * <p>A request is the number of words, the words (the program's class, then its arguments), and what the program reads; an answer is the exit code,
 * and what the program wrote to standard output and to standard error. Numbers have four bytes; words and texts are UTF-8 behind their length.
 */
final class AdminSocket {
  static final String FILE = "admin.sock"; // below the folder where this JVM was started: the whole path of a socket must be short
  private static final Logger LOG = LoggerFactory.getLogger(AdminSocket.class);
  private static final int LARGEST = 16 << 20;
  private static final int UNKNOWN = 2;

  private final ServerSocketChannel listener;

  private AdminSocket(ServerSocketChannel listener) {
    this.listener = listener;
  }

  /** Listens; what a killed predecessor left behind is in nobody's way. */
  static void open() throws IOException {
    Files.deleteIfExists(Path.of(FILE));
    ServerSocketChannel listener = ServerSocketChannel.open(StandardProtocolFamily.UNIX);
    listener.bind(UnixDomainSocketAddress.of(FILE));
    begin("administration", new AdminSocket(listener)::accept);
  }

  private static void begin(String name, Runnable task) {
    Thread thread = new Thread(task, name);
    thread.setDaemon(true);
    thread.start();
  }

  private void accept() {
    try {
      while (true) {
        SocketChannel channel = listener.accept();
        begin("administration of one", () -> serve(channel));
      }
    } catch (IOException e) {
      LOG.error("nobody can ask for administration any more", e);
    }
  }

  private static void serve(SocketChannel channel) {
    try (channel) {
      DataInputStream in = new DataInputStream(Channels.newInputStream(channel));
      String[] words = new String[bounded(in.readInt())];
      for (int at = 0; at < words.length; at++) {
        words[at] = new String(bytes(in), StandardCharsets.UTF_8);
      }
      answer(words, new ByteArrayInputStream(bytes(in)), channel);
    } catch (IOException | RuntimeException e) {
      LOG.warn("a request for administration was not answered", e);
    }
  }

  private static void answer(String[] words, InputStream given, SocketChannel channel) throws IOException {
    ByteArrayOutputStream output = new ByteArrayOutputStream();
    ByteArrayOutputStream errors = new ByteArrayOutputStream();
    PrintStream out = new PrintStream(output, false, StandardCharsets.UTF_8);
    PrintStream err = new PrintStream(errors, true, StandardCharsets.UTF_8);
    int code = run(words, given, out, err);
    DataOutputStream answer = new DataOutputStream(Channels.newOutputStream(channel));
    answer.writeInt(code);
    for (ByteArrayOutputStream text : new ByteArrayOutputStream[] {output, errors}) {
      answer.writeInt(text.size());
      text.writeTo(answer);
    }
    answer.flush();
  }

  private static int run(String[] words, InputStream given, PrintStream out, PrintStream err) {
    String[] arguments = words.length == 0 ? words : Arrays.copyOfRange(words, 1, words.length);
    String program = words.length == 0 ? "" : words[0];
    if (program.equals(TableAdmin.class.getName())) {
      return TableAdmin.run(arguments, given, out, err);
    }
    if (program.equals(RegionAdmin.class.getName())) {
      return RegionAdmin.run(arguments, err);
    }
    err.println("AdminSocket: there is no program " + program);
    return UNKNOWN;
  }

  private static byte[] bytes(DataInputStream in) throws IOException {
    byte[] read = new byte[bounded(in.readInt())];
    in.readFully(read);
    return read;
  }

  private static int bounded(int size) throws IOException {
    if (size < 0 || size > LARGEST) {
      throw new IOException("a size of " + size);
    }
    return size;
  }
}
