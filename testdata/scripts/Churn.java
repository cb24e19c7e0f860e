import java.io.*;
import java.lang.reflect.*;
import java.util.function.*;

/** Makes classes by one pattern, of which only the number differs, has each run, and drops it: the next ones often have its place in memory. Prints {} when it has begun. */
public class Churn {
    static final class Loader extends ClassLoader {
        Class<?> make(String name, byte[] code) {
            return defineClass(name, code, 0, code.length);
        }
    }

    /** The class of a file with the number n in the place of its zeros. */
    static byte[] numbered(byte[] pattern, int n) {
        byte[] code = pattern.clone();
        byte[] digits = String.format("%06d", n).getBytes();
        for (int i = 0; i + 6 <= code.length; i++) {
            int k = 0;
            while (k < 6 && code[i + k] == '0') {
                k++;
            }
            if (k == 6) {
                System.arraycopy(digits, 0, code, i, 6);
                i += 5;
            }
        }
        return code;
    }

    public static void main(String[] args) throws Exception {
        byte[] pattern;
        try (InputStream file = Churn.class.getResourceAsStream("Made000000.class")) {
            pattern = file.readAllBytes();
        }
        long sum = 0;
        for (int n = 1;; n = n % 999999 + 1) {
            Constructor<?> of = new Loader().make(String.format("Made%06d", n), numbered(pattern, n)).getDeclaredConstructor();
            of.setAccessible(true); // it is of a package of its own
            LongSupplier made = (LongSupplier) of.newInstance();
            for (int i = 0; i < (n % 3 == 0 ? 400 : 20); i++) {
                sum += made.getAsLong();
            }
            if (n % 100 == 0) {
                System.gc();
            }
            if (n == 200) {
                System.out.println("{}");
            }
        }
    }
}

class Made000000 implements LongSupplier {
    static long outer000000(int d) {
        return inner000000(d) + 1;
    }

    static long inner000000(int d) {
        if (d > 0) {
            return outer000000(d - 1) + 1;
        }
        long t = 0;
        for (int i = 0; i < 60; i++) {
            t += hot000000(i);
        }
        return t;
    }

    static long hot000000(int i) {
        return leaf000000(i) + leaf000000(i + 1);
    }

    static long leaf000000(int i) {
        long t = 0;
        for (int k = 0; k < 40; k++) {
            t += (long) k * i % 7;
        }
        return t;
    }

    public long getAsLong() {
        return outer000000(2) + 0;
    }
}
