// calls KIND N works until it is killed.
//
//	every N     N us of work between two getppid, over and over; told: the part of its CPU time that is in the calls
//	threads N   N threads that work for 300 us and sleep for 700
//	wander N    as every N, on another CPU each 5 ms
//	stdio N     N us of work between two lines that are written to /dev/null without a buffer
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static volatile unsigned long sum;
static long loops; // of a microsecond
static FILE *null;

static long now(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return t.tv_sec * 1000000000L + t.tv_nsec;
}

__attribute__((noinline)) void work(long n) {
  for (long i = 0; i < n; i++)
    sum += i;
}

static void *sleeper(void *unused) {
  const struct timespec rest = {0, 700000};
  for (;;) {
    work(300 * loops);
    nanosleep(&rest, 0);
  }
  return unused;
}

int main(int argc, char **argv) {
  if (argc < 3)
    return 2;
  int n = atoi(argv[2]);
  long begun = now(CLOCK_THREAD_CPUTIME_ID);
  work(100000000);
  loops = 100000000L * 1000 / (now(CLOCK_THREAD_CPUTIME_ID) - begun);
  begun = now(CLOCK_THREAD_CPUTIME_ID);
  for (int i = 0; i < 200000; i++)
    syscall(SYS_getppid);
  double call = (now(CLOCK_THREAD_CPUTIME_ID) - begun) / 200000.0;
  begun = now(CLOCK_THREAD_CPUTIME_ID);
  for (int i = 0; i < 200000000 / (n * 1000); i++)
    work(n * loops);
  double step = (now(CLOCK_THREAD_CPUTIME_ID) - begun) / (double)(200000000 / (n * 1000));
  if (!strcmp(argv[1], "every") || !strcmp(argv[1], "wander"))
    printf("share %g\n", 100 * call / (call + step));
  printf("ready\n");
  fflush(stdout);
  if (!strcmp(argv[1], "threads")) {
    pthread_t t;
    for (int i = 1; i < n; i++)
      pthread_create(&t, 0, sleeper, 0);
    sleeper(0);
  }
  null = fopen("/dev/null", "w");
  setvbuf(null, 0, _IONBF, 0);
  int cpu = 0, cpus = sysconf(_SC_NPROCESSORS_ONLN);
  for (long moved = now(CLOCK_MONOTONIC);;) {
    for (int i = 0; i < 50; i++) {
      work(n * loops);
      if (argv[1][0] == 's')
        fprintf(null, "%d %s\n", i, "line");
      else
        syscall(SYS_getppid);
    }
    if (argv[1][0] == 'w' && now(CLOCK_MONOTONIC) - moved > 5000000) {
      cpu_set_t set;
      CPU_ZERO(&set);
      CPU_SET(++cpu % cpus, &set);
      sched_setaffinity(0, sizeof set, &set);
      moved = now(CLOCK_MONOTONIC);
    }
  }
}
