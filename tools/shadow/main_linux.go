package main

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"sfsample/unwind"
)

func main() {
	var c config
	flag.IntVar(&c.steps, "n", 20_000, "instructions to step, in all")
	flag.IntVar(&c.stretch, "stretch", 10_000, "instructions in a row")
	flag.DurationVar(&c.wait, "wait", 200*time.Millisecond, "the program runs at most this long between stretches")
	flag.Uint64Var(&c.seed, "seed", 1, "of the random moments")
	orders := flag.String("orders", "eh_frame;code;sframe,eh_frame,code,fp,backchain", "orders of methods to judge, separated by ;")
	top := flag.Int("top", 25, "places to print for each order, 0 for all")
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "usage: shadow [flags] -- COMMAND [ARGS...]")
		flag.PrintDefaults()
	}
	flag.Parse()
	c.command = flag.Args()
	var err error
	if c.orders, err = parseOrders(*orders); err != nil || len(c.command) == 0 || c.steps <= 0 || c.stretch <= 0 || c.wait <= 0 {
		if err != nil {
			fmt.Fprintln(os.Stderr, "shadow:", err)
		}
		flag.Usage()
		os.Exit(2)
	}
	res, err := run(c)
	res.print(os.Stdout, *top)
	if err != nil {
		fmt.Fprintln(os.Stderr, "shadow:", err)
		os.Exit(1)
	}
}

func parseOrders(s string) (list [][]unwind.How, err error) {
	for _, o := range strings.Split(s, ";") {
		var order []unwind.How
		for _, name := range strings.Split(o, ",") {
			i := slices.IndexFunc(unwind.DefaultOrder, func(h unwind.How) bool { return h.String() == name })
			if i < 0 {
				return nil, fmt.Errorf("%q is no unwind method (try: sframe, eh_frame, code, fp, backchain)", name)
			}
			order = append(order, unwind.DefaultOrder[i])
		}
		list = append(list, order)
	}
	return list, nil
}
