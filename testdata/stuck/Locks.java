import java.lang.management.LockInfo;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadInfo;
import java.lang.management.ThreadMXBean;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.Lock;
import java.util.concurrent.locks.ReentrantLock;
import java.util.concurrent.locks.ReentrantReadWriteLock;

/**
 * Threads that wait for each other in all ways that Java has. It ends with its input.
 *
 * stuck: prints, by what the machine itself says of each thread, "waits NAME OWNER CLASS" (owner "-": none; class "-": it waits for nothing),
 * and "dead NAME..." of those that it finds deadlocked; then "ready".
 * crowd N: N threads wait for a monitor that the thread "main" has.
 * hard N: N threads take monitors and locks in one order, and never deadlock; garbage is collected meanwhile.
 */
public class Locks {
    static final List<Thread> threads = new ArrayList<>();

    interface Action { void run() throws Exception; }

    static Thread start(String name, Action a) {
        Thread t = new Thread(() -> {
            try {
                a.run();
            } catch (Exception e) {
                throw new RuntimeException(e);
            }
        }, name);
        t.setDaemon(true);
        threads.add(t);
        t.start();
        return t;
    }

    static void until(Thread t, Thread.State... states) throws Exception {
        for (int i = 0; i < 3;) {
            boolean in = false;
            for (Thread.State s : states) in |= t.getState() == s;
            i = in ? i + 1 : 0;
            Thread.sleep(5);
        }
    }

    static void both(CountDownLatch all) throws Exception {
        all.countDown();
        all.await();
    }

    static void take(Object first, Object second, CountDownLatch all) throws Exception {
        synchronized (first) {
            synchronized (first) {
                both(all);
                takeSecond(second);
            }
        }
    }

    static void takeSecond(Object second) {
        synchronized (second) {
            System.out.println("wrong");
        }
    }

    static void lock(Lock first, Lock second, CountDownLatch all) throws Exception {
        first.lock();
        both(all);
        second.lock();
        System.out.println("wrong");
    }

    static class Special { }

    static void stuck() throws Exception {
        Object a = new Object(), b = new Special();
        CountDownLatch two = new CountDownLatch(2);
        start("monitor-1", () -> take(a, b, two));
        start("monitor-2", () -> take(b, a, two));
        two.await(); // who comes later must not have them first
        until(start("behind", () -> takeSecond(a)), Thread.State.BLOCKED);

        Lock c = new ReentrantLock(), d = new ReentrantLock(true);
        CountDownLatch locks = new CountDownLatch(2);
        start("lock-1", () -> lock(c, d, locks));
        start("lock-2", () -> lock(d, c, locks));
        locks.await();
        start("tries", () -> c.tryLock(1000, TimeUnit.SECONDS));
        start("may-interrupt", () -> d.lockInterruptibly());

        Object e = new Object();
        Lock f = new ReentrantLock();
        ReentrantReadWriteLock g = new ReentrantReadWriteLock();
        CountDownLatch mixed = new CountDownLatch(3);
        start("mixed-1", () -> { synchronized (e) { both(mixed); f.lock(); } });
        start("mixed-2", () -> { f.lock(); both(mixed); g.readLock().lock(); });
        start("mixed-3", () -> { g.writeLock().lock(); both(mixed); takeSecond(e); });

        ReentrantReadWriteLock h = new ReentrantReadWriteLock();
        until(start("reads", () -> { h.readLock().lock(); Thread.sleep(1000_000); }), Thread.State.TIMED_WAITING);
        start("writes", () -> h.writeLock().lock());

        Object i = new Object();
        Thread notified = start("notified", () -> { synchronized (i) { i.wait(); } });
        until(notified, Thread.State.WAITING);
        Thread soon = start("notified-soon", () -> { synchronized (i) { i.wait(1000_000); } });
        until(soon, Thread.State.TIMED_WAITING);
        start("notifies", () -> { synchronized (i) { i.notifyAll(); Thread.sleep(1000_000); } });

        Object j = new Object();
        Lock k = new ReentrantLock();
        Condition l = k.newCondition();
        start("waits", () -> { synchronized (j) { j.wait(); } });
        start("awaits", () -> { k.lock(); l.await(); });
        start("latch", () -> new CountDownLatch(1).await());
        start("joins", () -> notified.join());
        for (Thread t : threads) until(t, Thread.State.BLOCKED, Thread.State.WAITING, Thread.State.TIMED_WAITING);

        ThreadMXBean bean = ManagementFactory.getThreadMXBean();
        for (Thread t : threads) {
            ThreadInfo info = bean.getThreadInfo(t.getId());
            LockInfo lock = info.getLockInfo();
            String owner = info.getLockOwnerName();
            System.out.println("waits " + t.getName() + " " + (owner == null ? "-" : owner) + " " + (lock == null ? "-" : lock.getClassName()));
        }
        StringBuilder dead = new StringBuilder("dead");
        for (long id : bean.findDeadlockedThreads()) dead.append(" " + bean.getThreadInfo(id).getThreadName());
        System.out.println(dead);
    }

    static void crowd(int n) throws Exception {
        Object a = new Object();
        synchronized (a) {
            for (int i = 0; i < n; i++) start("waits-" + i, () -> takeSecond(a));
            for (Thread t : threads) until(t, Thread.State.BLOCKED);
            ready();
        }
    }

    static Object garbage;

    static final Object[] monitors = new Object[4];
    static final Lock[] locks = new Lock[4];
    static final ReentrantReadWriteLock[] both = {new ReentrantReadWriteLock(), new ReentrantReadWriteLock()};

    static void hard(int n) throws Exception {
        for (int i = 0; i < monitors.length; i++) monitors[i] = new Object();
        for (int i = 0; i < locks.length; i++) locks[i] = new ReentrantLock(i % 2 == 0);
        for (int i = 0; i < n; i++) {
            boolean less = i % 2 == 0;
            start("hard-" + i, () -> {
                for (;;) {
                    if (less) underLocks();
                    else underMonitors();
                }
            });
        }
        ready();
    }

    static void underMonitors() throws Exception {
        ThreadLocalRandom r = ThreadLocalRandom.current();
        int i = r.nextInt(3), j = i + 1 + r.nextInt(3 - i);
        synchronized (monitors[i]) {
            synchronized (monitors[j]) {
                underLocks();
            }
            if (r.nextInt(16) == 0) monitors[i].wait(1);
            if (r.nextInt(8) == 0) monitors[i].notifyAll();
        }
    }

    static void underLocks() throws Exception {
        ThreadLocalRandom r = ThreadLocalRandom.current();
        int i = r.nextInt(3), j = i + 1 + r.nextInt(3 - i);
        locks[i].lock();
        locks[j].lock();
        Lock k = r.nextBoolean() ? both[0].readLock() : both[0].writeLock();
        k.lock();
        both[1].writeLock().lock();
        garbage = new byte[1 + r.nextInt(64 << 10)];
        if (r.nextInt(8) == 0) Thread.sleep(0, 200_000);
        if (r.nextInt(40) == 0) Thread.sleep(r.nextInt(500)); // longer than a dump
        both[1].writeLock().unlock();
        k.unlock();
        locks[j].unlock();
        locks[i].unlock();
    }

    static void ready() throws Exception {
        System.out.println("ready");
        System.out.flush();
        System.in.read();
        Runtime.getRuntime().halt(0);
    }

    public static void main(String[] args) throws Exception {
        switch (args[0]) {
            case "stuck": stuck(); break;
            case "crowd": crowd(Integer.parseInt(args[1])); break;
            default: hard(Integer.parseInt(args[1]));
        }
        ready();
    }
}
