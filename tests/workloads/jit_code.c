// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * jit_code WHAT SECONDS DIR: makes machine code and runs it, and tells of it as runtimes do, or as they should not.
 *
 * map    a perf map: first_function, then at the same address second_function, beside it third_function
 * dump   a jitdump DIR/jit-PID.dump with lines; the same two functions, then the second one is moved
 * none   no word of it
 * and perf maps that must not be read: link and hard to the file DIR/secret, owner (of another user), fifo, sparse
 * (10 GiB), old (written before the program began)
 *
 * Prints "switched NS" when the second function takes the place of the first, and "file PATH".
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define FUNCTION_SIZE 64
#define LOOP_AT 9

static uint8_t *code;
static char path[512];

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ull + ts.tv_nsec;
}

static void fail(const char *what)
{
	perror(what);
	exit(2);
}

/* A loop with a frame of its own; `variant` changes the code, so that none can be taken for the other. */
static void make_function(uint8_t *at, int variant)
{
#ifdef __x86_64__
	static const uint8_t begin[] = { 0x55, 0x48, 0x89, 0xe5, 0xb9, 0xa0, 0x86, 0x01, 0x00 };
	static const uint8_t loops[2][5] = {
		{ 0xff, 0xc9, 0x90, 0x75, 0xfb }, /* dec ecx; nop; jnz */
		{ 0x83, 0xe9, 0x01, 0x75, 0xfb }, /* sub ecx, 1; jnz */
	};
	static const uint8_t end[] = { 0x5d, 0xc3 };

	memcpy(at, begin, sizeof(begin));
	memcpy(at + LOOP_AT, loops[variant], sizeof(loops[variant]));
	memcpy(at + LOOP_AT + sizeof(loops[variant]), end, sizeof(end));
#else
#error "machine code for this processor is missing"
#endif
}

static uint64_t own_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
	return ts.tv_sec * 1000000000ull + ts.tv_nsec;
}

/* Call it over and over, for so many seconds of the processor's time: its share of the samples is then known. */
__attribute__((noinline)) static void drive(uint8_t *function, double seconds)
{
	uint64_t end = own_ns() + (uint64_t)(seconds * 1e9);

	while (own_ns() < end)
		((void (*)(void))(uintptr_t)function)();
}

static int create(void)
{
	int fd = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644);

	if (fd < 0)
		fail(path);
	return fd;
}

static void put(int fd, const void *bytes, size_t size)
{
	if (write(fd, bytes, size) != (ssize_t)size)
		fail("write");
}

static void put_line(int fd, const void *at, const char *name)
{
	char line[128];

	put(fd, line, snprintf(line, sizeof(line), "%lx %x %s\n", (unsigned long)at, FUNCTION_SIZE, name));
}

static void run_map(double seconds)
{
	int fd = create();

	make_function(code, 0);
	make_function(code + FUNCTION_SIZE, 0);
	put_line(fd, code, "first_function");
	drive(code, seconds / 2);
	printf("switched %llu\n", (unsigned long long)now_ns());
	make_function(code, 1);
	put_line(fd, code, "second_function");
	drive(code, seconds / 4);
	put_line(fd, code + FUNCTION_SIZE, "third_function with blanks");
	drive(code + FUNCTION_SIZE, seconds / 4);
	close(fd);
}

struct record {
	uint32_t kind, size;
	uint64_t time_ns;
};

static void put_record(int fd, uint32_t kind, const void *body, size_t size)
{
	struct record record = { kind, sizeof(record) + size, now_ns() };

	put(fd, &record, sizeof(record));
	put(fd, body, size);
}

static void put_load(int fd, const uint8_t *at, const char *name)
{
	char body[256];
	uint32_t ids[2] = { getpid(), getpid() };
	uint64_t words[4] = { (uintptr_t)at, (uintptr_t)at, FUNCTION_SIZE, 0 };
	size_t length = strlen(name) + 1;

	memcpy(body, ids, sizeof(ids));
	memcpy(body + 8, words, sizeof(words));
	memcpy(body + 40, name, length);
	memcpy(body + 40 + length, at, FUNCTION_SIZE);
	put_record(fd, 0, body, 40 + length + FUNCTION_SIZE);
}

static void put_lines(int fd, const uint8_t *at)
{
	static const char file[] = "/src/made.c";
	char body[128] = "";
	uint64_t head[2] = { (uintptr_t)at, 2 };
	uint64_t first[2] = { (uintptr_t)at, 10 }, second[2] = { (uintptr_t)at + LOOP_AT, 11 };

	memcpy(body, head, 16);
	memcpy(body + 16, first, 16);
	memcpy(body + 32, file, sizeof(file));
	memcpy(body + 32 + sizeof(file), second, 16);
	memcpy(body + 48 + sizeof(file), "\xff", 2);
	put_record(fd, 2, body, 50 + sizeof(file));
}

static void run_dump(double seconds)
{
	uint32_t head[6] = { 0x4a695444, 1, 40, 62, 0, getpid() };
	uint64_t words[2] = { now_ns(), 0 };
	uint64_t moved[6] = { (uint64_t)getpid() << 32 | getpid() };
	int fd = create();
	int again = open(path, O_RDONLY);

	put(fd, head, sizeof(head));
	put(fd, words, sizeof(words));
	if (mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, again, 0) == MAP_FAILED)
		fail("mmap of the dump");
	make_function(code, 0);
	put_lines(fd, code);
	put_load(fd, code, "first_function");
	drive(code, seconds / 2);
	printf("switched %llu\n", (unsigned long long)now_ns());
	make_function(code, 1);
	put_load(fd, code, "second_function");
	drive(code, seconds / 4);
	memcpy(code + 4096, code, FUNCTION_SIZE);
	moved[2] = (uintptr_t)code;
	moved[3] = (uintptr_t)code + 4096;
	moved[4] = FUNCTION_SIZE;
	put_record(fd, 1, moved, sizeof(moved));
	drive(code + 4096, seconds / 4);
	put_record(fd, 3, NULL, 0);
	close(fd);
}

/* Ways to have others' files read, or to hold the reader up. */
static void make_trap(const char *what, const char *dir)
{
	char secret[512], other[520];
	struct timespec old[2] = { { 1000000000, 0 }, { 1000000000, 0 } };
	int fd;

	snprintf(secret, sizeof(secret), "%s/secret", dir);
	snprintf(other, sizeof(other), "%s.other", path);
	if (!strcmp(what, "link")) {
		if (symlink(secret, path))
			fail("symlink");
		return;
	}
	if (!strcmp(what, "fifo")) {
		if (mkfifo(path, 0644))
			fail("mkfifo");
		return;
	}
	fd = create();
	put_line(fd, code, "trapped_function");
	if (!strcmp(what, "owner") && fchown(fd, 65534, 65534))
		fail("fchown");
	if (!strcmp(what, "hard") && link(path, other))
		fail("link");
	if (!strcmp(what, "sparse") && ftruncate(fd, 10ll << 30))
		fail("ftruncate");
	if (!strcmp(what, "old") && futimens(fd, old))
		fail("futimens");
	close(fd);
}

int main(int argc, char **argv)
{
	double seconds;

	if (argc != 4) {
		fprintf(stderr, "usage: jit_code WHAT SECONDS DIR\n");
		return 2;
	}
	seconds = atof(argv[2]);
	code = mmap(NULL, 8192, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (code == MAP_FAILED)
		fail("mmap");
	if (!strcmp(argv[1], "dump"))
		snprintf(path, sizeof(path), "%s/jit-%d.dump", argv[3], getpid());
	else
		snprintf(path, sizeof(path), "/tmp/perf-%d.map", getpid());
	printf("file %s\n", path);
	if (!strcmp(argv[1], "map")) {
		run_map(seconds);
	} else if (!strcmp(argv[1], "dump")) {
		run_dump(seconds);
	} else {
		make_function(code, 0);
		if (strcmp(argv[1], "none"))
			make_trap(argv[1], argv[3]);
		drive(code, seconds);
	}
	return 0;
}
