import java.io.*;
import java.lang.reflect.*;
import java.nio.file.*;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.locks.*;
import java.util.stream.*;

/** Does in virtual threads what Truth does in others: "tell" tells the stack, a line of JSON each, and blocks until a line comes, some of it after the thread has waited further in or further out; "random" runs and waits for ever, and prints {} when it does. */
public class Virtual {
    static final PrintStream out = new PrintStream(new FileOutputStream(FileDescriptor.out), true);
    static final InputStream in = new FileInputStream(FileDescriptor.in);
    static final StackWalker walker = StackWalker.getInstance(EnumSet.of(StackWalker.Option.SHOW_HIDDEN_FRAMES, StackWalker.Option.SHOW_REFLECT_FRAMES));
    static volatile boolean quiet;
    static volatile long sink;

    static int tell() {
        if (quiet) {
            return 1;
        }
        try {
            String tid = Files.readSymbolicLink(Path.of("/proc/thread-self")).getFileName().toString();
            out.println("{\"TID\":" + tid + ",\"Stack\":[" + walker.walk(s -> s.map(Virtual::text).collect(Collectors.joining(","))) + "]}");
            in.read();
        } catch (IOException e) {
            System.exit(1);
        }
        return 1;
    }

    static String text(StackWalker.StackFrame f) {
        String name = f.getClassName();
        if (name.indexOf('/') > 0) {
            name = name.substring(0, name.indexOf('/')); // of a hidden class an address follows
        }
        String file = f.getFileName() == null ? "" : f.getFileName();
        return "[\"" + name + "\",\"" + f.getMethodName() + "\",\"" + file + "\"," + Math.max(f.getLineNumber(), 0) + "]";
    }

    /** Leaves the carrier: what the stack has goes to the heap, and comes back piece by piece. */
    static int yielded() {
        LockSupport.parkNanos(1);
        return 1;
    }

    /** Goes depth calls in, waits there, comes back up calls, and tells, in a callee. */
    static int deep(int depth, int up) {
        if (depth == 0) {
            return yielded() + (up == 0 ? tell() : 0);
        }
        int n = deep(depth - 1, up);
        return depth == up ? n + tell() : n + 1;
    }

    static int streamed(int depth, int up) {
        return IntStream.range(0, 3).filter(i -> i == 1).map(i -> i + deep(depth, up)).sum();
    }

    static long mixed(long a, Object b, double c, long d, Object e, long f, Object g, long h, int depth, int up) {
        return a + (long) c + d + f + h + (depth == 0 ? deep(4, up) : mixed(h, g, c, f, e, d, b, a, depth - 1, up));
    }

    static synchronized int locked(int depth) {
        return depth == 0 ? tell() : locked(depth - 1);
    }

    static int caught(int depth) {
        try {
            return thrown(depth);
        } catch (IllegalStateException e) {
            return tell();
        }
    }

    static int thrown(int depth) {
        if (depth == 0) {
            yielded();
            throw new IllegalStateException();
        }
        return thrown(depth - 1) + 1;
    }

    /** Has not waited yet. */
    static int plain() {
        int n = tell();
        for (int depth = 0; depth < 30; depth++) {
            n += locked(depth);
        }
        return n;
    }

    static int all() {
        int n = deep(0, 0) + caught(1) + caught(9);
        for (int depth : new int[]{1, 2, 3, 7, 40, 150}) {
            for (int up : new int[]{0, 1, 2, 3, 5, depth}) {
                if (up <= depth) {
                    n += deep(depth, up);
                }
            }
            n += streamed(depth, 1);
            n += mixed(1, "2", 3, 4, "5", 6, "7", 8, depth, 2);
        }
        return n;
    }

    // The program of random.
    static long fib(int n) {
        return n < 2 ? n : fib(n - 1) + fib(n - 2);
    }

    static long waited(int n) {
        if (n == 0) {
            yielded();
            return fib(7);
        }
        return waited(n - 1) + fib(9);
    }

    static long sorted(long x) {
        Long[] a = new Long[50];
        for (int i = 0; i < a.length; i++) {
            a[i] = i * x % 47;
        }
        Arrays.sort(a, (p, q) -> compared(p, q, x));
        return a[0];
    }

    static int compared(long p, long q, long x) {
        if (p == x % 47) {
            waited(3);
        }
        return Long.compare(p, q);
    }

    static long failing(int n) {
        try {
            return failed(n);
        } catch (IllegalArgumentException e) {
            return fib(6);
        }
    }

    static long failed(int n) {
        if (n == 0) {
            yielded();
            throw new IllegalArgumentException("no");
        }
        return failed(n - 1) + fib(5);
    }

    static void busy() {
        for (long x = 1;; x++) {
            sink += waited((int) x % 60) + sorted(x) + failing(9) + fib(12);
        }
    }

    static Thread start(Runnable r) throws Exception {
        return (Thread) Thread.class.getMethod("startVirtualThread", Runnable.class).invoke(null, r);
    }

    public static void main(String[] args) throws Exception {
        if (args[0].equals("random")) {
            for (int i = 0; i < 6; i++) {
                start(Virtual::busy);
            }
            Thread.sleep(2000); // most is compiled
            System.out.println("{}");
            Thread.sleep(Long.MAX_VALUE);
        }
        int n = Integer.parseInt(args[1]);
        int calls = Integer.parseInt(args[2]);
        for (int i = 0; i < n; i++) {
            quiet = false;
            start(() -> sink += plain()).join();
            start(() -> sink += all()).join();
            quiet = true;
            for (int j = 0; i + 1 < n && j < calls; j++) {
                start(() -> sink += plain() + all()).join();
            }
        }
    }
}
