// SPDX-License-Identifier: MIT OR Apache-2.0
// The C++ part of `mixed`: templates, a sort with a lambda, virtual calls, containers, exceptions thrown and caught.
#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "mixed.h"

namespace mixed {

template <typename T, int N> class Ring {
public:
	void push(T value)
	{
		items[next] = value;
		next = (next + 1) % N;
	}

	template <typename F> __attribute__((noinline)) T fold(T start, F combine) const
	{
		for (const T &item : items)
			start = combine(start, item);
		return start;
	}

private:
	std::array<T, N> items{};
	int next = 0;
};

class Shape {
public:
	virtual ~Shape() = default;
	virtual uint64_t area(uint64_t x) const = 0;
};

class Square : public Shape {
public:
	__attribute__((noinline)) uint64_t area(uint64_t x) const override
	{
		return mix(x, 20) * x;
	}
};

class Circle : public Shape {
public:
	__attribute__((noinline)) uint64_t area(uint64_t x) const override
	{
		return mix(x + 1, 30) * 3;
	}
};

__attribute__((noinline)) static uint64_t sort_and_sum(uint64_t x)
{
	std::vector<uint64_t> values(400);
	for (uint64_t &value : values)
		value = x = mix(x, 2);
	std::sort(values.begin(), values.end(), [](uint64_t a, uint64_t b) { return mix_once(a) < mix_once(b); });
	return values.front() + values.back();
}

__attribute__((noinline)) static uint64_t refuse_odd(uint64_t x)
{
	if (x % 2)
		throw std::invalid_argument(std::to_string(x));
	return x / 2;
}

__attribute__((noinline)) static uint64_t throw_and_catch(uint64_t x)
{
	uint64_t refused = 0;
	for (int i = 0; i < 10; i++) {
		try {
			x = refuse_odd(mix(x, 4));
		} catch (const std::invalid_argument &) {
			refused++;
		}
	}
	return x + refused;
}

__attribute__((noinline)) static uint64_t fill_map(uint64_t x)
{
	std::map<uint64_t, std::string> names;
	for (int i = 0; i < 60; i++)
		names[mix(x + i, 2)] = "name";
	return names.begin()->first;
}

} // namespace mixed

extern "C" uint64_t mixed_cpp(uint64_t x)
{
	mixed::Ring<uint64_t, 512> ring;
	const std::array<std::unique_ptr<mixed::Shape>, 2> shapes = { std::make_unique<mixed::Square>(),
								      std::make_unique<mixed::Circle>() };
	for (int i = 0; i < 512; i++)
		ring.push(shapes[i % 2]->area(x + i));
	x = ring.fold(x, [](uint64_t sum, uint64_t item) { return mix(sum ^ item, 3); });
	return mixed::sort_and_sum(x) + mixed::throw_and_catch(x) + mixed::fill_map(x);
}
