// lookup SECTION ADDR: times libsframe's look-up on the bytes of an AMD64 SFrame
// section of version 3, linked at ADDR (hexadecimal), for every 37th address of
// its functions: the addresses and the order of BenchmarkFile in package sframe.
//
// The script run calls it.
#include <inttypes.h>
#include <sframe-api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static uint64_t gcd(uint64_t a, uint64_t b) { return b ? gcd(b, a % b) : a; }

int main(int argc, char **argv) {
	if (argc != 3)
		return 2;
	FILE *f = fopen(argv[1], "rb");
	static char buf[64 << 20];
	size_t size = f ? fread(buf, 1, sizeof buf, f) : 0;
	if (size < 28 || size == sizeof buf)
		return 1;
	uint64_t addr = strtoull(argv[2], 0, 16);
	uint32_t fdes, off;
	memcpy(&fdes, buf + 8, 4);
	memcpy(&off, buf + 20, 4);
	int64_t *pcs = malloc(sizeof *pcs << 20); // relative to the section, as libsframe wants them
	size_t n = 0;
	for (uint32_t i = 0; i < fdes; i++) {
		size_t at = 28 + (uint8_t)buf[7] + off + (size_t)i * 16;
		int64_t start;
		uint32_t bytes;
		if (at + 16 > size)
			return 1;
		memcpy(&start, buf + at, 8);
		memcpy(&bytes, buf + at + 8, 4);
		for (uint64_t o = 0; o < bytes && n < 1 << 20; o += 37)
			pcs[n++] = start + (int64_t)(at + o);
	}
	int err = 0;
	sframe_decoder_ctx *ctx = sframe_decode(buf, size, &err);
	if (!ctx || n == 0)
		return 1;
	uint64_t step = n * 5 / 8 | 1, at = 0, hits = 0, rounds = 1000000;
	while (gcd(step, n) != 1)
		step += 2;
	struct timespec a, b;
	clock_gettime(CLOCK_MONOTONIC, &a);
	for (uint64_t i = 0; i < rounds; i++) {
		sframe_frame_row_entry fre;
		hits += sframe_find_fre(ctx, pcs[at], &fre) == 0;
		at += step;
		if (at >= n)
			at -= n;
	}
	clock_gettime(CLOCK_MONOTONIC, &b);
	double ns = (b.tv_sec - a.tv_sec) * 1e9 + (b.tv_nsec - a.tv_nsec);
	printf("libsframe: section at %#" PRIx64 ", %zu addresses, %.1f ns a look-up, %.2f %% hits\n", addr, n, ns / rounds, 100.0 * hits / rounds);
	sframe_decoder_free(&ctx);
	return 0;
}
