package main

import "testing"

// TestOfCall: a function of libc is held against the call whose name it has, if that was timed.
func TestOfCall(t *testing.T) {
	timed := shares{"": 600, "read": 100, "write": 300, "writev": 0}
	for function, call := range map[string]string{"libc.so.6 __write": "write", "libc.so.6 read": "read", "libc.so.6 __libc_read": "", "libc.so.6 writev": "", "libc.so.6 open": "", "libc.so.6": "", "redis-server processCommand": "", "redis-server write": ""} {
		if share, ok := ofCall(timed, function); ok != (call != "") || ok && share != timed[call]/10 {
			t.Errorf("%s: %.1f, %t", function, share, ok)
		}
	}
}
