package sampler

import (
	"math/bits"
	"time"
)

// subBuckets is how many buckets a power of two is cut into: values are told
// apart to 1/16, so a percentile is at most 6 % off.
const subBuckets = 16

// histogram counts durations in logarithmic buckets, without allocation.
type histogram struct {
	count [64 * subBuckets]uint32
	total int64
	n     int64
	max   time.Duration
}

func bucket(d time.Duration) int {
	v := uint64(max(d, 0))
	if v < subBuckets {
		return int(v)
	}
	shift := bits.Len64(v) - 5 // keeps the leading bit and four more
	return (shift+1)*subBuckets + int(v>>shift) - subBuckets
}

// bucketLow is the smallest value that falls into bucket i.
func bucketLow(i int) time.Duration {
	if i < subBuckets {
		return time.Duration(i)
	}
	shift := i/subBuckets - 1
	return time.Duration(i%subBuckets+subBuckets) << shift
}

func (h *histogram) add(d time.Duration) {
	h.count[bucket(d)]++
	h.n++
	h.total += int64(d)
	h.max = max(h.max, d)
}

// quantile is the value below which the share q of all values lies.
func (h *histogram) quantile(q float64) time.Duration {
	if h.n == 0 {
		return 0
	}
	rank := int64(q * float64(h.n))
	var seen int64
	for i, c := range h.count {
		seen += int64(c)
		if seen > rank {
			return min(bucketLow(i), h.max)
		}
	}
	return h.max
}

// Spread is the shape of a set of durations.
type Spread struct {
	N             int64
	P50, P99, Max time.Duration
}

func (h *histogram) spread() Spread {
	return Spread{h.n, h.quantile(0.5), h.quantile(0.99), h.max}
}
