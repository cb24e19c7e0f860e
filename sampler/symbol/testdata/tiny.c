/* The smallest programs with all that a name can come from; see tiny.sh. */
static inline __attribute__((always_inline)) int twice(int x) { return x * 2; }
extern int imported(int);
__attribute__((noinline)) int exported(int x) { return twice(x) + 1; }
int caller(int x) { return imported(exported(x)) + 1; }
