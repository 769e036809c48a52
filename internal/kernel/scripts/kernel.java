// The harness of Java: executes code with the engine of jshell in this process and keeps its state. It reads requests
// from descriptor 3 and writes events to descriptor 4, as JSON, one a line.
import java.io.*;
import java.nio.charset.StandardCharsets;
import java.util.*;
import java.util.concurrent.*;
import java.util.stream.*;
import jdk.jshell.*;
import jdk.jshell.execution.LocalExecutionControlProvider;

class Kernel {
  static final String[] imports = "io math net nio.file util util.concurrent util.function util.regex util.stream".split(" ");
  static JShell shell;
  static OutputStream events;
  static volatile boolean interrupted;
  static int count;

  public static void main(String[] args) throws Exception {
    // The supervisor's signal is for programs that the code has started.
    sun.misc.Signal.handle(new sun.misc.Signal("INT"), signal -> {});
    System.setOut(new PrintStream(new FileOutputStream(FileDescriptor.out), true, "UTF-8"));
    System.setErr(new PrintStream(new FileOutputStream(FileDescriptor.err), true, "UTF-8"));
    events = new FileOutputStream("/proc/self/fd/4");
    var requests = new BufferedReader(new InputStreamReader(new FileInputStream("/proc/self/fd/3"), StandardCharsets.UTF_8));
    shell = JShell.builder().executionEngine(new LocalExecutionControlProvider(), Map.of()).build();
    for (String name : imports) shell.eval("import java." + name + ".*;");
    var tasks = new LinkedBlockingQueue<Runnable>();
    var worker = new Thread(() -> {
      try {
        for (;;) tasks.take().run();
      } catch (Throwable e) {
        e.printStackTrace();
        System.exit(1);
      }
    });
    worker.setDaemon(true);
    worker.start();
    send("{\"ready\":true}");
    for (String line; (line = requests.readLine()) != null; ) {
      if (line.startsWith("{\"code\":")) {
        String code = parse(line);
        interrupted = false;
        tasks.add(() -> execute(code));
      } else if (line.startsWith("{\"settle\"")) {
        tasks.add(() -> send("{\"settled\":true}"));
      } else {
        interrupted = true;
        shell.stop(); // does nothing while the code is compiled
      }
    }
    System.exit(0);
  }

  static void execute(String code) {
    boolean failed = false;
    String value = null;
    count++;
    for (String rest = code; !failed && !rest.isBlank(); ) {
      var info = shell.sourceCodeAnalysis().analyzeCompletion(rest);
      if (info.completeness() == SourceCodeAnalysis.Completeness.EMPTY) break; // comments
      boolean whole = info.completeness().isComplete() && info.source() != null;
      String source = whole ? info.source() : rest;
      rest = whole ? info.remaining() : "";
      if (interrupted) break;
      for (SnippetEvent event : shell.eval(source)) {
        if (event.causeSnippet() != null) continue;
        failed |= report(event);
        var kind = event.snippet().subKind();
        value = kind == Snippet.SubKind.TEMP_VAR_EXPRESSION_SUBKIND || kind.kind() == Snippet.Kind.EXPRESSION ? event.value() : null;
      }
    }
    if (interrupted) {
      failed = true;
      fail("Interrupted", "the execution was interrupted", List.of());
    } else if (!failed && value != null && !value.isEmpty()) {
      send("{\"type\":\"result\",\"main\":true,\"data\":{\"text/plain\":" + quote(value) + "}}");
    }
    send("{\"done\":true,\"failed\":" + failed + ",\"count\":" + count + "}");
  }

  // report sends the failure of a snippet, if it failed.
  static boolean report(SnippetEvent event) {
    if (interrupted) return true;
    JShellException thrown = event.exception();
    if (thrown != null) {
      String name = thrown instanceof EvalException e ? e.getExceptionClassName() : "UnresolvedReferenceException";
      String message = Objects.toString(thrown.getMessage(), "");
      var lines = new ArrayList<>(List.of(name + ": " + message));
      for (var element : thrown.getStackTrace()) lines.add("    at " + element);
      fail(name, message, lines);
      return true;
    }
    if (event.status() != Snippet.Status.REJECTED) return false;
    List<String> lines = shell.diagnostics(event.snippet()).map(d -> d.getMessage(Locale.ROOT)).toList();
    fail("CompilationError", String.join("\n", lines), lines);
    return true;
  }

  static void fail(String name, String value, List<String> traceback) {
    send("{\"type\":\"error\",\"name\":" + quote(name) + ",\"value\":" + quote(value) + ",\"traceback\":"
        + traceback.stream().map(Kernel::quote).collect(Collectors.joining(",", "[", "]")) + "}");
  }

  static synchronized void send(String line) {
    try {
      events.write((line + "\n").getBytes(StandardCharsets.UTF_8));
    } catch (IOException e) {
      System.exit(1); // the supervisor has ended
    }
  }

  static String quote(String text) {
    var out = new StringBuilder("\"");
    for (char c : text.toCharArray()) {
      if (c < ' ' || c == '"' || c == '\\' || Character.isSurrogate(c)) out.append(String.format("\\u%04x", (int) c));
      else out.append(c);
    }
    return out.append('"').toString();
  }

  // parse returns the text in a line {"code":"TEXT"}.
  static String parse(String line) {
    var out = new StringBuilder();
    for (int i = line.indexOf(':') + 2; i < line.length() - 2; i++) {
      char c = line.charAt(i);
      if (c != '\\') {
        out.append(c);
        continue;
      }
      switch (c = line.charAt(++i)) {
        case 'u' -> {
          out.append((char) Integer.parseInt(line.substring(i + 1, i + 5), 16));
          i += 4;
        }
        case 'n' -> out.append('\n');
        case 't' -> out.append('\t');
        case 'r' -> out.append('\r');
        case 'b' -> out.append('\b');
        case 'f' -> out.append('\f');
        default -> out.append(c);
      }
    }
    return out.toString();
  }
}
