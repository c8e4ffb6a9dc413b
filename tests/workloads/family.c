// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * family FILE SECONDS stay|exec: two busy threads, of which one makes threads, processes and processes of processes.
 *
 * `pid P chosen T other T` goes into FILE when all of them run. The chosen thread spins in work_chosen(), then lets a
 * new thread spin in work_made_thread(), then a new process in work_made_child() and that one's own in
 * work_grandchild(), 10 ms each, over and over. The other thread spins in work_other() meanwhile. With `exec` the
 * chosen thread executes this program anew after one and a half seconds, which takes over the process and spins in
 * work_executed().
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TURN 0.01

static double end;
static double exec_at;
static char *self;
static volatile pid_t chosen_tid, other_tid;

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + ts.tv_nsec / 1e9;
}

/* One function for each who works: that is how the test tells them apart. */
#define WORK(name, factor)                                                                                             \
	__attribute__((noinline)) static uint64_t name(double until)                                                   \
	{                                                                                                              \
		volatile uint64_t x = 1;                                                                               \
		while (now() < until)                                                                                  \
			for (int i = 0; i < 20000; i++)                                                                \
				x = x * factor + 1;                                                                    \
		return x;                                                                                              \
	}

WORK(work_chosen, 3)
WORK(work_made_thread, 5)
WORK(work_made_child, 7)
WORK(work_grandchild, 11)
WORK(work_other, 13)
WORK(work_executed, 17)

static void die(const char *what)
{
	perror(what);
	exit(2);
}

static void *made_thread(void *unused)
{
	(void)unused;
	work_made_thread(now() + TURN);
	return NULL;
}

static void make_process(void)
{
	pid_t child = fork();

	if (child < 0)
		die("fork");
	if (!child) {
		pid_t grandchild = fork();

		if (!grandchild) {
			work_grandchild(now() + TURN);
			_exit(0);
		}
		work_made_child(now() + TURN);
		waitpid(grandchild, NULL, 0);
		_exit(grandchild < 0);
	}
	waitpid(child, NULL, 0);
}

static void *chosen(void *unused)
{
	pthread_t thread;

	(void)unused;
	chosen_tid = gettid();
	while (now() < end) {
		if (exec_at && now() > exec_at) {
			execl(self, self, "executed", "1", NULL);
			die("exec");
		}
		work_chosen(now() + TURN);
		if (pthread_create(&thread, NULL, made_thread, NULL))
			die("pthread_create");
		pthread_join(thread, NULL);
		make_process();
	}
	return NULL;
}

static void *other(void *unused)
{
	(void)unused;
	other_tid = gettid();
	work_other(end);
	return NULL;
}

static void tell(const char *path)
{
	char *part;
	FILE *file;

	if (asprintf(&part, "%s.part", path) < 0 || !(file = fopen(part, "w")))
		die(path);
	fprintf(file, "pid %d chosen %d other %d\n", getpid(), chosen_tid, other_tid);
	if (fclose(file) || rename(part, path))
		die(path);
}

int main(int argc, char **argv)
{
	pthread_t threads[2];

	if (argc == 3 && !strcmp(argv[1], "executed")) {
		work_executed(now() + atof(argv[2]));
		return 0;
	}
	if (argc != 4) {
		fprintf(stderr, "usage: family FILE SECONDS stay|exec\n");
		return 2;
	}
	self = argv[0];
	end = now() + atof(argv[2]);
	exec_at = strcmp(argv[3], "exec") ? 0 : now() + 1.5;
	if (pthread_create(&threads[0], NULL, chosen, NULL) || pthread_create(&threads[1], NULL, other, NULL))
		die("pthread_create");
	while (!chosen_tid || !other_tid)
		usleep(1000);
	tell(argv[1]);
	pthread_join(threads[0], NULL);
	pthread_join(threads[1], NULL);
	return 0;
}
