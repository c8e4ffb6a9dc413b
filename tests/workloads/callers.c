/*
 * Functions that call each other and burn time in known places; with a second argument it starts itself once more, so
 * that there is a fork and an exec. Built with frame pointers by the tests of imports.
 */
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile unsigned long sink;

__attribute__((noinline)) void burn(unsigned long count)
{
	for (unsigned long i = 0; i < count; i++)
		sink += i;
}

__attribute__((noinline)) void gamma_(unsigned long count)
{
	burn(count);
	sink++;
}

__attribute__((noinline)) void beta(unsigned long count)
{
	gamma_(count);
	for (unsigned long i = 0; i < count; i++)
		sink ^= i;
}

__attribute__((noinline)) void alpha(unsigned long count)
{
	beta(count);
	gamma_(count);
	sink++;
}

int main(int argc, char **argv)
{
	unsigned long count = argc > 1 ? strtoul(argv[1], NULL, 10) : 1000000;
	pid_t child = 0;
	int status = 0;

	if (argc > 2) {
		child = fork();
		if (child == 0) {
			execl(argv[0], argv[0], argv[1], NULL);
			_exit(1);
		}
	}
	for (int i = 0; i < 20; i++)
		alpha(count);
	if (child > 0)
		waitpid(child, &status, 0);
	return status != 0;
}
