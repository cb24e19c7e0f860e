package main

import (
	"strings"
	"testing"

	"sfsample/internal/testprog"
)

// TestSFrame1 samples a program of the machine's own compiler. That of Debian 12
// writes SFrame 1, which ranks after .eh_frame, except where .eh_frame is not
// among the methods.
func TestSFrame1(t *testing.T) {
	flags := strings.Fields("-O2 -fomit-frame-pointer -ffreestanding -fno-stack-protector -fno-pic -no-pie -fcf-protection=none" +
		" -mno-red-zone -fasynchronous-unwind-tables -Wa,--gsframe -nostdlib")
	p := testprog.Start(t, testprog.Compile(t, flags, "deep.c"), "s", "3")
	wantLive(t, p, 3, []string{"--unwind", "sframe"}, methodsOf(p.Stack, "sframe"))
}
