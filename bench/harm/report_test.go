package main

import (
	"math"
	"strings"
	"testing"
)

func TestComparison(t *testing.T) {
	var c comparison
	c.add(result{{"speed", 100, false}, {"EINTR", 0, true}}, result{{"speed", 99, false}, {"EINTR", 0, true}})
	c.add(result{{"speed", 200, false}, {"EINTR", 2, true}}, result{{"speed", 206, false}, {"EINTR", 1, true}})
	var out strings.Builder
	if c.print(&out) {
		t.Error("fewer errors are taken for harm")
	}
	// Differences -1 % and +3 %: mean 1, standard deviation √8, over √2.
	for _, want := range []string{"without 150, with 152.5: median +1.00 %, mean +1.00 ± 2.00 (-1.00 … +3.00)\n", "without 2, with 1\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	c.add(result{{"speed", 1, false}, {"EINTR", 0, true}}, result{{"speed", 1, false}, {"EINTR", 5, true}})
	if !c.print(&out) {
		t.Error("more errors with sfsample are not taken for harm")
	}
}

func TestMedian(t *testing.T) {
	if got := median([]float64{9, 1, 2}); got != 2 {
		t.Errorf("median of 9, 1, 2: %v", got)
	}
	if got := median([]float64{9, 1, 2, 4}); got != 3 {
		t.Errorf("median of 9, 1, 2, 4: %v", got)
	}
}

func TestShares(t *testing.T) {
	// Mean 2; the largest is half as much again.
	total, spread := shares([]uint64{2, 1, 3})
	if total != 6 || math.Abs(spread-1) > 1e-9 {
		t.Errorf("shares of 2, 1, 3: sum %v, spread %v; want 6 and (3-1)/2", total, spread)
	}
}

func TestErrnoLines(t *testing.T) {
	got, err := parseErrnoCounts("read 10 1 2 3 0\nwrite 5 0 0 0 4\nepoll_wait 7 6 0 0 0\naccept4 1 0 1 0 0\n")
	if err != nil {
		t.Fatal(err)
	}
	want := errnoCounts{calls: 23, eintr: 7, other: 3, cut: 4}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	for _, bad := range []string{"", "read 1 2 3\n", "read a b c d e\n"} {
		if _, err := parseErrnoCounts(bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

func TestBenchmarkLine(t *testing.T) {
	got, err := parseBenchmark("\"test\",\"rps\",\"avg_latency_ms\"\n\"SET\",\"6322.31\",\"2.847\"\n\"GET\",\"11171.94\",\"1.604\"\n")
	if err != nil || len(got) != 2 || got["SET"] != 6322.31 || got["GET"] != 11171.94 {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := parseBenchmark("ERR\n"); err == nil {
		t.Error("an error is taken for a result")
	}
}
