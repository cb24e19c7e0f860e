// becomes N: prints "ready" and waits for a line, then makes N children, one after the other. In each a thread that is not
// the leader becomes another program by exec, which raises a signal for itself and ends. It prints how many of them were
// killed because they had not ended after ten seconds.
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

static void spin(double seconds) {
	for (double end = now() + seconds; now() < end;)
		;
}

static void handle(int sig) {}

static void *become(void *arg) {
	spin(4e-3);
	execl("/proc/self/exe", "becomes", (char *)0);
	_exit(4);
}

static int child(void) {
	pthread_t t;
	if (pthread_create(&t, 0, become, 0))
		return 3;
	pthread_join(t, 0);
	return 4;
}

int main(int argc, char **argv) {
	if (argc < 2) {
		signal(SIGUSR1, handle);
		spin(2e-3);
		raise(SIGUSR1);
		return 0;
	}
	puts("ready");
	fflush(stdout);
	getchar();
	int killed = 0;
	for (int i = atoi(argv[1]); i > 0; i--) {
		pid_t pid = fork();
		if (pid == 0)
			_exit(child());
		double end = now() + 10;
		while (waitpid(pid, 0, WNOHANG) == 0) {
			usleep(500);
			if (now() > end) {
				killed++;
				kill(pid, SIGKILL);
				end = now() + 1e9;
			}
		}
	}
	printf("killed %d\n", killed);
	fflush(stdout);
	pause();
}
