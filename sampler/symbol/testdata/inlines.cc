// A program with inlined functions of several kinds: templates, lambdas, member
// functions, a virtual call, exceptions (cold parts), a nested loop that is
// inlined through the standard library.
#include <algorithm>
#include <functional>
#include <iostream>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace app {

template <class T> struct Box {
	T value;
	T get() const { return value; }
};

static inline int twice(int a) { return a * 2; }

static inline __attribute__((always_inline)) int sum(const std::vector<int> &v)
{
	int s = 0;
	for (int x : v)
		s += twice(x);
	return s;
}

struct Shape {
	virtual ~Shape() {}
	virtual double area() const = 0;
};

struct Square : Shape {
	double side;
	Square(double s) : side(s) {}
	double area() const override { return side * side; }
};

std::map<std::string, std::vector<int>> build(int n)
{
	std::map<std::string, std::vector<int>> m;
	for (int i = 0; i < n; i++)
		m[std::to_string(i % 17)].push_back(twice(i));
	for (auto &p : m)
		std::sort(p.second.begin(), p.second.end(), [](int a, int b) { return a > b; });
	if (m.size() > 100)
		throw std::runtime_error("too many");
	return m;
}

} // namespace app

int main(int argc, char **argv)
{
	auto m = app::build(argc * 100);
	app::Box<int> b{3};
	std::function<int(int)> f = [&](int x) { return x + b.get(); };
	app::Square s(2);
	const app::Shape &shape = s;
	std::cout << m.size() << app::sum(m["3"]) << f(argc) << shape.area() << "\n";
}
