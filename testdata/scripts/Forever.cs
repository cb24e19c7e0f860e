// A program whose Main and Run never return: Mono compiles them without a frame pointer and without a way out.
using System;
using System.Reflection;
using System.Runtime.CompilerServices;

class Forever {
	[MethodImpl(MethodImplOptions.NoInlining)]
	static long Fib(int n) { return n < 2 ? n : Fib(n - 1) + Fib(n - 2); }

	[MethodImpl(MethodImplOptions.NoInlining)]
	static long Sum(long x) {
		long s = 0;
		for (int i = 0; i < 1000; i++) s += x * i % 7;
		return s;
	}

	[MethodImpl(MethodImplOptions.NoInlining)]
	static void Run(long kept) {
		long s = 0;
		while (true) { s += Fib(12) + kept; s += Sum(s); }
	}

	// Where the methods begin.
	[MethodImpl(MethodImplOptions.NoInlining)]
	static void Tell() {
		foreach (var name in new[] { "Fib", "Sum", "Run", "Main" }) {
			var method = typeof(Forever).GetMethod(name, BindingFlags.NonPublic | BindingFlags.Static).MethodHandle;
			Console.WriteLine("{0} {1}", name, (ulong)method.GetFunctionPointer());
		}
	}

	static void Main(string[] args) {
		Tell();
		if (args.Length > 0) Run(args.Length);
		long s = 0;
		while (true) { s += Fib(12); s += Sum(s); }
	}
}
