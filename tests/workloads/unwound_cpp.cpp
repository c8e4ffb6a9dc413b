// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * unwound_cpp SECONDS: as unwound_c, in C++: exceptions on their way, virtual functions, lambdas in algorithms, trees.
 */
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <sys/time.h>
#include <thread>
#include <vector>

#define OWN __attribute__((noinline)) static

static volatile uint64_t sink;

OWN uint64_t leaf(uint64_t x)
{
	for (int i = 0; i < 200; i++)
		x = x * 6364136223846793005ull + 1442695040888963407ull;
	return x;
}

struct Shape {
	virtual ~Shape() = default;
	virtual uint64_t area(int depth) const = 0;
};

struct Square : Shape {
	uint64_t side;
	explicit Square(uint64_t side) : side(side)
	{
	}
	uint64_t area(int depth) const override
	{
		return leaf(side * side + depth);
	}
};

struct Group : Shape {
	std::vector<std::unique_ptr<Shape>> parts;
	uint64_t area(int depth) const override
	{
		uint64_t sum = 0;
		for (const auto &part : parts)
			sum += part->area(depth + 1);
		return sum;
	}
};

struct Cleaned {
	uint64_t x;
	~Cleaned()
	{
		sink = sink + leaf(x);
	}
};

OWN uint64_t thrower(uint64_t x, int depth)
{
	Cleaned cleaned{ x };
	if (depth == 0)
		throw std::runtime_error(std::to_string(x));
	return thrower(x + 1, depth - 1) + cleaned.x;
}

OWN uint64_t caught(uint64_t x)
{
	try {
		try {
			return thrower(x, 6);
		} catch (const std::logic_error &) {
			return 0;
		} catch (...) {
			sink = sink + leaf(x);
			throw;
		}
	} catch (const std::exception &error) {
		return leaf(x) + std::string(error.what()).size();
	}
}

OWN uint64_t sorted(uint64_t x)
{
	std::vector<std::string> words;
	for (int i = 0; i < 30; i++)
		words.push_back(std::to_string(x = leaf(x)));
	std::sort(words.begin(), words.end(), [](const std::string &a, const std::string &b) {
		return leaf(a.size()) % 3 == 0 ? a < b : a.compare(b) < 0;
	});
	std::map<std::string, uint64_t> tree;
	for (const auto &word : words)
		tree[word] += x;
	return tree.size();
}

OWN uint64_t recursive(const std::function<uint64_t(uint64_t)> &own, uint64_t x, int depth)
{
	if (depth == 0)
		return own(x);
	return recursive([&own](uint64_t x) { return own(leaf(x)) + 1; }, x, depth - 1);
}

OWN std::unique_ptr<Shape> shapes(int depth)
{
	auto group = std::make_unique<Group>();
	for (int i = 0; i < 2; i++) {
		if (depth == 0)
			group->parts.push_back(std::make_unique<Square>(i + 3));
		else
			group->parts.push_back(shapes(depth - 1));
	}
	return group;
}

static void work(uint64_t x, std::chrono::steady_clock::time_point end)
{
	auto shape = shapes(4);
	while (std::chrono::steady_clock::now() < end) {
		x += shape->area(0);
		x += caught(x);
		x += sorted(x);
		x += recursive([](uint64_t x) { return leaf(x); }, x, 8);
	}
	sink = sink + x;
}

int main(int argc, char **argv)
{
	double seconds = argc > 1 ? std::stod(argv[1]) : 1;
	auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds((long)(seconds * 1000));
	struct itimerval tick = { { 0, 1000 }, { 0, 1000 } };

	std::signal(SIGPROF, SIG_IGN);
	setitimer(ITIMER_PROF, &tick, nullptr);
	std::thread other(work, 1, end);
	work(2, end);
	other.join();
	return 0;
}
