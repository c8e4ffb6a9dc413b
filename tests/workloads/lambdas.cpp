/*
 * Lambdas of one function, each with another cost, which compilers inline: see tests/e2e/diff.rs, which puts one more before
 * them. Argument: units of work.
 */
#include <cstdio>
#include <cstdlib>

#define KEEP __attribute__((noinline))
#define GONE inline __attribute__((always_inline))
/* Whether lambdas are inlined. */
#ifndef LAMBDA
#define LAMBDA __attribute__((always_inline))
#endif

template <typename T> static GONE T opaque(T value)
{
	asm volatile("" : "+r"(value));
	return value;
}

/* Inlined with what it calls, so that all lambdas end up in one function. */
template <typename Work> static GONE unsigned long repeat(unsigned long rounds, Work work)
{
	unsigned long sum = 1;

	for (unsigned long i = 0; i < rounds; i++)
		sum ^= work(i);
	return sum;
}

static KEEP unsigned long serve(unsigned long unit)
{
	// ONE MORE
	unsigned long small = repeat(10, [](unsigned long i) LAMBDA {
		unsigned long sum = i;
		for (unsigned long j = 0; j < 400; j++)
			sum = opaque(sum * 0x9e3779b9 ^ j);
		return sum;
	});
	unsigned long middle = repeat(10, [small](unsigned long i) LAMBDA {
		unsigned long sum = small ^ i;
		for (unsigned long j = 0; j < 900; j++)
			sum = opaque(sum + j) << 7;
		return sum;
	});
	unsigned long large = repeat(10, [&](unsigned long i) LAMBDA {
		unsigned long sum = middle ^ i;
		for (unsigned long j = 0; j < 2000; j++)
			sum ^= opaque(sum << 3) ^ j;
		return sum;
	});
	return small ^ middle ^ large ^ unit;
}

int main(int argc, char **argv)
{
	unsigned long units = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 1000, sum = 0;

	for (unsigned long unit = 0; unit < units; unit++)
		sum ^= serve(unit);
	std::printf("%lu\n", sum);
	return 0;
}
