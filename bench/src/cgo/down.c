#include <stdint.h>

uint64_t back(uint64_t x);

/* down computes, and lets Go compute. */
uint64_t down(uint64_t x)
{
	for (int i = 0; i < 4; i++) {
		for (int j = 0; j < 100; j++)
			x = x * 6364136223846793005u + 1442695040888963407u;
		x = back(x);
	}
	return x;
}
