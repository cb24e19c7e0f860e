/* The interface between the halves of deep: see deep.c. */
#include "sys.h"

/* note adds a function's name to the line that tells the stack. */
void note(const char *name);

/* The four kinds of frame; each calls the next, depth times. */
int plain(int depth, int how);
