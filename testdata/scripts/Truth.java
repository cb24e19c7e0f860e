import java.io.*;
import java.lang.invoke.*;
import java.lang.reflect.*;
import java.nio.file.*;
import java.util.*;
import java.util.concurrent.*;
import java.util.function.*;
import java.util.stream.*;

/** Tells its own stack, a line of JSON each, and blocks until a line comes: "tell ROUNDS CALLS", with so many calls of everything between two rounds, or runs for ever: "random", and prints {} when it does. */
public class Truth {
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
            out.println("{\"TID\":" + tid + ",\"Stack\":[" + walker.walk(s -> s.map(Truth::text).collect(Collectors.joining(","))) + "]}");
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

    // Each of these calls tell once.
    static int direct() {
        return tell();
    }

    static int recursive(int n) {
        return n == 0 ? tell() : recursive(n - 1) + 1;
    }

    static int even(int n) {
        return n == 0 ? tell() : odd(n - 1);
    }

    static int odd(int n) {
        return even(n - 1);
    }

    static int lambda() {
        IntSupplier s = () -> tell() + 1;
        return s.getAsInt();
    }

    static int reference() {
        IntSupplier s = Truth::direct;
        return s.getAsInt();
    }

    static int capture(int a) {
        IntUnaryOperator s = x -> x + a + direct();
        return s.applyAsInt(a);
    }

    static int stream() {
        return IntStream.range(0, 9).filter(i -> i == 4).map(i -> i + tell()).sum();
    }

    static int objects() {
        return Stream.of("a", "b").filter(s -> s.equals("b")).map(s -> s + tell()).collect(Collectors.toList()).size();
    }

    static class Once implements Comparator<Integer> {
        boolean told;

        public int compare(Integer a, Integer b) {
            if (!told) {
                told = true;
                tell();
            }
            return a - b;
        }
    }

    static int sort() {
        Integer[] list = {3, 1, 2, 5, 4};
        Arrays.sort(list, new Once());
        return list[0];
    }

    static int list() {
        List<Integer> list = new ArrayList<>(List.of(4, 2, 9));
        list.sort(new Once());
        return list.get(0);
    }

    static int tree() {
        TreeMap<Integer, Integer> m = new TreeMap<>(new Once());
        m.put(1, 2);
        return m.size();
    }

    static int computed() {
        return new HashMap<String, Integer>().computeIfAbsent("x", k -> tell());
    }

    static int each() {
        int[] n = {0};
        List.of(1).forEach(x -> n[0] += tell());
        return n[0];
    }

    static int thrown() {
        try {
            throw new IllegalStateException("x");
        } catch (IllegalStateException e) {
            return tell();
        }
    }

    static int last() {
        try {
            return Integer.parseInt("7");
        } finally {
            tell();
        }
    }

    static class Resource implements AutoCloseable {
        public void close() {
            tell();
        }
    }

    static int closed() {
        try (Resource r = new Resource()) {
            return r.hashCode();
        }
    }

    static class Base {
        Base() {
            init();
        }

        void init() {}
    }

    static class Derived extends Base {
        @Override
        void init() {
            tell();
        }
    }

    static int constructed() {
        return new Derived().hashCode();
    }

    interface Shape {
        default int area() {
            return side() * side();
        }

        int side();
    }

    static int defaulted() {
        return new Shape() {
            public int side() {
                return tell();
            }
        }.area();
    }

    static abstract class Generic<T> {
        abstract T get(T x);
    }

    static class Bridge extends Generic<String> {
        String get(String x) {
            return x + tell();
        }
    }

    static <T> T bridged(Generic<T> g, T x) {
        return g.get(x);
    }

    static synchronized int locked() {
        synchronized (walker) {
            return tell();
        }
    }

    static double many(int a, long b, double c, float d, Object e, int f, long g, double h, int i, long j, Object k, int l, long m) {
        return a + b + c + d + f + g + h + i + j + l + m + tell();
    }

    static int varied(Object... list) {
        return list.length + tell();
    }

    static int inlined() {
        return outer(3);
    }

    static int outer(int x) {
        return middle(x + 1) + 1;
    }

    static int middle(int x) {
        return inner(x * 2) - 1;
    }

    static int inner(int x) {
        return x + tell();
    }

    enum Kind {
        ONE {
            int run() {
                return tell();
            }
        };

        abstract int run();
    }

    static final MethodHandle handle;
    static final Method method;

    static {
        try {
            handle = MethodHandles.lookup().findStatic(Truth.class, "direct", MethodType.methodType(int.class));
            method = Truth.class.getDeclaredMethod("direct");
        } catch (ReflectiveOperationException e) {
            throw new ExceptionInInitializerError(e);
        }
    }

    static int handled() {
        try {
            return (int) handle.invokeExact();
        } catch (Throwable t) {
            throw new RuntimeException(t);
        }
    }

    static int reflected() {
        try {
            return (Integer) method.invoke(null);
        } catch (ReflectiveOperationException e) {
            throw new RuntimeException(e);
        }
    }

    static int privileged() {
        return java.security.AccessController.doPrivileged((java.security.PrivilegedAction<Integer>) () -> tell());
    }

    static int concatenated() {
        return ("" + new Object() {
            public String toString() {
                return "x" + tell();
            }
        } + "y").length();
    }

    static int future() {
        return CompletableFuture.completedFuture(1).thenApply(x -> x + tell()).join();
    }

    static int looped() {
        int n = 0;
        for (int i = 0; i < 100; i++) {
            n += i;
            if (i == 50) {
                n += tell();
            }
        }
        return n;
    }

    // Called once, as classes are initialised once.
    static class First {
        static int value = tell();
    }

    static class Second {
        static int value = First2.value + 1;
    }

    static class First2 {
        static int value = lambda();
    }

    static void byName() {
        try {
            Class.forName("Truth$Named");
        } catch (ClassNotFoundException e) {
            throw new RuntimeException(e);
        }
    }

    static class Named {
        static {
            recursive(3);
        }
    }

    static int all() {
        int n = direct() + recursive(1) + recursive(40) + even(6) + lambda() + reference() + capture(2) + stream() + objects();
        n += sort() + list() + tree() + computed() + each() + thrown() + last() + closed() + constructed() + defaulted();
        n += bridged(new Bridge(), "x").length() + locked() + varied(1, 2, 3) + inlined() + Kind.ONE.run();
        n += (int) many(1, 2, 3, 4, "5", 6, 7, 8, 9, 10, "11", 12, 13);
        n += handled() + reflected() + privileged() + concatenated() + future() + looped();
        return n;
    }

    static void rounds(int n, int calls) {
        for (int i = 0; i < n; i++) {
            quiet = false;
            sink += all();
            quiet = true;
            for (int j = 0; i + 1 < n && j < (i == 0 ? calls / 10 : calls); j++) { // until the next compiler has done its work
                sink += all();
            }
        }
    }

    // The program of random.
    static long fib(int n) {
        return n < 2 ? n : fib(n - 1) + fib(n - 2);
    }

    static long mixed(long x) {
        return Long.rotateLeft(x * 0x9E3779B97F4A7C15L, 31);
    }

    static long summed(long x) {
        long s = 0;
        for (int i = 0; i < 1000; i++) {
            s += mixed(x + i);
        }
        return s;
    }

    static long sorted(long x) {
        Long[] a = new Long[200];
        for (int i = 0; i < a.length; i++) {
            a[i] = mixed(i + x);
        }
        Arrays.sort(a, (p, q) -> compared(p, q));
        return a[0];
    }

    static int compared(long p, long q) {
        return Long.compare(mixed(p), mixed(q));
    }

    static long mapped(long x) {
        Map<String, Long> m = new HashMap<>();
        for (int i = 0; i < 100; i++) {
            m.merge("k" + i % 7, mixed(x), (p, q) -> added(p, q));
        }
        return m.size();
    }

    static long added(long p, long q) {
        return p + mixed(q);
    }

    static long failing(int n) {
        try {
            return failed(n);
        } catch (IllegalArgumentException e) {
            return e.getMessage().length();
        }
    }

    static long failed(int n) {
        if (n == 0) {
            throw new IllegalArgumentException("no");
        }
        return failed(n - 1);
    }

    static long called() {
        try {
            return (Integer) method.invoke(null) + System.identityHashCode(new Object());
        } catch (ReflectiveOperationException e) {
            throw new RuntimeException(e);
        }
    }

    static void busy() {
        quiet = true;
        boolean tells = Thread.currentThread().getName().equals("main");
        for (long x = 0;; x++) {
            sink += fib(15) + summed(x) + sorted(x) + mapped(x) + failing(9) + called();
            if (tells && x == 10) {
                System.out.println("{}");
            }
        }
    }

    static final IllegalArgumentException kept = new IllegalArgumentException("kept");

    static long throwing() {
        for (long x = 0;; x++) {
            sink += caught(9) + bounded(9);
            if (x == 100000) {
                System.out.println("{}");
            }
        }
    }

    static long caught(int n) {
        try {
            return threw(n);
        } catch (IllegalArgumentException e) {
            return e.getMessage().length();
        }
    }

    static long threw(int n) {
        if (n == 0) {
            throw kept;
        }
        return threw(n - 1) + 1;
    }

    static final long[] few = {1, 2, 3};

    static long bounded(int n) {
        try {
            return indexed(n);
        } catch (ArrayIndexOutOfBoundsException e) {
            return 1;
        }
    }

    static long indexed(int n) {
        return few[n];
    }

    public static void main(String[] args) throws Exception {
        switch (args[0]) {
        case "random":
            new Thread(Truth::busy).start();
            busy();
        case "throwing":
            sink += throwing();
        }
        sink += First.value + Second.value;
        byName();
        int n = Integer.parseInt(args[1]);
        int calls = Integer.parseInt(args[2]);
        rounds(n, calls);
        Thread t = new Thread(() -> rounds(n, calls));
        t.start();
        t.join();
        ExecutorService pool = Executors.newFixedThreadPool(1);
        quiet = false;
        sink += pool.submit(() -> recursive(5)).get();
        pool.shutdown();
    }
}
